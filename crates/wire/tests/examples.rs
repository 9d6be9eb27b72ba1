//! The program in `examples` runs, and its assertions hold.

#[path = "../examples/flows.rs"]
mod flows;

#[test]
fn the_flows_example_runs() {
    flows::main();
}
