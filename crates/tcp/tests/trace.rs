//! A lossy transfer, segment by segment.

mod common;

use common::{Fate, Line, secs, transfer};
use sluice_core::Span;
use sluice_tcp::{Config, Flags, Segment, cc};

/// 24 segments of 1000 bytes by Reno with an RTT of 100 ms; the third and the fifth are lost. Time
/// in ms, sequence numbers from the first byte. The receiver acknowledges every second segment from
/// the start, and segments beyond a gap at once.
const EXPECTED: &str = "
  0 -> SYN                               | handshake: one RTT
 50 <- SYN ack 0                         |
100 -> data 0 ack 0                      | IW 10 (RFC 6928)
100 -> data 1000 ack 0                   |
100 -> data 2000 ack 0 LOST              |
100 -> data 3000 ack 0                   |
100 -> data 4000 ack 0 LOST              |
100 -> data 5000 ack 0                   |
100 -> data 6000 ack 0                   |
100 -> data 7000 ack 0                   |
100 -> data 8000 ack 0                   |
100 -> data 9000 ack 0                   |
150 <- FIN ack 1000                      | the server has nothing to send: FIN takes the first ACK along
150 <- ack 2000                          | the second segment ends a super-packet (PSH)
150 <- ack 2000 sack 3000-4000           | a gap is acknowledged at once (RFC 5681 4.2)
150 <- ack 2000 sack 5000-6000 3000-4000 | the latest block first (RFC 2018 4)
150 <- ack 2000 sack 5000-7000 3000-4000 |
150 <- ack 2000 sack 5000-8000 3000-4000 |
150 <- ack 2000 sack 5000-9000 3000-4000 |
150 <- ack 2000 sack 5000-10000 3000-4000|
200 -> data 10000 ack 1                  | ack 1000: slow start, cwnd 11, pipe 9: two segments
200 -> data 11000 ack 1                  |
200 -> data 12000 ack 1                  | ack 2000: cwnd 12, pipe 10: two
200 -> data 13000 ack 1                  |
200 -> data 14000 ack 1                  | first SACKed: one could leave (RFC 3042) but waits to be two; second SACKed: pipe 10: two
200 -> data 15000 ack 1                  |
200 -> data 2000 ack 1                   | third SACKed: 2000 and 4000 are lost (RFC 8985 6.2). ssthresh = 12/2 = 6; PRR: pipe 9, ceil(1 * 6/12) = 1
200 -> data 4000 ack 1                   | fifth SACKed: ceil(3 * 6/12) - 1 = 1 (RFC 9937 6.2); nothing for the fourth and the sixth
250 <- ack 2000 sack 5000-11000 3000-4000|
250 <- ack 2000 sack 5000-12000 3000-4000|
250 <- ack 2000 sack 5000-13000 3000-4000|
250 <- ack 2000 sack 5000-14000 3000-4000|
250 <- ack 2000 sack 5000-15000 3000-4000|
250 <- ack 2000 sack 5000-16000 3000-4000|
250 <- ack 4000 sack 5000-16000          | the first hole is filled
250 <- ack 16000                         | the second hole is filled
300 -> data 16000 ack 1                  | SACK of 10000: ceil(5 * 6/12) - 2 = 1
300 -> data 17000 ack 1                  | SACK of 13000, after two with 6 * 6/12 - 3 = 0 and a pipe of 6: pipe 5 is below ssthresh, which it may reach
300 -> data 18000 ack 1                  | SACK of 14000: one for one
300 -> data 19000 ack 1                  | SACK of 15000
300 -> data 20000 ack 1                  | ack 4000
300 -> data 21000 ack 1                  | ack 16000 ends the recovery: cwnd = ssthresh = 6, pipe 5: one
350 <- ack 18000                         | every second segment
350 <- ack 20000                         |
350 <- ack 22000                         |
400 -> data 22000 ack 1                  | ack 18000: cwnd 6, pipe 4: two
400 -> FIN data 23000 ack 1              | the last segment, with FIN
450 <- ack 24001                         | FIN counts one
";

fn describe(line: &Line) -> String {
    let s = &line.segment;
    // Numbers count from the first byte; SYN has the number before it.
    let number = |wire: u32| wire.wrapping_sub(1);
    let mut words = vec![
        (line.at.as_ns() / 1_000_000).to_string(),
        if line.to_server { "->" } else { "<-" }.to_string(),
    ];
    for (flag, name) in [(Flags::SYN, "SYN"), (Flags::FIN, "FIN")] {
        if s.flags.has(flag) {
            words.push(name.to_string());
        }
    }
    if s.len > 0 {
        words.push(format!("data {}", number(s.seq)));
    }
    if s.flags.has(Flags::ACK) {
        words.push(format!("ack {}", number(s.ack)));
    }
    for (i, block) in s.sacks().iter().enumerate() {
        let prefix = if i == 0 { "sack " } else { "" };
        words.push(format!(
            "{prefix}{}-{}",
            number(block.start),
            number(block.end)
        ));
    }
    if line.fate == Fate::Drop {
        words.push("LOST".to_string());
    }
    words.join(" ")
}

#[test]
fn a_lossy_transfer_is_explained_line_by_line() {
    let config = Config {
        mss: 1000,
        congestion_control: cc::find("reno").unwrap(),
        quick_acks: 0,
        sack_delay: Span::ZERO,
        ..Config::default()
    };
    let mut count = 0;
    let judge = |up: bool, s: &Segment| {
        count += u32::from(up && s.len > 0);
        if up && s.len > 0 && (count == 3 || count == 5) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    };
    let mut net = transfer(&config, 24_000, Span::from_ms(50), judge);
    net.trace = Some(Vec::new());
    assert!(net.run(secs(10)));
    let seen: Vec<String> = net.trace.iter().flatten().map(describe).collect();
    let expected: Vec<&str> = EXPECTED
        .trim_matches('\n')
        .lines()
        .map(|line| line.split('|').next().unwrap_or("").trim())
        .collect();
    assert_eq!(seen, expected);
}
