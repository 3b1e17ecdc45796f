use super::*;
use proptest::prelude::*;

fn number(text: &str) -> Decimal {
    Decimal::parse(text).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn spellings_of_one_value_are_equal() {
    for same in [
        &["42", "42.0", "4.2e1", "420E-1", "0.42e+2"][..],
        &["0", "-0", "0.000", "0e5", "0e99999999999999999999"],
        &["-1e2", "-100", "-100.0"],
        &["1e400", "10e399"],
    ] {
        for text in same {
            assert_eq!(number(text), number(same[0]), "{text}");
        }
    }
    for other in [
        "",
        "+1",
        "01",
        "1.",
        ".5",
        "0x10",
        "1 ",
        " 1",
        "NaN",
        "\"1\"",
        "1e99999999999999999999",
    ] {
        assert_eq!(Decimal::parse(other), None, "{other}");
    }
}

#[test]
fn order_is_by_value() {
    let ascending = [
        "-1e3",
        "-999",
        "-2.5",
        "-2",
        "-1e-3",
        "0",
        "1e-400",
        "0.1",
        "1",
        "1.05",
        "1.5",
        "2",
        "10",
        "1e2",
        "9007199254740993",
        "1e400",
    ];
    for pair in ascending.windows(2) {
        assert!(number(pair[0]) < number(pair[1]), "{pair:?}");
        assert!(number(pair[1]) > number(pair[0]), "{pair:?}");
    }
}

proptest! {
    #[test]
    fn order_agrees_with_integers(a in any::<i64>(), b in -1000i64..1000, c in any::<i32>()) {
        for (x, y) in [(a, b), (b, a), (a, i64::from(c)), (a, a)] {
            prop_assert_eq!(number(&x.to_string()).cmp(&number(&y.to_string())), x.cmp(&y));
            prop_assert!(number(&x.to_string()).is_integer());
        }
    }
}
