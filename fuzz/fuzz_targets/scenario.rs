//! Scenarios in TOML: errors have a text, and a scenario that can be read is printed and read again.
#![no_main]

use sluice_scenario::Scenario;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Scenario::parse("x.toml", text, &[]) {
        Ok(variants) => {
            for variant in variants.iter().take(2) {
                let written = variant.scenario.to_toml();
                let read = Scenario::parse_recorded(&written);
                let read = read.unwrap_or_else(|error| panic!("{error}\n{written}"));
                assert_eq!(read.to_toml(), written);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
