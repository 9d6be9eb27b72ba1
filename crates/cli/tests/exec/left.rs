//! What a program leaves behind in further namespaces.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;

use super::*;

/// The programs run as an ordinary user, who may create namespaces inside.
#[test]
fn what_the_program_leaves_in_further_namespaces_ends_with_it() {
    let world = World::new();
    // The user may have no access to the binary's folder, so the program is copied.
    let folder = tempfile::tempdir().unwrap();
    let open = PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let copy = folder.path().join("sluice");
    std::fs::copy(env!("CARGO_BIN_EXE_sluice"), &copy).unwrap();
    let mark = format!("88{}", std::process::id());
    for (number, inner) in ["unshare -Urn", "\"$0\" exec --"].into_iter().enumerate() {
        let ready = folder.path().join(number.to_string());
        let ready = ready.display();
        // The program ends while the inner one runs.
        let script = format!(
            "{inner} sh -c 'setsid sleep {mark} & echo >{ready}; exec sleep {mark}' & \
             until [ -e {ready} ]; do sleep 0.02; done; exit 3"
        );
        let mut command = Command::new(&copy);
        command.args(["exec", "--", "sh", "-c", &script]).arg(&copy);
        command.uid(1000).gid(1000).current_dir("/");
        let mut child = world.start(&mut command);
        // Its output stays open while one of them runs.
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(3), "{inner}");
        wait_for("everything ends", || marked(&mark).is_empty());
    }
}
