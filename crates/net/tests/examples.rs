//! The program in `examples` that is not a measurement runs, and its assertions hold.

#[path = "../examples/forward.rs"]
mod forward;

#[test]
fn the_forward_example_runs() {
    forward::main();
}
