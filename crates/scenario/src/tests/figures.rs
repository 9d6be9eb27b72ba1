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
