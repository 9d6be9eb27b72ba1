//! Signals while a router starts.

use super::*;

/// A router that begins to read its configuration. It has no terminal, and prints nothing before it
/// forwards.
struct Starting {
    child: Child,
    folder: tempfile::TempDir,
    _namespace: Namespace,
}

impl Starting {
    /// `write` makes the file of the configuration.
    fn begin(write: impl FnOnce(&Path)) -> Starting {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("r.conf");
        write(&config);
        let namespace = Namespace::create("middle").unwrap();
        let end = |name, number| VethEnd {
            namespace: &namespace,
            name,
            mac: Mac([2, 0, 0, 0, 0, number]),
        };
        create_veth(end("em0", 1), end("em1", 2)).unwrap();
        let descriptor = namespace.as_fd().as_raw_fd();
        let child = Command::new(SLUICE)
            .args(["router", "em0", "em1", "--netns"])
            .arg(format!("/proc/{}/fd/{descriptor}", std::process::id()))
            .arg("--socket")
            .arg(folder.path().join("s"))
            .arg("--config")
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Starting {
            child,
            folder,
            _namespace: namespace,
        }
    }

    /// Waits until the thread that reads the configuration runs.
    fn until_it_reads(&mut self) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_reading = || {
            let tasks = fs::read_dir(&tasks).unwrap();
            tasks.flatten().any(|task| {
                fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "config\n")
            })
        };
        while !is_reading() {
            assert_eq!(self.child.try_wait().unwrap(), None, "it has ended");
            std::thread::yield_now();
        }
    }

    /// Ends the router by a signal. It must end in order, within 5 s, and without having forwarded.
    fn end(self, signal: Signal) {
        let start = Instant::now();
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let output = self.child.wait_with_output().unwrap();
        let took = start.elapsed();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said, "sluice: ended before it forwarded packets\n");
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(!self.folder.path().join("s").exists());
    }
}

#[test]
fn a_signal_ends_a_router_that_reads_tens_of_thousands_of_lines() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut starting = Starting::begin(|path| {
            let rule = |n: u32| {
                format!(
                    "add {} count tcp from 10.{}.{}.0/24 to any\n",
                    n % 60_000,
                    n >> 8 & 255,
                    n & 255
                )
            };
            fs::write(path, (1..=60_000).map(rule).collect::<String>()).unwrap();
        });
        starting.until_it_reads();
        starting.end(signal);
    }
}

#[test]
fn a_signal_ends_a_router_whose_configuration_never_ends() {
    let mut starting = Starting::begin(|path| {
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    });
    let mut pipe = fs::File::options()
        .write(true)
        .open(starting.folder.path().join("r.conf"))
        .unwrap();
    pipe.write_all(b"pipe 1 config bw 10Mbit/s\n").unwrap();
    starting.until_it_reads();
    starting.end(Signal::TERM);
    drop(pipe);
}

#[test]
fn a_configuration_with_errors_ends_the_start_with_the_status_that_the_service_does_not_try_again()
{
    let starting = Starting::begin(|path| {
        let text = "pipe 1 confg bw 10Mbit/s\nadd 100 pipe 1 ip from any too any\n";
        fs::write(path, text).unwrap();
    });
    let output = starting.child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    // Both lines are named, as `--check` does.
    assert_eq!(
        (output.status.code(), said.lines().count()),
        (Some(65), 2),
        "{said}"
    );
    assert!(
        said.contains("r.conf:1:8: ") && said.contains("r.conf:2:28: "),
        "{said}"
    );
}
