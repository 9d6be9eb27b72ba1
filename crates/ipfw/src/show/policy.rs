//! AQMs and flow-queueing disciplines in the words of dummynet's `show`.

use std::fmt::Write as _;

use sluice_core::param::Value;
use sluice_core::registry::{Form, Spec};
use sluice_core::units::Span;

use crate::grammar::{Policy, RedWords};

/// Formats a time as dummynet does: `5ms`, `100us`, `1s`. Under `compat` it reproduces dummynet's
/// typing error `1fs`.
pub(crate) fn time(span: Span, is_compat: bool) -> String {
    let us = span.as_ns() / 1000;
    match us {
        0 if span > Span::ZERO => span.to_string(),
        0 => "0".to_string(),
        1..=999 => format!("{us}us"),
        1_000..=999_999 => format!("{}ms", general(us as f64 / 1e3)),
        _ if is_compat => format!("{}fs", general(us as f64 / 1e6)),
        _ => format!("{}s", general(us as f64 / 1e6)),
    }
}

/// Formats a number like C's `%g`: six significant digits, no trailing zeros.
pub(crate) fn general(value: f64) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    let exponent = value.abs().log10().floor() as i32;
    if !(-4..6).contains(&exponent) {
        let text = format!("{value:.5e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let text = format!("{value:.*}", (5 - exponent).max(0) as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

/// Returns the policy at the end of a flowset's line.
pub(crate) fn policy(policy: Option<&Policy>, aqm: Option<&Spec>, is_compat: bool) -> String {
    match (policy, aqm) {
        (Some(Policy::Red(words)), _) => red(words),
        (_, Some(spec)) => aqm_words(spec, is_compat),
        _ => "droptail".to_string(),
    }
}

fn red(words: &RedWords) -> String {
    format!(
        "\n\t {}RED w_q {:.6} min_th {} max_th {} max_p {:.6}{}",
        if words.is_gentle { 'G' } else { ' ' },
        words.weight.as_f64(),
        words.min,
        words.max,
        words.max_p.as_f64(),
        if words.ecn { " (ecn)" } else { "" }
    )
}

fn aqm_words(spec: &Spec, is_compat: bool) -> String {
    let words = Words { spec, is_compat };
    match spec.algorithm.name {
        "codel" => format!(
            " AQM CoDel target {} interval {} {}",
            words.time("target"),
            words.time("interval"),
            words.flag("ecn", "ECN", "NoECN")
        ),
        "pie" => format!(" AQM type PIE {}", words.pie("")),
        name => format!(" AQM {name}{}", words.all()),
    }
}

/// Returns the line of a scheduler's parameters without its line end; empty if it has none.
pub(crate) fn scheduler(spec: &Spec, is_compat: bool) -> String {
    let words = Words { spec, is_compat };
    let queueing = || {
        format!(
            "quantum {} limit {} flows {}",
            words.count("quantum"),
            words.count("limit"),
            words.count("flows")
        )
    };
    match spec.algorithm.name {
        "fq_codel" => format!(
            " FQ_CODEL target {} interval {} {} {}",
            words.time("target"),
            words.time("interval"),
            queueing(),
            words.flag("ecn", "ECN", "NoECN")
        ),
        "fq_pie" => format!("  FQ_PIE {}", words.pie(&queueing())),
        name if crate::grammar::is_bare(name) => String::new(),
        name => format!(" {}{}", capital(name), words.all()),
    }
}

/// Returns the name of an algorithm as dummynet prints it, in capitals. The name of a file stays as
/// it is.
pub(super) fn capital(name: &str) -> String {
    match name.contains(':') {
        true => name.to_owned(),
        false => name.to_ascii_uppercase(),
    }
}

struct Words<'a> {
    spec: &'a Spec,
    is_compat: bool,
}

impl Words<'_> {
    fn time(&self, name: &str) -> String {
        match self.spec.value(name) {
            Some(Value::Span(span)) => time(span, self.is_compat),
            _ => "0".to_string(),
        }
    }

    fn count(&self, name: &str) -> String {
        self.spec
            .value(name)
            .map_or("0".to_string(), |v| v.to_string())
    }

    fn ratio(&self, name: &str) -> f64 {
        match self.spec.value(name) {
            Some(Value::Ratio(ratio)) => ratio.as_f64(),
            _ => 0.0,
        }
    }

    fn flag(&self, name: &str, on: &'static str, off: &'static str) -> &'static str {
        if self.spec.value(name) == Some(Value::Flag(true)) {
            on
        } else {
            off
        }
    }

    /// Writes PIE's parameters; the flow-queued form has its queueing parameters after `max_ecnth`.
    fn pie(&self, queueing: &str) -> String {
        let mut text = format!(
            "target {} tupdate {} alpha {} beta {} max_burst {} max_ecnth {}",
            self.time("target"),
            self.time("tupdate"),
            general(self.ratio("alpha")),
            general(self.ratio("beta")),
            self.time("max_burst"),
            general((self.ratio("max_ecnth") * 1000.0).round() / 1000.0),
        );
        if !queueing.is_empty() {
            let _ = write!(text, " {queueing}");
        }
        let _ = write!(
            text,
            " {} {}",
            self.flag("ecn", "ECN", "NoECN"),
            self.flag("capdrop", "CapDrop", "NoCapDrop")
        );
        if self.flag("onoff", "OnOff", "") == "OnOff" {
            text.push_str(" OnOff");
        }
        // As the AQM decides: time stamps by default, except in dummynet's plain PIE.
        let is_dummynets =
            queueing.is_empty() && self.spec.value("variant") == Some(Value::Choice("dummynet"));
        let estimates = self.flag("dre", "DRE", "") == "DRE"
            || is_dummynets && self.flag("ts", "TS", "") != "TS";
        let _ = write!(
            text,
            " {} {}",
            if estimates { "DRE" } else { "TS" },
            self.flag("derand", "Derand", "NoDerand")
        );
        text
    }

    /// Writes all parameters, for algorithms that dummynet lacks.
    fn all(&self) -> String {
        let mut text = String::new();
        let is_plain = self.spec.algorithm.form == Form::Aqm;
        for decl in self.spec.algorithm.params() {
            if is_plain && matches!(decl.name, "limit" | "limit_bytes") {
                continue;
            }
            match self.spec.value(decl.name) {
                Some(Value::Flag(true)) => drop(write!(text, " {}", decl.name)),
                Some(Value::Flag(false)) => drop(write!(text, " no{}", decl.name)),
                Some(Value::Span(span)) if span < Span::MAX => {
                    let _ = write!(text, " {} {}", decl.name, time(span, self.is_compat));
                }
                Some(value) => drop(write!(text, " {} {value}", decl.name)),
                None => {}
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dummynets() {
        let show = |ns| time(Span::from_ns(ns), false);
        // Reference 3.3: 0, us below 1 ms, %gms below 1 s.
        assert_eq!(show(0), "0");
        assert_eq!(show(999_000), "999us");
        assert_eq!(show(5_000_000), "5ms");
        assert_eq!(show(1_500_000), "1.5ms");
        assert_eq!(show(1_000_000_000), "1s");
        assert_eq!(time(Span::from_secs(1), true), "1fs");
    }

    #[test]
    fn numbers_are_those_of_percent_g() {
        // What C's printf("%g") gives.
        for (value, text) in [
            (0.125, "0.125"),
            (1.25, "1.25"),
            (100.0, "100"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456_789.0, "1.23457e+08"),
            (999.9, "999.9"),
        ] {
            assert_eq!(general(value), text);
        }
    }
}
