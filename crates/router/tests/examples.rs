//! The program in `examples` runs, and its assertions hold.

#[path = "../examples/own_router.rs"]
mod own_router;

#[test]
fn the_own_router_example_runs() {
    own_router::main();
}
