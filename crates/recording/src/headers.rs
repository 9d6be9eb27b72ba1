//! Converts TCP headers to rows of `headers.parquet` and back.
//!
//! Sequence numbers of interleaved connections are 32 random bits per row. A difference from the
//! number that is expected next is most often 0, and the same acknowledgement is repeated in every
//! segment of a sender. So a row holds differences, per connection and end, and takes two to three
//! bytes in the file instead of fifteen.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::rows::Header;

/// A TCP header. Payload is only a length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpHeader {
    /// Number of the connection within its flow, from 1.
    pub connection: u32,
    /// The control bits: from FIN, the lowest, to AE.
    pub flags: u16,
    /// Payload bytes.
    pub payload: u32,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number; valid with the flag ACK.
    pub ack: u32,
    /// Receive window, not scaled.
    pub window: u16,
    /// The age of the timestamp that it echoes, in ticks of a millisecond.
    pub echo_age: Option<u32>,
    /// Maximum segment size and window scale of a SYN.
    pub syn: Option<(u16, u8)>,
    /// The SACK blocks, start and end, of which the first `sack_count` are valid.
    pub sack: [(u32, u32); MAX_SACK_BLOCKS],
    /// The number of SACK blocks.
    pub sack_count: u8,
}

/// SACK blocks beside timestamps (RFC 2018 section 3: 40 bytes of options).
pub const MAX_SACK_BLOCKS: usize = 3;
/// The flag for the end of the data.
pub const FIN: u16 = 1;
/// The flag that opens a connection.
pub const SYN: u16 = 2;
/// The flag of a valid acknowledgement number.
pub const ACK: u16 = 16;

impl TcpHeader {
    /// Returns the valid SACK blocks.
    pub fn sacks(&self) -> &[(u32, u32)] {
        &self.sack[..usize::from(self.sack_count).min(MAX_SACK_BLOCKS)]
    }

    /// The sequence number after this segment.
    fn end(&self) -> u32 {
        let bits = u32::from(self.flags & FIN != 0) + u32::from(self.flags & SYN != 0);
        self.seq.wrapping_add(self.payload).wrapping_add(bits)
    }
}

/// Converts the headers of a run, in the order in which they were sent.
#[derive(Debug, Default)]
pub struct HeaderCoder {
    /// The state of each end, by flow, connection and end.
    ends: BTreeMap<(u32, u32, bool), End>,
}

/// The numbers of one end of a connection so far.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// The sequence number after the highest one that it has used.
    next: u32,
    acked: u32,
    has_sent: bool,
}

impl End {
    fn advance(&mut self, header: &TcpHeader) {
        let end = header.end();
        // RFC 9293 section 3.4: numbers are compared within half of their space.
        if !self.has_sent || (end.wrapping_sub(self.next) as i32) > 0 {
            self.next = end;
        }
        if header.flags & ACK != 0 {
            self.acked = header.ack;
        }
        self.has_sent = true;
    }
}

impl HeaderCoder {
    /// Creates a coder that has seen no connection.
    pub fn new() -> Self {
        HeaderCoder::default()
    }

    /// Returns the row of a segment.
    pub fn encode(
        &mut self,
        packet: u64,
        flow: u32,
        is_from_client: bool,
        tcp: &TcpHeader,
    ) -> Header {
        let key = (flow, tcp.connection, is_from_client);
        let end = self.ends.entry(key).or_default();
        let jump = match end.has_sent {
            true => i64::from(tcp.seq.wrapping_sub(end.next) as i32),
            false => i64::from(tcp.seq),
        };
        let has_ack = tcp.flags & ACK != 0;
        let row = Header {
            connection: Some(tcp.connection),
            flags: Some(u32::from(tcp.flags)),
            payload: Some(tcp.payload),
            jump: Some(jump),
            acked: has_ack.then(|| tcp.ack.wrapping_sub(end.acked)),
            window: Some(u32::from(tcp.window)),
            echo_age: tcp.echo_age,
            sack: (tcp.sack_count > 0).then(|| Cow::Owned(sack_words(tcp))),
            mss: tcp.syn.map(|(mss, _)| u32::from(mss)),
            window_scale: tcp.syn.map(|(_, scale)| u32::from(scale)),
            ..Header::empty(packet, flow, is_from_client)
        };
        end.advance(tcp);
        row
    }

    /// Returns the segment of a row; `None` if the row is of another protocol, or its cells
    /// contradict each other.
    pub fn decode(&mut self, row: &Header) -> Option<TcpHeader> {
        let connection = row.connection?;
        let key = (row.flow, connection, row.is_from_client);
        let end = self.ends.entry(key).or_default();
        let mut tcp = TcpHeader {
            connection,
            flags: row.flags?.try_into().ok()?,
            payload: row.payload?,
            seq: end.next.wrapping_add(row.jump? as u32),
            ack: row.acked.map_or(0, |acked| end.acked.wrapping_add(acked)),
            window: row.window?.try_into().ok()?,
            echo_age: row.echo_age,
            syn: match (row.mss, row.window_scale) {
                (Some(mss), Some(scale)) => Some((mss.try_into().ok()?, scale.try_into().ok()?)),
                _ => None,
            },
            ..TcpHeader::default()
        };
        if let Some(words) = &row.sack {
            read_sack(words, &mut tcp)?;
        }
        end.advance(&tcp);
        Some(tcp)
    }
}

impl Header {
    /// Creates the row of a packet without any field of its header.
    pub const fn empty(packet: u64, flow: u32, is_from_client: bool) -> Header {
        Header {
            packet,
            flow,
            is_from_client,
            probe: None,
            connection: None,
            flags: None,
            payload: None,
            jump: None,
            acked: None,
            window: None,
            echo_age: None,
            sack: None,
            mss: None,
            window_scale: None,
        }
    }
}

fn sack_words(tcp: &TcpHeader) -> String {
    let relative = |number: u32| number.wrapping_sub(tcp.ack) as i32;
    let mut words = String::new();
    for (start, end) in tcp.sacks() {
        let space = if words.is_empty() { "" } else { " " };
        // Writing into a string does not fail.
        let _ = write!(words, "{space}{}:{}", relative(*start), relative(*end));
    }
    words
}

fn read_sack(words: &str, tcp: &mut TcpHeader) -> Option<()> {
    for word in words.split(' ') {
        let (start, end) = word.split_once(':')?;
        let absolute = |word: &str| {
            let relative: i32 = word.parse().ok()?;
            Some(tcp.ack.wrapping_add(relative as u32))
        };
        let block = (absolute(start)?, absolute(end)?);
        *tcp.sack.get_mut(usize::from(tcp.sack_count))? = block;
        tcp.sack_count += 1;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(seq: u32, payload: u32, ack: u32) -> TcpHeader {
        TcpHeader {
            connection: 1,
            flags: ACK,
            payload,
            seq,
            ack,
            window: 512,
            ..TcpHeader::default()
        }
    }

    /// The numbers wrap between the second and the third segment; the fourth is the second again.
    #[test]
    fn differences_are_small_and_give_the_numbers_back() {
        let first = u32::MAX - 1500;
        let syn = TcpHeader {
            flags: SYN,
            syn: Some((1460, 7)),
            ack: 0,
            ..segment(first, 0, 0)
        };
        let mut sacked = segment(first.wrapping_add(2897), 0, 700);
        sacked.sack[0] = (2148, 3596);
        // RFC 2883 section 4: a duplicate lies before the acknowledgement number.
        sacked.sack[1] = (u32::MAX, 9);
        sacked.sack_count = 2;
        sacked.echo_age = Some(20);
        let sent = [
            syn,
            segment(first + 1, 1448, 500),
            segment(first.wrapping_add(1449), 1448, 700),
            segment(first + 1, 1448, 700),
            sacked,
        ];
        let (mut coder, mut decoder) = (HeaderCoder::new(), HeaderCoder::new());
        let rows: Vec<Header> = (0..)
            .zip(&sent)
            .map(|(n, tcp)| coder.encode(n, 3, true, tcp))
            .collect();
        let jumps: Vec<i64> = rows.iter().filter_map(|row| row.jump).collect();
        assert_eq!(jumps, [i64::from(first), 0, 0, -2896, 0]);
        let acked: Vec<Option<u32>> = rows.iter().map(|row| row.acked).collect();
        assert_eq!(acked, [None, Some(500), Some(200), Some(0), Some(0)]);
        assert_eq!(rows[4].sack.as_deref(), Some("1448:2896 -701:-691"));
        let back: Vec<_> = rows.iter().filter_map(|row| decoder.decode(row)).collect();
        assert_eq!(back, sent);
    }

    #[test]
    fn ends_and_connections_count_for_themselves() {
        let (mut coder, mut decoder) = (HeaderCoder::new(), HeaderCoder::new());
        let mut other = segment(77, 10, 3);
        other.connection = 2;
        let sent = [
            (true, segment(5, 100, 9)),
            (false, segment(9, 0, 105)),
            (true, other),
            (true, segment(105, 1, 9)),
        ];
        for (n, (is_from_client, tcp)) in (0..).zip(sent) {
            let row = coder.encode(n, 0, is_from_client, &tcp);
            assert_eq!(decoder.decode(&row), Some(tcp));
        }
    }

    #[test]
    fn a_damaged_row_has_no_header() {
        let mut row = HeaderCoder::new().encode(0, 0, true, &segment(1, 1, 1));
        row.sack = Some("1:2 3".into());
        assert_eq!(HeaderCoder::new().decode(&row), None);
        assert_eq!(
            HeaderCoder::new().decode(&Header::empty(0, 0, true)),
            None,
            "an echo message"
        );
    }
}
