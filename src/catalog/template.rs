//! Which URIs a resource template can yield: a small matcher for the URI templates of RFC 6570.
//!
//! It owns the parsing of `uriTemplate` texts and the matching of concrete URIs, to find the server that a read goes
//! to. It never expands a template and captures nothing: the server gets the URI as it is. Matching takes time in
//! proportion to URI length times template length, whatever either is: no backtracking.

/// Templates with more bytes are matched by equality only.
const LONGEST_TEMPLATE: usize = 512;
/// URIs with more bytes match no template.
const LONGEST_URI: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Exactly this byte.
    Byte(u8),
    /// One byte of a class.
    One(Class),
    /// Any number of bytes of a class.
    Many(Class),
    /// What follows may be left out: so many steps.
    Skip(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Anything but `/`, `?` and `#`: a simple value, a path segment.
    Segment,
    /// Anything but `#`: a query.
    Query,
    /// Anything: a reserved expansion.
    Any,
}

impl Class {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Segment => !matches!(byte, b'/' | b'?' | b'#'),
            Self::Query => byte != b'#',
            Self::Any => true,
        }
    }
}

/// A parsed template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    steps: Vec<Step>,
    literal: usize,
    lead: Vec<u8>,
}

impl Template {
    /// Parses a template; `None` if the braces do not fit or it is absurdly long.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST_TEMPLATE {
            return None;
        }
        let mut steps = Vec::with_capacity(text.len());
        let mut literal = 0;
        let mut lead = Vec::new();
        let mut rest = text;
        let mut in_lead = true;
        while let Some(open) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(open);
            let inside = from.strip_prefix('{')?;
            let close = inside.find('}')?;
            let (expression, after) = inside.split_at(close);
            steps.extend(before.bytes().map(Step::Byte));
            literal += before.len();
            if in_lead {
                lead.extend_from_slice(before.as_bytes());
                in_lead = false;
            }
            push_expression(&mut steps, expression)?;
            rest = after.strip_prefix('}')?;
        }
        steps.extend(rest.bytes().map(Step::Byte));
        literal += rest.len();
        if in_lead {
            lead.extend_from_slice(rest.as_bytes());
        }
        Some(Self { steps, literal, lead })
    }

    /// How many bytes stand outside of expressions: the more, the more specific.
    #[must_use]
    pub fn literal_length(&self) -> usize {
        self.literal
    }

    /// Whether the template can yield this URI.
    #[must_use]
    pub fn matches(&self, uri: &str) -> bool {
        if uri.len() > LONGEST_URI || !uri.as_bytes().starts_with(&self.lead) {
            return false;
        }
        let end = self.steps.len();
        let mut now = vec![false; end + 1];
        let mut next = vec![false; end + 1];
        if let Some(first) = now.first_mut() {
            *first = true;
        }
        self.spread(&mut now);
        for byte in uri.bytes() {
            next.fill(false);
            let mut alive = false;
            for (at, step) in self.steps.iter().enumerate() {
                if now.get(at) != Some(&true) {
                    continue;
                }
                let to = match step {
                    Step::Byte(wanted) if *wanted == byte => at + 1,
                    Step::One(class) if class.has(byte) => at + 1,
                    Step::Many(class) if class.has(byte) => at,
                    _ => continue,
                };
                if let Some(state) = next.get_mut(to) {
                    *state = true;
                    alive = true;
                }
            }
            if !alive {
                return false;
            }
            self.spread(&mut next);
            std::mem::swap(&mut now, &mut next);
        }
        now.last() == Some(&true)
    }

    /// Adds the states that are reached without reading anything. Steps only ever lead forward, so one pass does.
    fn spread(&self, states: &mut [bool]) {
        for (at, step) in self.steps.iter().enumerate() {
            if states.get(at) != Some(&true) {
                continue;
            }
            let (first, second) = match step {
                Step::Many(_) => (at + 1, at + 1),
                Step::Skip(count) => (at + 1, at + 1 + count),
                Step::Byte(_) | Step::One(_) => continue,
            };
            for to in [first, second] {
                if let Some(state) = states.get_mut(to) {
                    *state = true;
                }
            }
        }
    }
}

fn push_expression(steps: &mut Vec<Step>, expression: &str) -> Option<()> {
    let mut chars = expression.chars();
    let operator = chars.next()?;
    let (operator, names) = if "+#./;?&".contains(operator) {
        (operator, chars.as_str())
    } else {
        (' ', expression)
    };
    let bad = |name: &str| name.is_empty() || name.contains(['{', '}', '/', ' ', '!', '=', '@', '|']);
    if names.split(',').any(bad) {
        return None;
    }
    let count = names.split(',').count();
    let optional = |steps: &mut Vec<Step>, lead: u8, class: Class| {
        steps.extend([Step::Skip(2), Step::Byte(lead), Step::Many(class)]);
    };
    match operator {
        ' ' => steps.extend([Step::One(Class::Segment), Step::Many(Class::Segment)]),
        '+' => steps.extend([Step::One(Class::Any), Step::Many(Class::Any)]),
        '#' => optional(steps, b'#', Class::Any),
        '?' => optional(steps, b'?', Class::Query),
        '&' => optional(steps, b'&', Class::Query),
        ';' => optional(steps, b';', Class::Segment),
        // An exploded list may have any number of segments.
        '/' if names.contains('*') => optional(steps, b'/', Class::Query),
        '/' => (0..count).for_each(|_| optional(steps, b'/', Class::Segment)),
        '.' => (0..count).for_each(|_| optional(steps, b'.', Class::Segment)),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests;
