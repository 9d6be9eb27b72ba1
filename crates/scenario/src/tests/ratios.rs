//! Ratios keep the value that was written, or are refused.

use sluice_core::param::Value;

use super::errors::errors;
use super::{PLAIN, variants};

/// Returns the loss of the link in billionths, in the file and as an option.
fn losses(toml: &str, option: &str) -> [u64; 2] {
    let text = PLAIN.replace("[[flow]]", &format!("loss = {toml}\n[[flow]]"));
    let set = format!("link.loss={option}");
    [variants(&text, &[]), variants(PLAIN, &[&set])].map(|all| {
        let loss = all[0].scenario.link.up.effects.find("loss");
        let Some(Value::Ratio(ratio)) = loss else {
            panic!("a loss is a ratio, not {loss:?}");
        };
        ratio.as_billionths()
    })
}

#[test]
fn a_number_and_a_percentage_keep_their_value() {
    // Of these floats, the nearest binary number is not the decimal that is written.
    for (written, billionths) in [
        ("0.01", 10_000_000),
        ("0.001", 1_000_000),
        ("0.123456789", 123_456_789),
        ("0.000000001", 1),
        ("1e-9", 1),
        ("2.5e-3", 2_500_000),
        // 0.1 + 0.2 in binary: 4e-17 too much, of which nothing is left in billionths.
        ("0.30000000000000004", 300_000_000),
        ("0", 0),
        ("0.0", 0),
    ] {
        assert_eq!(losses(written, written), [billionths; 2], "{written}");
    }
    for (written, billionths) in [
        ("5%", 50_000_000),
        ("97.5%", 975_000_000),
        ("0.0000001%", 1),
        ("0.0001234 %", 1_234),
        ("1e-3%", 10_000),
        ("1E+1%", 100_000_000),
        (".5%", 5_000_000),
        ("0%", 0),
        // A third: 0.33 of a billionth of 3.3e8 of them is dropped, which is 1e-9 of it.
        ("33.333333333333336%", 333_333_333),
    ] {
        let toml = format!("\"{written}\"");
        assert_eq!(losses(&toml, written), [billionths; 2], "{written}");
    }
}

#[test]
fn a_ratio_that_nine_decimals_do_not_hold_is_told_so() {
    for (written, shown) in [
        ("0.00000001234567%", "0.00000001234567%"),
        // 0.5 billionths, 1.2, and 12.5: half of one is 0.04 of it.
        ("0.00000005%", "0.00000005%"),
        ("0.00000012%", "0.00000012%"),
        ("0.00000125%", "0.00000125%"),
        ("5e-8%", "5e-8%"),
        // Numbers of TOML: 0.1 billionths, 1.25, and 12.5.
        ("1e-10", "0.0000000001"),
        ("1.25e-9", "0.00000000125"),
        ("1.25e-8", "0.0000000125"),
    ] {
        let text = errors(PLAIN, &[&format!("link.loss={written}")]);
        let said = format!("error: `{shown}` needs more than the nine decimals that are kept");
        assert!(text.starts_with(&said), "{text}");
    }
    let text = errors(&PLAIN.replace("[[flow]]", "loss = 4e-10\n[[flow]]"), &[]);
    assert!(
        text.starts_with("error: `0.0000000004` needs more"),
        "{text}"
    );
}

#[test]
fn a_percentage_without_a_number_is_no_ratio() {
    for written in ["%", "e2%", "5e%", "5ee1%", "5e1.5%", "5%%"] {
        let text = errors(PLAIN, &[&format!("link.loss={written}")]);
        let said = format!("error: `{written}` is not a ratio such as 0.95 or \"95%\"");
        assert!(text.starts_with(&said), "{text}");
    }
}
