//! Changed scenario files are read or refused.

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

use sluice_scenario::Scenario;

/// So a failure can be repeated on any machine, and each run can have new inputs.
#[test]
fn inputs_are_those_of_their_seed_and_batch() {
    let corpus = mutate::corpus("scenarios", ".toml");
    let first = mutate::changed(&corpus, 1, 0);
    assert_eq!(first, mutate::changed(&corpus, 1, 0));
    for (seed, batch) in [(1, 1), (2, 0), (2, 1)] {
        assert_ne!(first, mutate::changed(&corpus, seed, batch));
    }
}

#[test]
fn a_changed_file_is_a_scenario_or_an_error_and_a_scenario_can_be_written_and_read() {
    let corpus = mutate::corpus("scenarios", ".toml");
    let none = || ();
    mutate::check("scenario", &corpus, none, |(), input| {
        let text = String::from_utf8_lossy(input);
        match Scenario::parse("x.toml", &text, &[]) {
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
}
