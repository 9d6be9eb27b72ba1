//! The programs in `examples` run, and their assertions hold.

#[path = "../examples/own_aqm.rs"]
mod own_aqm;
#[path = "../examples/pipe.rs"]
mod pipe;
#[path = "../examples/queue.rs"]
mod queue;

#[test]
fn the_queue_example_runs() {
    queue::main();
}

#[test]
fn the_pipe_example_runs() {
    pipe::main();
}

#[test]
fn the_own_aqm_example_runs() {
    own_aqm::main();
}
