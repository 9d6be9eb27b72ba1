//! The program in `examples` that measures nothing runs, and its assertions hold.

#[path = "../examples/forward.rs"]
mod forward;

#[test]
fn the_forward_example_runs() {
    forward::main();
}
