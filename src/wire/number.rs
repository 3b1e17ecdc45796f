//! JSON numbers compared by value without loss of digits.
//!
//! It owns the one comparison of numbers that headers and policy use. It never converts a number to a float and
//! never computes with one.

use std::cmp::Ordering;

use super::json::{JsonLimits, Scanner, ValueKind};

/// A JSON number in its one normal spelling: equal if the values are equal, ordered by value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decimal {
    negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: Box<str>,
    /// Power of ten of the last digit.
    exponent: i64,
}

impl Decimal {
    /// The value of a JSON number; `None` if the text is none or its exponent is beyond 64 bits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut scanner = Scanner::new(text.as_bytes(), JsonLimits::default());
        let is_number = scanner.next_kind() == Ok(ValueKind::Number)
            && scanner.value().is_ok_and(|span| span.len() == text.len());
        if !is_number {
            return None;
        }
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>()),
            None => (text, Ok(0)),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let without_end = all.trim_end_matches('0');
        let digits = without_end.trim_start_matches('0');
        if digits.is_empty() {
            return Some(Self {
                negative: false,
                digits: "".into(),
                exponent: 0,
            });
        }
        let dropped = i64::try_from(all.len() - without_end.len()).ok()?;
        let shift = dropped - i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.ok()?.checked_add(shift)?;
        Some(Self {
            negative,
            digits: digits.into(),
            exponent,
        })
    }

    /// Whether the value has no fraction.
    #[must_use]
    pub fn is_integer(&self) -> bool {
        self.exponent >= 0
    }

    /// Power of ten just above the first digit.
    fn magnitude(&self) -> i128 {
        i128::from(self.exponent) + self.digits.len() as i128
    }

    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| {
            // Digits without zeros at the end compare as text: "12" < "123" < "13".
            let absolute = self
                .magnitude()
                .cmp(&other.magnitude())
                .then_with(|| self.digits.cmp(&other.digits));
            if self.negative {
                absolute.reverse()
            } else {
                absolute
            }
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests;
