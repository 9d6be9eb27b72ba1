//! CSV as of RFC 4180.

use std::borrow::Cow;

/// Returns a field as it stands in a line: in quotes if it has a comma, a quote or the end of a line.
pub fn field(text: &str) -> Cow<'_, str> {
    match text.contains(['"', ',', '\n', '\r']) {
        true => Cow::Owned(format!("\"{}\"", text.replace('"', "\"\""))),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_would_end_early_is_quoted() {
        for (text, expected) in [
            ("p", "p"),
            ("p(ecn,classic)", "\"p(ecn,classic)\""),
            ("a \"b\"", "\"a \"\"b\"\"\""),
            ("a\nb", "\"a\nb\""),
        ] {
            assert_eq!(field(text), expected);
        }
    }
}
