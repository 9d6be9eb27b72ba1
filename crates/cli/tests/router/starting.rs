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
        let config = config.to_str().unwrap().to_owned();
        Starting::begin_with(folder, &["em0", "em1", "--config", &config])
    }

    /// Starts a router with these words.
    fn begin_with(folder: tempfile::TempDir, words: &[&str]) -> Starting {
        let namespace = Namespace::create("middle").unwrap();
        let end = |name, number| VethEnd {
            namespace: &namespace,
            name,
            mac: Mac([2, 0, 0, 0, 0, number]),
        };
        create_veth(end("em0", 1), end("em1", 2)).unwrap();
        let descriptor = namespace.as_fd().as_raw_fd();
        let child = Command::new(SLUICE)
            .args(["router", "--netns"])
            .arg(format!("/proc/{}/fd/{descriptor}", std::process::id()))
            .arg("--socket")
            .arg(folder.path().join("s"))
            .args(words)
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

    /// Waits until one of its threads waits for a file to be open.
    fn until_it_waits_for_a_file(&mut self) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let number = nix::libc::SYS_openat.to_string();
        let is_waiting = || {
            let tasks = fs::read_dir(&tasks).unwrap();
            // The number of a system call that blocks is the first word (proc_pid_syscall(5)).
            tasks.flatten().any(|task| {
                let call = fs::read_to_string(task.path().join("syscall"));
                call.is_ok_and(|call| call.split(' ').next() == Some(&*number))
            })
        };
        let (begin, mut looks) = (Instant::now(), 0);
        // A file that answers is open at the next look.
        while looks < 10 {
            looks = if is_waiting() { looks + 1 } else { 0 };
            assert_eq!(self.child.try_wait().unwrap(), None, "it has ended");
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "it waits for no file"
            );
            std::thread::sleep(Duration::from_millis(10));
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

/// Nobody opens the other end, so the start cannot go on. The process ends all the same.
#[test]
fn a_signal_ends_a_start_that_waits_for_the_reader_of_a_pipe() {
    let starts = [
        (["em0", "em1", "--accept", "--flow-log"], ""),
        (["em1", "--accept", "--port", "packet"], "pcap::"),
    ];
    for (words, kind) in starts {
        for signal in [Signal::TERM, Signal::INT] {
            let folder = tempfile::tempdir().unwrap();
            let pipe = folder.path().join("pipe");
            let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
            assert!(made.success());
            let pipe = format!("{kind}{}", pipe.display());
            let mut starting = Starting::begin_with(folder, &[&words[..], &[&*pipe]].concat());
            starting.until_it_waits_for_a_file();
            let start = Instant::now();
            kill_process(Pid::from_child(&starting.child), signal).unwrap();
            let output = starting.child.wait_with_output().unwrap();
            let took = start.elapsed();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(70), "{said}");
            assert_eq!(
                said,
                "sluice: the router did not end in 4.2s; the process is ended\n"
            );
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }
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
