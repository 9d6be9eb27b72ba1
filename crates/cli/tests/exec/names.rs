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

/// The program has no capability to read what its mode forbids, even as root.
#[test]
fn a_mask_of_modes_leaves_the_files_and_folders_readable() {
    let world = World::new();
    let output = world.run_after(
        "mount -t tmpfs none /var/run && mkdir /var/run/nscd; umask 0777",
        "ls /var/run/nscd && grep -c host.sluice /etc/hosts && umask",
    );
    // One line for each address; the mask is the user's.
    assert_eq!(stdout(&output), "2\n0777\n", "{}", stderr(&output));
}

/// As in minimal images of containers.
#[test]
fn a_machine_without_a_file_of_hosts_is_reported() {
    let world = World::new();
    let change = format!("{PRIVATE_ETC}; rm /etc/hosts");
    let output = world.run_after(&change, "true");
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    let expected = "sluice: warning: there is no /etc/hosts: host.sluice is unknown; \
                    `touch /etc/hosts` creates it\n";
    assert_eq!(text, expected);
    let script = format!(
        "set -e; {change}; {} doctor | grep hosts",
        env!("CARGO_BIN_EXE_sluice")
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let output = world.start(&mut command).wait_with_output().unwrap();
    let text = stdout(&output);
    assert!(
        text.contains("no   hosts file: there is no /etc/hosts\n"),
        "{text}"
    );
}

/// Commands of the machine, during the run: after the program has written to /etc/go, and before it can
/// read from /etc/done.
fn meanwhile(commands: &str) -> String {
    format!(
        "mkfifo /etc/go /etc/done; timeout 20 sh -c 'read line </etc/go; {commands}; \
         echo replaced >/etc/done' >/dev/null 2>&1 & :"
    )
}

/// The kernel removes the mount on a file that is renamed away in another mount namespace.
#[test]
fn a_file_that_the_machine_replaces_during_the_run_is_named() {
    let world = World::new();
    let replace = meanwhile("cp /etc/hosts /etc/new; mv /etc/new /etc/hosts");
    let output = world.run_after(
        &format!("{PRIVATE_ETC}; {replace}"),
        "echo go >/etc/go; read line </etc/done; echo $line",
    );
    let text = stderr(&output);
    assert_eq!(stdout(&output), "replaced\n", "{text}");
    assert!(
        text.contains("warning: the machine replaced /etc/hosts during"),
        "{text}"
    );
    let output = world.run_after(PRIVATE_ETC, "true");
    let (status, text) = (output.status.code(), stderr(&output));
    assert_eq!((status, text.as_str()), (Some(0), ""));
}

/// As systemd-resolved does when the machine has a new network connection.
#[test]
fn a_new_file_behind_the_link_of_resolv_conf_is_not_seen() {
    let world = World::new();
    let replace = meanwhile("echo nameserver 127.0.0.54 >/etc/new; mv /etc/new /etc/stub");
    let output = world.run_after(
        &format!(
            "{PRIVATE_ETC}; echo nameserver 127.0.0.53 >/etc/stub; \
             ln -sf stub /etc/resolv.conf; {replace}"
        ),
        "cat /etc/resolv.conf; echo go >/etc/go; read line </etc/done; cat /etc/resolv.conf",
    );
    // The address of `resolver.sluice`, before and afterwards.
    let expected = "nameserver 192.0.0.5\nnameserver 192.0.0.5\n";
    let text = stderr(&output);
    assert_eq!((stdout(&output).as_str(), text.as_str()), (expected, ""));
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
    let change = format!(
        "{PRIVATE_ETC}; cd /mnt/etc; rm -rf ssh; mkdir -p ssh/ssh_config.d; \
         echo 'Include /etc/ssh/ssh_config.d/*.conf' >ssh/ssh_config; \
         echo 'Include further' >ssh/linked; echo 'Compression yes' >ssh/further; \
         ln -s ../linked ssh/ssh_config.d/20-a.conf; cd /"
    );
    let script = "cd /etc/ssh; stat -L -c %u ssh_config.d/20-a.conf further; cat further; \
                  if command -v ssh >/dev/null; then ssh -G host.sluice | grep -i ^compression; \
                  else echo compression yes; fi";
    let runner = "setpriv --reuid 1 --regid 1 --clear-groups";
    let output = world.run_as(runner, copy.to_str().unwrap(), &change, script);
    let expected = "1\n1\nCompression yes\ncompression yes\n";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

/// As in Docker, where `/etc/hosts` has the container's address.
#[test]
fn the_machine_s_own_name_leads_to_the_program() {
    let world = World::new();
    let change = format!("{PRIVATE_ETC}; echo {} $(uname -n) >/etc/hosts", MACHINE[0]);
    let output = world.run_after(&change, "getent ahostsv4 $(uname -n)");
    // The program's address, of the prefix 192.0.0.0/29 that RFC 7335 reserves.
    let text = stdout(&output);
    assert_eq!(
        text.split_whitespace().next(),
        Some("192.0.0.2"),
        "{text}{}",
        stderr(&output)
    );
}

/// Mounts a copy of /etc on /etc.
const PRIVATE_ETC: &str = "umask 022; mount -t tmpfs -o mode=755 none /mnt; cp -a /etc /mnt/etc; \
                           mount --bind /mnt/etc /etc";
