//! A queue from a file that fails with `on_error end`: the program ends with a specific status.

use std::fs;

use sluice_recording::{Recording, Status};

use super::{SERVER, World, greet, stderr};

/// A module that fails at its first packet, unless it is stopped there.
const FAILS: &str = "(module (@custom \"sluice\" \"abi 1\")
    (func (export \"create\") (result i32) i32.const 0)
    (func (export \"on_dequeue\") (param i32 i64 i32 i32 i32 i64 i64 i64) (result i32)
        unreachable))";

#[test]
fn an_algorithm_that_fails_ends_the_program_with_a_status_of_its_own() {
    let world = World::new();
    world.serve(80, greet);
    let folder = tempfile::tempdir().unwrap();
    let (module, run) = (folder.path().join("m.wasm"), folder.path().join("run"));
    fs::write(&module, wat::parse_str(FAILS).unwrap()).unwrap();
    let queue = |on_error| {
        let module = module.display();
        format!("--set=down.queue=wasm:{module} on_error {on_error}")
    };
    // Without the error, the program would run for a minute.
    let script = format!("cat </dev/tcp/{}/80; sleep 60", SERVER[0]);
    let report = format!("--report={}", run.display());
    let output = world.bash(&[&queue("end"), &report], &script);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(70), "{said}");
    assert!(said.contains("sluice: the program was ended: `"), "{said}");
    assert!(said.contains("`on_dequeue` of packet"), "{said}");
    assert!(said.contains("queue 0 of `down`"), "{said}");
    // The measurements until then are kept.
    let recording = Recording::open(&run).unwrap();
    assert!(
        matches!(&recording.run().status, Status::Partial { reason, .. } if reason.contains("on_dequeue")),
        "{:?}",
        recording.run().status
    );

    // A queue that is stopped passes the packets, and the program is not disturbed.
    let script = format!("cat </dev/tcp/{}/80", SERVER[0]);
    let output = world.bash(&[&queue("stop")], &script);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("is stopped"), "{said}");
    assert!(said.contains("queue 0 of `down`"), "{said}");
}

#[test]
fn an_algorithm_ends_a_program_behind_a_proxy() {
    let world = World::new();
    world.serve(80, greet);
    let folder = tempfile::tempdir().unwrap();
    let module = folder.path().join("m.wasm");
    fs::write(&module, wat::parse_str(FAILS).unwrap()).unwrap();
    let queue = format!("--set=down.queue=wasm:{} on_error end", module.display());
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}; \
         printf 'GET http://{}/ HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n' >&3; cat <&3; sleep 60",
        SERVER[0]
    );
    let output = world.bash(&["--proxy", &queue], &script);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(70), "{said}");
    assert!(said.contains("sluice: the program was ended: `"), "{said}");
    assert!(said.contains("queue 0 of `down`"), "{said}");
}
