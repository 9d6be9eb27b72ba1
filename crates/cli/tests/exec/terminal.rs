//! A program behind a link on a terminal: a shell stops, continues and interrupts it, and the end of
//! the terminal ends it.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use super::{marked, own, wait_for};

/// An interactive bash on its own terminal, which script(1) opens.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    /// Everything that the terminal has shown.
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    fn new(server: &str) -> Terminal {
        // A test that runs in the background ignores SIGINT, and a shell leaves ignored signals as
        // they are.
        let shell = "env --default-signal=INT bash --norc --noprofile -i";
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", shell, "/dev/null"]);
        command
            .env("PS1", "")
            .env("SLUICE", env!("CARGO_BIN_EXE_sluice"))
            .env("SERVER", server);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (keys, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                shown.lock().unwrap().push_str(&text);
            }
        });
        Terminal {
            child,
            keys,
            screen,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the terminal has shown `text`.
    fn expect(&self, text: &str) {
        wait_for(text, || self.screen.lock().unwrap().contains(text));
    }
}

impl Drop for Terminal {
    /// Closes the terminal, even of a test that fails: otherwise its shell would remain.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_shell_stops_continues_and_interrupts_the_program() {
    let mut terminal = Terminal::new("");
    // The program reports whether its input is a terminal, and reads from it. The words are
    // computed, so that the echo of the command does not contain them.
    terminal.press(
        "$SLUICE exec --rtt 10ms -- bash -c \
         'test -t 0 && echo on-$((40+2)); read x; echo got-$x; exec sleep 600'\n",
    );
    terminal.expect("on-42");
    terminal.press("\x1a");
    terminal.expect("Stopped");
    terminal.press("jobs; echo status-$((100+$?))\n");
    terminal.expect("status-100");
    terminal.press("fg\n");
    terminal.press("seven\n");
    terminal.expect("got-seven");
    terminal.press("\x03");
    // 128 and the number of SIGINT.
    terminal.press("echo ended-$(($?+0))\n");
    terminal.expect("ended-130");
    terminal.press("exit 7\n");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(7));
}

#[test]
fn an_interrupt_for_the_program_leaves_the_server_alone() {
    let mut terminal = Terminal::new(&format!("exec {}", own("server").join(" ")));
    terminal.press(
        "$SLUICE exec --server \"$SERVER\" -- bash -c \
         'trap \"exec cat </dev/tcp/server.sluice/80\" INT; echo on-$((40+2)); while read x; do :; done'\n",
    );
    terminal.expect("on-42");
    terminal.press("\x03");
    terminal.expect("hello");
}

#[test]
fn the_end_of_the_terminal_ends_the_program() {
    // Without the link, and with it: both wait for the program in the same way.
    for (number, how) in ["--proxy", "--rtt 10ms"].iter().enumerate() {
        let mark = format!("89{}{number}", std::process::id());
        // script(1) makes Sluice the leader of the terminal's session, as `ssh -t` does. The program
        // must not inherit that SIGHUP is ignored, as under nohup.
        let words = format!(
            "exec env --default-signal=HUP {} exec {how} -- sleep {mark}",
            env!("CARGO_BIN_EXE_sluice")
        );
        let mut command = Command::new("script");
        command.args(["-q", "-c", &words, "/dev/null"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut terminal = command.spawn().unwrap();
        let is_program = |path: &PathBuf| {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            name == "sleep\n"
        };
        wait_for("the program starts", || {
            marked(&mark).iter().any(is_program)
        });
        // The kernel hangs up when nobody holds the terminal's other side.
        kill_process(Pid::from_child(&terminal), Signal::KILL).unwrap();
        terminal.wait().unwrap();
        wait_for(how, || marked(&mark).is_empty());
    }
}
