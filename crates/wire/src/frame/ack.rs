//! Pure acknowledgements, for queues that drop redundant ones (CAKE's `ack_filter`).
//!
//! References: RFC 9293 section 3.1 (header, options), RFC 7323 section 3 (timestamps), RFC 2018
//! section 3 (SACK).

use super::view::{Transport, View};
use sluice_core::ack::Ack;

/// Returns what the frame acknowledges, if it is a TCP segment that does nothing else: no payload,
/// no flags but ACK, ECE and CWR, no options but timestamps and SACK.
pub fn pure_ack(view: &View, head: &[u8]) -> Option<Ack> {
    let Transport::Tcp {
        flags, header_len, ..
    } = view.transport
    else {
        return None;
    };
    if view.fault.is_some() || view.fragment.is_some() || flags & ACK == 0 || flags & !ALLOWED != 0
    {
        return None;
    }
    let at = usize::from(view.transport_at);
    let header = head.get(at..at + usize::from(header_len))?;
    let headers = at - usize::from(view.network) + header.len();
    if view.ip_len as usize != headers {
        return None;
    }
    let mut ack = Ack {
        acked: number(header, 8)?,
        ecn_flags: [flags & ECE != 0, flags & CWR != 0],
        ..Ack::default()
    };
    let mut options = header.get(20..)?;
    while let [kind, rest @ ..] = options {
        let length = match *kind {
            END => break,
            NO_OPERATION => {
                options = rest;
                continue;
            }
            _ => usize::from(*rest.first()?),
        };
        let option = options.get(..length).filter(|_| length >= 2)?;
        match (*kind, length) {
            (TIMESTAMPS, 10) => ack.timestamps = Some([number(option, 2)?, number(option, 6)?]),
            (SACK, 10 | 18 | 26 | 34) => {
                for (block, at) in ack.blocks.iter_mut().zip((2..length).step_by(8)) {
                    *block = [number(option, at)?, number(option, at + 4)?];
                }
            }
            _ => return None,
        }
        options = &options[length..];
    }
    Some(ack)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

const ACK: u8 = 16;
const ECE: u8 = 64;
const CWR: u8 = 128;
const ALLOWED: u8 = ACK | ECE | CWR;
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

#[cfg(test)]
mod tests {
    use super::super::{Link, parse_head};
    use super::*;

    /// An IPv4 packet of a TCP segment with these flags, options and payload.
    fn segment(acked: u32, flags: u8, options: &[u8], payload: usize) -> Vec<u8> {
        assert!(
            options.len().is_multiple_of(4),
            "TCP headers are whole words"
        );
        let length = 40 + options.len() + payload;
        let mut bytes = vec![0x45, 0, 0, length as u8, 0, 0, 0x40, 0, 64, 6, 0, 0];
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x13, 0x88, 0x9c, 0x40, 0, 0, 0, 1]);
        bytes.extend(acked.to_be_bytes());
        bytes.extend([
            ((5 + options.len() / 4) as u8) << 4,
            flags,
            1,
            0,
            0,
            0,
            0,
            0,
        ]);
        bytes.extend(options);
        bytes.resize(length, 0xaa);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Ack> {
        pure_ack(&parse_head(bytes, bytes.len(), Link::Ip), bytes)
    }

    #[test]
    fn a_pure_ack_is_read_with_its_options() {
        let mut options = vec![1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 1, 1, 5, 10];
        options.extend(5000u32.to_be_bytes());
        options.extend(6000u32.to_be_bytes());
        let ack = read(&segment(3000, ACK | ECE, &options, 0)).unwrap();
        assert_eq!(ack.acked, 3000);
        assert_eq!(ack.ecn_flags, [true, false]);
        assert_eq!(ack.timestamps, Some([7, 9]));
        assert_eq!(ack.blocks[0], [5000, 6000]);
        assert!(
            read(&segment(4000, ACK | ECE, &options, 0))
                .unwrap()
                .supersedes(&ack)
        );
    }

    #[test]
    fn whatever_says_more_is_no_pure_ack() {
        let (syn, fin, psh) = (2, 1, 8);
        for flags in [syn | ACK, fin | ACK, psh | ACK, 0] {
            assert_eq!(read(&segment(1, flags, &[], 0)), None, "{flags}");
        }
        assert_eq!(read(&segment(1, ACK, &[], 1)), None, "payload");
        assert_eq!(read(&segment(1, ACK, &[2, 4, 5, 0xb4], 0)), None, "MSS");
        assert!(
            read(&segment(1, ACK, &[0, 9, 9, 9], 0)).is_some(),
            "behind the end"
        );
    }

    #[test]
    fn lying_lengths_are_no_pure_ack() {
        for options in [
            [8, 200, 0, 0],
            [8, 0, 0, 0],
            [8, 1, 0, 0],
            [5, 3, 0, 0],
            [1, 1, 1, 8],
        ] {
            assert_eq!(read(&segment(1, ACK, &options, 0)), None, "{options:?}");
        }
        let whole = segment(1, ACK, &[1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9], 0);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None, "{length}");
        }
    }
}
