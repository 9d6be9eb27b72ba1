//! The files that a program sees in place of the machine's.

use super::*;

impl World {
    /// Runs `sluice exec` with a shell script, after another one, as root, has changed the machine's
    /// files in a mount namespace.
    fn run_after(&self, change: &str, script: &str) -> Output {
        let change = format!("set -e; {change}; exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &change, "sh"]);
        command.args([env!("CARGO_BIN_EXE_sluice"), "exec", "--"]);
        command.args(["timeout", "20", "sh", "-c", script]);
        self.start(&mut command).wait_with_output().unwrap()
    }
}

/// glibc would ask the cache before it reads /etc/nsswitch.conf.
#[test]
fn the_socket_of_a_name_service_cache_is_hidden() {
    let world = World::new();
    let output = world.run_after(
        "mount -t tmpfs none /var/run && mkdir /var/run/nscd && touch /var/run/nscd/socket",
        "ls -A /var/run/nscd; getent hosts host.sluice >/dev/null && echo resolved",
    );
    assert_eq!(stdout(&output), "resolved\n", "{}", stderr(&output));
    assert!(output.status.success(), "{}", stderr(&output));
}
