//! `sluice top` on a terminal.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::*;

/// The sequences of xterm that enter and leave the second screen.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

#[test]
fn a_signal_that_ends_top_leaves_the_terminal_as_it_was() {
    let running = Running::start(Some("pipe 1 config bw 8Mbit/s\n"), &[]);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
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
        let mut near = File::from(near);
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
