//! Connections without traffic.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::process::Stdio;

use super::{SERVER, World};

#[test]
fn an_idle_connection_outside_is_probed() {
    let world = World::new();
    world.serve(80, |mut stream| {
        let _ = stream.write_all(b"hello\n");
        let _ = stream.read(&mut [0]);
    });
    let script = format!(
        "exec 3<>/dev/tcp/{}/80; read line <&3; echo $line; read line; true",
        SERVER[0]
    );
    let mut command = world.exec(&[], &["timeout", "20", "bash", "-c", &script]);
    let mut child = world.start(command.stdin(Stdio::piped()));
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");
    let table = || std::fs::read_to_string("/proc/thread-self/net/tcp");
    let table = world.machine.enter(table).unwrap().unwrap();
    // Documentation/networking/proc_net_tcp.rst: the third word is the other end, the sixth the pending
    // timer, of which 02 is that of the probes.
    let server: Ipv4Addr = SERVER[0].parse().unwrap();
    let server = format!("{:08X}:0050", u32::from_ne_bytes(server.octets()));
    let timers = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[2] == server).then(|| words[5][..2].to_owned())
    });
    assert_eq!(timers.collect::<Vec<_>>(), ["02"], "{table}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
