//! The names of figures in expectations, and whether a run can measure them.

use super::super::*;
use super::errors::errors;
use super::{PLAIN, variants};

/// A scenario with an expectation of `metric`, below the keys of its first flow and other tables.
fn expecting(below: &str, metric: &str) -> String {
    format!("{PLAIN}{below}\n[[expect]]\nmetric = \"{metric}\"\nmin = 0\n")
}

#[test]
fn the_figures_of_further_links_have_the_number_of_the_link() {
    let hop = "[[hop]]\nrate = \"5Mbit/s\"\nrtt = \"2ms\"";
    for name in ["up.packets", "up2.packets", "down2.drops.overflow"] {
        let expect = &variants(&expecting(hop, name), &[])[0].scenario.expect;
        assert_eq!(expect[0].metric.to_string(), name);
    }
    let said = errors(&expecting(hop, "hop.2.up.packets"), &[]);
    assert!(
        said.starts_with("error: `hop` is neither a flow nor a direction nor a metric of the run"),
        "{said}"
    );
    let names = "one of: tcp, up, down, up2, down2, total.goodput, ";
    assert!(said.contains(names), "{said}");
    // There is no third link.
    let said = errors(&expecting(hop, "up3.packets"), &[]);
    assert!(said.ends_with("^^^ did you mean `up` or `up2`?"), "{said}");
    // Without a second link, a flow may have its name.
    let named = expecting("name = \"up2\"", "up2.retransmits");
    let scenario = &variants(&named, &[])[0].scenario;
    assert_eq!(scenario.expect.len(), 1);
    assert!(Scenario::parse_recorded(&scenario.to_toml()).is_ok());
    // A recording is read with the names that an older program accepted.
    assert!(Scenario::parse_recorded(&expecting("", "up3.packets")).is_ok());
}

#[test]
fn an_expectation_of_a_figure_that_no_run_measures_is_refused() {
    assert_eq!(
        errors(
            &expecting("", "tcp.fct").replace("min = 0", "max = \"1s\""),
            &[]
        ),
        "\
error: `tcp.fct` needs a transfer that ends, and `tcp` has no `bytes`
  --> x.toml:12:10
   |
12 | metric = \"tcp.fct\"
   |          ^^^^^^^^^ give the flow a size, such as bytes = \"1MB\""
    );
    assert_eq!(
        errors(&expecting("", "jain"), &[]),
        "\
error: `jain` compares bulk TCP flows of one direction, and there are not two
  --> x.toml:12:10
   |
12 | metric = \"jain\"
   |          ^^^^^^ raise `count` of a flow of type `tcp` without `bytes`, or add one"
    );
    let at_most = |keys: &str, metric: &str| {
        let text = expecting(keys, metric).replace("min = 0", "max = \"1s\"");
        Scenario::parse("x.toml", &text, &[]).map_err(|errors| errors.to_string())
    };
    let size = "bytes = \"1MB\"";
    assert!(at_most(size, "tcp.fct").is_ok());
    let several = format!("{size}\ncount = 2");
    assert!(at_most(&several, "tcp-2.fct").is_ok());
    let repeated = format!("{size}\npause = \"1s\"");
    assert!(at_most(&repeated, "tcp.fct.p50").is_ok());
    let pages = "[[flow]]\ntype = \"web\"\ninterval = \"1s\"";
    assert!(at_most(pages, "web.fct.p95").is_ok());
    for (keys, metric, said) in [
        ("count = 2", "tcp.fct.p95", "no `bytes`"),
        ("count = 2", "tcp-2.fct", "no `bytes`"),
        (
            repeated.as_str(),
            "tcp.fct",
            "a flow with `pause` has several",
        ),
        (
            several.as_str(),
            "tcp.fct",
            "`tcp-1.fct` is that of the first; `tcp.fct.p50` and",
        ),
    ] {
        let error = at_most(keys, metric).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn fairness_is_that_of_two_bulk_flows_of_one_direction() {
    let with = |keys: &str, sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        Scenario::parse("x.toml", &expecting(keys, "jain.min"), &sets).is_ok()
    };
    assert!(with("count = 2", &[]));
    assert!(with("[[flow]]\ntype = \"tcp\"", &[]));
    assert!(!with("[[flow]]\ntype = \"tcp\"\nbytes = \"1MB\"", &[]));
    // One in each direction is compared with nothing.
    assert!(!with("direction = \"both\"", &[]));
    // Of several variants, each to which the expectation applies must have them.
    let matrix = "[matrix]\n\"flow.tcp.count\" = [1, 2]";
    let said = errors(&expecting(matrix, "jain"), &[]);
    assert!(
        said.ends_with("or add one; or name the variants that have it in `variant`"),
        "{said}"
    );
    assert!(with(matrix, &["flow.tcp.count=2"]));
    let text = expecting(matrix, "jain") + "variant = \"count=2\"\n";
    assert_eq!(variants(&text, &[]).len(), 2);
}

#[test]
fn flows_that_an_option_sets_may_lack_what_an_expectation_needs() {
    let pair = expecting("count = 2", "jain");
    let whole = expecting("bytes = \"1MB\"", "tcp.fct").replace("min = 0", "max = \"1s\"");
    for (text, set, runs) in [
        (&pair, "flow.tcp.count=1", 1),
        (&pair, "matrix.flow.tcp.count=[1, 2]", 2),
        (&whole, "flow.tcp.count=2", 1),
    ] {
        // The expectation stays, and fails where the figure is not measured.
        let all = variants(text, &[set]);
        let expected: Vec<usize> = all.iter().map(|v| v.scenario.expect.len()).collect();
        assert_eq!(expected, vec![1; runs], "{set}");
    }
    // No other option can be the cause.
    let said = errors(&expecting("", "jain"), &["seed=7", "link.queue=codel"]);
    assert!(said.starts_with("error: `jain` compares"), "{said}");
}

#[test]
fn a_wrong_matrix_has_no_errors_about_the_flows_that_it_would_have() {
    // Without the axis, which is refused, there is one flow.
    for (axis, told) in [
        (
            "\"flow.tcp.count\" = [2, 2]",
            "two variants are named `count=2`",
        ),
        ("\"flow.tpc.count\" = [2, 3]", "there is no flow `tpc`"),
    ] {
        let said = errors(&expecting(&format!("[matrix]\n{axis}"), "jain"), &[]);
        assert!(said.starts_with(&format!("error: {told}")), "{said}");
        assert_eq!(said.matches("error:").count(), 1, "{said}");
    }
}

#[test]
fn a_recording_may_have_an_expectation_that_was_never_measured() {
    for metric in ["tcp.transfers", "jain"] {
        assert!(Scenario::parse_recorded(&expecting("", metric)).is_ok());
    }
}

#[test]
fn every_type_of_traffic_has_the_figures_of_its_packets_in_the_queues() {
    let types = [
        ("voip", ""),
        ("ping", ""),
        ("rr", ""),
        ("web", "interval = \"1s\"\n"),
        ("udp", "rate = \"1Mbit/s\"\n"),
    ];
    for (name, keys) in types {
        let flow = format!("[[flow]]\ntype = \"{name}\"\n{keys}");
        for figure in [
            "drops",
            "marks",
            "sojourn.p50",
            "sojourn.p95",
            "sojourn.max",
        ] {
            let metric = format!("{name}.{figure}");
            let text = match figure.starts_with("sojourn") {
                true => expecting(&flow, &metric).replace("min = 0", "max = \"1s\""),
                false => expecting(&flow, &metric),
            };
            let expect = &variants(&text, &[])[0].scenario.expect;
            assert_eq!(expect[0].metric.to_string(), metric);
        }
    }
    let rr = expecting("[[flow]]\ntype = \"rr\"", "rr.loss");
    assert_eq!(variants(&rr, &[])[0].scenario.expect.len(), 1);
}
