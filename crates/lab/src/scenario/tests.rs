use super::*;

#[test]
fn the_first_scenario_has_three_variants() {
    let path = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scenarios/first-light.toml"
    ));
    let variants = Scenario::load(path, &[]).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<&str> = variants.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["fifo", "codel", "fq_codel"]);
}
