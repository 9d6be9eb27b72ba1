//! `sluice top`, and a router, on a terminal.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::fail_open::Killed;
use super::service::Held;
use super::*;

/// The sequences of xterm that enter and leave the second screen.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// Returns the ends of a terminal: that of the person before it, and that of a program.
fn terminal() -> (File, File) {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap();
    let mut options = File::options();
    options.read(true).write(true);
    let far = options.open(name.to_str().unwrap()).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&far, size).unwrap();
    (File::from(near), far)
}

/// The status line asks the loop once a second, and does not wait for the answer, whatever holds the loop.
#[test]
fn a_router_on_a_terminal_outlives_a_loop_that_does_not_answer() {
    let namespace = Namespace::create("middle").unwrap();
    let end = |name, number| VethEnd {
        namespace: &namespace,
        name,
        mac: Mac([2, 0, 0, 0, 0, number]),
    };
    create_veth(end("em0", 1), end("em1", 2)).unwrap();
    let descriptor = namespace.as_fd().as_raw_fd();
    let folder = tempfile::tempdir().unwrap();
    let (mut near, far) = terminal();
    let router = Command::new(SLUICE)
        .args(["router", "em0", "em1", "--accept", "--netns"])
        .arg(format!("/proc/{}/fd/{descriptor}", std::process::id()))
        .arg("--socket")
        .arg(folder.path().join("s"))
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(far))
        .spawn()
        .unwrap();
    let mut router = Killed(router);
    let shown = Arc::new(Mutex::new(Vec::<u8>::new()));
    let seen = Arc::clone(&shown);
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = near.read(&mut piece) {
            seen.lock().unwrap().extend(&piece[..length]);
        }
    });
    let until_shown = |router: &mut Killed, what: &str| {
        let start = Instant::now();
        loop {
            let text = text(&shown.lock().unwrap());
            if text.contains(what) {
                break;
            }
            assert_eq!(router.0.try_wait().unwrap(), None, "{text}");
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(20), "no `{what}`: {text}");
            thread::sleep(Duration::from_millis(20));
        }
    };
    until_shown(&mut router, "Ctrl-C ends it");
    let held = Held::hold(router.0.id(), "router");
    until_shown(&mut router, "the packet loop has not answered for 2 s");
    shown.lock().unwrap().clear();
    drop(held);
    until_shown(&mut router, "Mbit/s  dropped 0");
    router.signal(Signal::TERM);
    assert!(router.0.wait().unwrap().success());
}

#[test]
fn a_signal_that_ends_top_leaves_the_terminal_as_it_was() {
    let running = Running::start(Some("pipe 1 config bw 8Mbit/s\n"), &[]);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let (mut near, far) = terminal();
        let has_lines = || {
            let modes = tcgetattr(&far).unwrap().local_modes;
            modes.contains(LocalModes::ICANON | LocalModes::ECHO)
        };
        assert!(has_lines());

        let end = || Stdio::from(far.try_clone().unwrap());
        let mut top = Command::new(SLUICE)
            .arg("top")
            .env("SLUICE_SOCKET", running.path("s"))
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        // What the terminal shows, until nobody has it open any more.
        let shown = thread::spawn(move || {
            let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
            while let Ok(length @ 1..) = near.read(&mut piece) {
                shown.extend(&piece[..length]);
            }
            String::from_utf8_lossy(&shown).into_owned()
        });
        let start = Instant::now();
        while has_lines() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "top does not begin"
            );
            thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_child(&top), signal).unwrap();
        let status = top.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
        assert!(has_lines(), "after {signal:?}");
        drop(far);
        let shown = shown.join().unwrap();
        let places = (shown.rfind(ENTER), shown.rfind(LEAVE));
        assert!(places.0.is_some() && places.0 < places.1, "{shown:?}");
    }
    running.end();
}
