//! The files that a program sees in place of the machine's.

use super::*;

impl World {
    /// Runs `sluice exec` with a shell script, after another one, as root, has changed the machine's
    /// files in a mount namespace.
    fn run_after(&self, change: &str, script: &str) -> Output {
        self.run_as("", env!("CARGO_BIN_EXE_sluice"), change, script)
    }

    /// Does the same with another copy of `sluice`, which `runner` starts.
    fn run_as(&self, runner: &str, sluice: &str, change: &str, script: &str) -> Output {
        let change = format!("set -e; {change}; exec {runner} \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &change, "sh", sluice, "exec", "--"]);
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

/// OpenSSH refuses an included file that belongs neither to root nor to the user (readconf.c,
/// `read_config_file_depth`), and root's files belong to another user in a user's namespace.
#[test]
fn what_the_configuration_of_ssh_includes_belongs_to_an_ordinary_user() {
    let world = World::new();
    // The user may have no access to the binary's folder, so the program is copied.
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let copy = folder.path().join("sluice");
    std::fs::copy(env!("CARGO_BIN_EXE_sluice"), &copy).unwrap();
    // A copy of /etc, as the machine may have no /etc/ssh. The user is `daemon`.
    let change = "umask 022; mount -t tmpfs -o mode=755 none /mnt; cp -a /etc /mnt/etc; cd /mnt/etc; \
                  rm -rf ssh; mkdir -p ssh/ssh_config.d; \
                  echo 'Include /etc/ssh/ssh_config.d/*.conf' >ssh/ssh_config; \
                  echo 'Include further' >ssh/linked; echo 'Compression yes' >ssh/further; \
                  ln -s ../linked ssh/ssh_config.d/20-a.conf; mount --bind /mnt/etc /etc; cd /";
    let script = "cd /etc/ssh; stat -L -c %u ssh_config.d/20-a.conf further; cat further; \
                  if command -v ssh >/dev/null; then ssh -G host.sluice | grep -i ^compression; \
                  else echo compression yes; fi";
    let runner = "setpriv --reuid 1 --regid 1 --clear-groups";
    let output = world.run_as(runner, copy.to_str().unwrap(), change, script);
    let expected = "1\n1\nCompression yes\ncompression yes\n";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}
