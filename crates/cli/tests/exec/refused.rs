//! Impossible requests: a clear message, an exit status, and nothing is left behind.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::{World, greet, stderr, stdout};

#[test]
fn wrong_links_and_traces_are_shown_as_they_were_written() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.trace");
    std::fs::write(&empty, "").unwrap();
    let words = folder.path().join("words.trace");
    std::fs::write(&words, "12\nlater\n").unwrap();
    let (empty, words) = (empty.to_str().unwrap(), words.to_str().unwrap());
    for (options, expected) in [
        (
            &["--link", "ltee"][..],
            "--link ltee\n |        ^^^^ did you mean `lte`?",
        ),
        (
            &["--link", "missing.toml"],
            "cannot read the link missing.toml",
        ),
        (&["--trace", "/none"], "--trace /none\n"),
        (&["--trace", "/none"], "No such file or directory"),
        (&["--trace", empty], empty),
        (
            &["--up-trace", words],
            "line 2, column 1: `later` is not a whole number",
        ),
        (&["--up-trace", "/"], "--up-trace /\n"),
    ] {
        let output = world.run(options, &["echo", "started"]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{options:?}: {text}");
        assert!(text.contains(expected), "{options:?}: {text}");
        assert_eq!(stdout(&output), "", "{options:?}");
    }
}

#[test]
fn a_port_of_forward_that_is_in_use_is_named() {
    let world = World::new();
    // `localhost` may lead to either.
    for address in ["127.0.0.1:3000", "[::1]:3000"] {
        let busy = world.machine.enter(|| TcpListener::bind(address));
        let _busy = busy.unwrap().unwrap();
        let output = world.run(&["--forward", "3000"], &["echo", "started"]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{text}");
        let expected = format!("cannot listen on {address} for --forward: Address already in use");
        assert!(text.contains(&expected), "{text}");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn connections_beyond_the_descriptors_are_reset_and_counted() {
    let world = World::new();
    world.serve(80, |mut stream| {
        let _ = stream.write_all(b"hello\n");
        let _ = stream.read(&mut [0]);
    });
    // Six descriptors each; the programs that relay keep some for themselves. With the six limits, each
    // step of a connection is once the first without a descriptor.
    let script = format!(
        "for i in $(seq 100); do exec {{fd}}<>/dev/tcp/{}/80 && read -t 10 line <&$fd && n=$((n + 1)); \
         done 2>/dev/null; echo $n",
        super::SERVER[0]
    );
    let sluice = env!("CARGO_BIN_EXE_sluice");
    for limit in 256..262 {
        let limited = format!("ulimit -n {limit}; exec {sluice} exec -- bash -c '{script}'");
        let mut command = Command::new("sh");
        let child = world.start(command.args(["-c", &limited]));
        let output = child.wait_with_output().unwrap();
        let text = stderr(&output);
        let answered: u32 = stdout(&output).trim().parse().unwrap();
        assert!((20..60).contains(&answered), "{limit}: {answered}: {text}");
        let refused = format!("sluice: warning: {} connections were reset", 100 - answered);
        assert!(text.contains(&refused), "{limit}: {text}");
    }
}

/// A user namespace that allows no further ones, with a process without capabilities in it, as in a
/// container without privileges.
#[test]
fn where_namespaces_are_refused_a_proxy_carries_the_program() {
    let world = World::new();
    world.serve(80, greet);
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}; \
         printf 'CONNECT {}:80 HTTP/1.1\\r\\n\\r\\n' >&3; head -c 200 <&3; id -u",
        super::SERVER[0]
    );
    let mut command = Command::new("unshare");
    command.args(["-Ur", "sh", "-c"]);
    command.arg(
        "echo 0 >/proc/sys/user/max_user_namespaces; \
         exec setpriv --bounding-set=-all --inh-caps=-all \"$0\" exec --rtt 50ms -- \
         timeout 20 bash -c \"$1\"",
    );
    command.arg(env!("CARGO_BIN_EXE_sluice")).arg(&script);
    let output = world.start(&mut command).wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    // Which setting, and what is lost.
    assert!(text.contains("user.max_user_namespaces"), "{text}");
    assert!(text.contains("behind a proxy: UDP, ping"), "{text}");
    let answer = stdout(&output);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer} {text}");
    assert!(answer.contains("hello"), "{answer}");
    // The machine's own setting has not changed: another namespace can be created.
    let again = Command::new("unshare").args(["-Ur", "true"]).status();
    assert!(again.unwrap().success());
}

/// Lets mount(2) fail with EACCES, as Docker's profile for AppArmor does (`deny mount`): a filter of
/// linux/seccomp.h and linux/bpf_common.h that loads the call's number, compares it, and returns
/// SECCOMP_RET_ERRNO with 13, or SECCOMP_RET_ALLOW.
const WITHOUT_MOUNTS: &str = "
import ctypes, os, platform, struct, sys
mount = {'x86_64': 165, 'aarch64': 40}[platform.machine()]
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, mount), (0x06, 0, 0, 0x5000d), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack('HP', len(lines), ctypes.addressof(code)))
prctl = ctypes.CDLL(None).prctl
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
assert prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

/// Namespaces are allowed there, but a program's files cannot be mounted.
#[test]
fn where_mounts_are_refused_a_proxy_carries_the_program_and_doctor_says_so() {
    let world = World::new();
    world.serve(80, greet);
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}; \
         printf 'CONNECT {}:80 HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3",
        super::SERVER[0]
    );
    let run = |words: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", WITHOUT_MOUNTS, env!("CARGO_BIN_EXE_sluice")]);
        let child = world.start(command.args(words));
        child.wait_with_output().unwrap()
    };
    let output = run(&["exec", "--", "timeout", "20", "bash", "-c", &script]);
    let (answer, text) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(answer.contains("hello\n"), "{answer} {text}");
    assert!(text.contains("apparmor=unconfined"), "{text}");
    assert!(text.contains("behind a proxy: UDP, ping"), "{text}");
    let output = run(&["doctor"]);
    let answer = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{answer}");
    assert!(answer.contains("yes  namespaces: "), "{answer}");
    assert!(
        answer.contains("no   mounts: a security module"),
        "{answer}"
    );
    assert!(answer.contains("apparmor=unconfined"), "{answer}");
}

/// A program of `sluice exec` starts `sluice exec` again. A user's has namespaces of its own; root's
/// has no CAP_SETFCAP, without which Linux maps root into no user namespace.
#[test]
fn inside_another_link_a_user_has_namespaces_and_root_a_proxy() {
    let world = World::new();
    world.serve(80, greet);
    // The user may have no access to the binary's folder, so the program is copied.
    let folder = tempfile::tempdir().unwrap();
    let open = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let copy = folder.path().join("sluice");
    std::fs::copy(env!("CARGO_BIN_EXE_sluice"), &copy).unwrap();
    // A proxy answers a request; without one, the bytes are the server's.
    let script = format!(
        "if [ $http_proxy ]; then exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}; \
         printf 'CONNECT {0}:80 HTTP/1.1\\r\\n\\r\\n' >&3; else exec 3</dev/tcp/{0}/80; fi; \
         cat <&3; readlink /proc/self/ns/net",
        super::SERVER[0]
    );
    for user in [1000, 0] {
        let mut command = Command::new(&copy);
        command.args(["exec", "--", "sh", "-c"]);
        command.arg("readlink /proc/self/ns/net; exec \"$0\" exec -- timeout 20 bash -c \"$1\"");
        command.arg(&copy).arg(&script).uid(user).gid(user);
        let output = world.start(&mut command).wait_with_output().unwrap();
        let (answer, text) = (stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(answer.contains("hello\n"), "{answer} {text}");
        let namespaces: Vec<&str> = answer.lines().filter(|l| l.starts_with("net:")).collect();
        let [outer, inner] = namespaces[..] else {
            panic!("{answer}")
        };
        if user == 0 {
            assert!(text.contains("only with CAP_SETFCAP"), "{text}");
            assert!(text.contains("behind a proxy: UDP, ping"), "{text}");
            assert_eq!(outer, inner);
        } else {
            assert_eq!(text, "");
            assert_ne!(outer, inner);
        }
    }
}

/// Docker mounts `/proc/sys` read-only, also where its filter of system calls is off.
#[test]
fn where_settings_cannot_be_changed_the_link_works_and_a_warning_names_what_is_lost() {
    let world = World::new();
    world.serve(80, greet);
    let read_only = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && \
                     exec \"$@\"";
    let run = |options: &[&str], script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", read_only, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_sluice"));
        command.args(["exec", "--rtt", "50ms"]).args(options);
        command.args(["--", "timeout", "20", "bash", "-c", script]);
        world.start(&mut command).wait_with_output().unwrap()
    };
    let script = format!(
        "head -c 6 </dev/tcp/{}/80; head -c 6 </dev/tcp/{}/80; cat /proc/net/if_inet6",
        super::SERVER[0],
        super::SERVER[1]
    );
    let output = run(&["--cc", "reno"], &script);
    let (answer, text) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(answer.starts_with("hello\nhello\n"), "{answer} {text}");
    assert!(text.contains("/proc/sys is read-only"), "{text}");
    assert!(text.contains("systempaths=unconfined"), "{text}");
    // No link-local address, so the interface sends nothing of its own.
    assert!(!answer.contains("fe80"), "{answer}");
    let output = run(&["--cc", "nosuch"], "true");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("nosuch"), "{}", stderr(&output));
}
