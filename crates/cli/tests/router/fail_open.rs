//! A kernel bridge forwards while no router does (`--fail-open`).

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::sleep;

use super::*;

/// Two hosts, and between them the two interfaces of a router.
struct Site {
    client: Namespace,
    server: Namespace,
    middle: Namespace,
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let namespace = |name| Namespace::create(name).expect("the test may make namespaces");
        let site = Site {
            client: namespace("client"),
            server: namespace("server"),
            middle: namespace("middle"),
            folder: tempfile::tempdir().unwrap(),
        };
        for (number, host, port) in [(1, &site.client, "em0"), (2, &site.server, "em1")] {
            let end = |namespace, name, number| VethEnd {
                namespace,
                name,
                mac: Mac([2, 0, 0, 0, 0, number]),
            };
            let ends = (
                end(host, "eth0", number),
                end(&site.middle, port, number + 10),
            );
            create_veth(ends.0, ends.1).unwrap();
            let mut links = host.links().unwrap();
            links.silence_ipv6("eth0").unwrap();
            links.set_up("eth0", true).unwrap();
            let (own, peer) = ([10, 0, 0, number], [10, 0, 0, 3 - number]);
            links.add_address("eth0", own.into(), 24).unwrap();
            let mac = Mac([2, 0, 0, 0, 0, 3 - number]);
            links.add_neighbour("eth0", peer.into(), mac).unwrap();
            site.middle.links().unwrap().set_up(port, true).unwrap();
        }
        site
    }

    fn command(&self, words: &[&str]) -> Command {
        let descriptor = self.middle.as_fd().as_raw_fd();
        let mut command = Command::new(SLUICE);
        command
            .args(["router", "--accept", "--fail-open", "--netns"])
            .arg(format!("/proc/{}/fd/{descriptor}", std::process::id()))
            .arg("--socket")
            .arg(self.folder.path().join("s"))
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Starts a router and waits until it forwards. Returns it with what it prints from then on.
    fn start(&self, words: &[&str]) -> (Child, BufReader<ChildStderr>, String) {
        let mut child = self.command(words).args(["em0", "em1"]).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut heard = String::new();
        while !heard.contains("sluice: routing packet:em0 - packet:em1") {
            assert!(stderr.read_line(&mut heard).unwrap() > 0, "{heard}");
        }
        (child, stderr, heard)
    }

    /// Returns the bridges of guardians.
    fn bridges(&self) -> Vec<String> {
        let all = self.middle.links().unwrap().interfaces().unwrap();
        let names = all.into_iter().map(|link| link.name);
        names.filter(|name| name.starts_with("slopen-")).collect()
    }

    /// Sends a packet every 10 ms while `work` runs. Returns how many were lost.
    fn lost_during(&self, work: impl FnOnce()) -> u32 {
        let receiver = self.server.enter(|| UdpSocket::bind("10.0.0.2:9").unwrap());
        let sender = self.client.enter(|| UdpSocket::bind("10.0.0.1:9").unwrap());
        let (receiver, sender) = (receiver.unwrap(), sender.unwrap());
        let patience = Some(Duration::from_millis(300));
        receiver.set_read_timeout(patience).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU32::new(0));
        let (is_over, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let sending = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let number = count.fetch_add(1, Ordering::Relaxed);
                sender.send_to(&number.to_ne_bytes(), "10.0.0.2:9").unwrap();
                sleep(Duration::from_millis(10));
            }
        });
        let is_over = Arc::clone(&stop);
        let receiving = std::thread::spawn(move || {
            // Some arrive twice, when router and bridge both forward.
            let mut arrived = std::collections::BTreeSet::new();
            loop {
                let mut number = [0; 4];
                match receiver.recv(&mut number) {
                    Ok(_) => drop(arrived.insert(u32::from_ne_bytes(number))),
                    Err(_) if is_over.load(Ordering::Relaxed) => return arrived.len() as u32,
                    Err(_) => {}
                }
            }
        });
        work();
        stop.store(true, Ordering::Relaxed);
        sending.join().unwrap();
        sent.load(Ordering::Relaxed) - receiving.join().unwrap()
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// 1 s at most on an idle machine: half a second without signs of life, and what it takes to notice.
/// A machine that runs other things may need longer.
const MOST_LOST: u32 = 250;

#[test]
fn a_killed_router_costs_a_second_at_most_and_the_next_one_takes_over_again() {
    let site = Site::new();
    let (mut child, mut stderr, _) = site.start(&[]);
    let lost = site.lost_during(|| {
        sleep(Duration::from_millis(500));
        assert!(site.bridges().is_empty());
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        sleep(Duration::from_secs(4));
    });
    eprintln!("{lost} packets of 10 ms are lost after kill -9");
    assert!(lost < MOST_LOST, "{lost}");
    let standing = site.bridges();
    assert_eq!(standing.len(), 1, "{standing:?}");
    // The guardian ends as well; it had the error output of the router.
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    let expected = format!(
        "sluice: the router has ended: kernel bridge {} connects em0 and em1 (--fail-open)\n",
        standing[0]
    );
    assert!(said.ends_with(&expected), "{said}");

    let (mut child, mut stderr, heard) = site.start(&[]);
    assert!(site.bridges().is_empty());
    let expected = format!("kernel bridge {} is removed", standing[0]);
    assert!(heard.contains(&expected), "{heard}");
    let lost = site.lost_during(|| sleep(Duration::from_secs(1)));
    assert!(lost < MOST_LOST, "{lost}");

    // A normal end leaves nothing, and fails closed.
    signal(&child, Signal::TERM);
    assert!(child.wait().unwrap().success());
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(!said.contains("--fail-open"), "{said}");
    assert!(site.bridges().is_empty());
    assert!(site.lost_during(|| sleep(Duration::from_millis(500))) > 0);
}

#[test]
fn a_hung_router_costs_a_second_at_most_and_takes_over_when_it_continues() {
    let site = Site::new();
    // The guardian needs no more than CAP_NET_ADMIN, also as a user without a name.
    let (mut child, mut stderr, _) = site.start(&["--user", "54321"]);
    let lost = site.lost_during(|| {
        sleep(Duration::from_millis(500));
        signal(&child, Signal::STOP);
        sleep(Duration::from_secs(4));
    });
    eprintln!("{lost} packets of 10 ms are lost after SIGSTOP");
    assert!(lost < MOST_LOST, "{lost}");
    assert_eq!(site.bridges().len(), 1);
    signal(&child, Signal::CONT);
    let start = Instant::now();
    while !site.bridges().is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it is never given back"
        );
        sleep(Duration::from_millis(20));
    }
    assert!(site.lost_during(|| sleep(Duration::from_secs(1))) < MOST_LOST);
    signal(&child, Signal::TERM);
    assert!(child.wait().unwrap().success());
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("the router forwards again"), "{said}");
    assert!(site.bridges().is_empty());
}

#[test]
fn interfaces_that_no_bridge_can_contain_are_refused() {
    let site = Site::new();
    let refused = |words: &[&str]| {
        let output = site.command(words).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let said = refused(&["xdp:em0", "em1"]);
    assert!(
        said.contains("a kernel bridge cannot replace xdp:em0"),
        "{said}"
    );
    let said = refused(&["em0", "absent"]);
    assert!(said.contains("absent"), "{said}");
    let said = refused(&["em0", "lo"]);
    assert!(
        said.contains("\"lo\" cannot be part of a kernel bridge"),
        "{said}"
    );
    site.middle
        .links()
        .unwrap()
        .create_bridge("br0", &["em1"])
        .unwrap();
    let said = refused(&["em0", "em1"]);
    assert!(said.contains("\"em1\" belongs to \"br0\""), "{said}");
    assert!(site.bridges().is_empty());
}
