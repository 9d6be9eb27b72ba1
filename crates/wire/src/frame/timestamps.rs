//! TCP timestamps, from which round-trip times are measured.
//!
//! References: RFC 9293 section 3.1 (header, options), RFC 7323 section 3 (timestamps).

use super::view::{Transport, View};

/// The timestamps of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock (TSval).
    pub value: u32,
    /// The peer's clock that this segment echoes (TSecr), if its ACK flag makes it valid.
    pub echo: Option<u32>,
    /// Whether the peer answers the segment: it has a payload, SYN or FIN.
    pub is_answered: bool,
}

/// Returns the timestamps of a frame, if it is a TCP segment that has them.
pub fn timestamps(view: &View, head: &[u8]) -> Option<Timestamps> {
    let Transport::Tcp {
        flags, header_len, ..
    } = view.transport
    else {
        return None;
    };
    if view.fault.is_some() || view.fragment.is_some() {
        return None;
    }
    let at = usize::from(view.transport_at);
    let header = head.get(at..at + usize::from(header_len))?;
    let headers = at - usize::from(view.network) + header.len();
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
        if *kind == TIMESTAMPS && length == 10 {
            let number = |at| Some(u32::from_be_bytes(*option.get(at..)?.first_chunk()?));
            return Some(Timestamps {
                value: number(2)?,
                echo: number(6).filter(|_| flags & ACK != 0),
                is_answered: view.ip_len as usize > headers || flags & (SYN | FIN) != 0,
            });
        }
        options = &options[length..];
    }
    None
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const TIMESTAMPS: u8 = 8;

#[cfg(test)]
mod tests {
    use super::super::{Link, parse_head};
    use super::*;

    /// An IPv4 packet of a TCP segment with these flags, options and payload.
    fn read(flags: u8, options: &[u8], payload: usize) -> Option<Timestamps> {
        assert!(
            options.len().is_multiple_of(4),
            "TCP headers are whole words"
        );
        let length = 40 + options.len() + payload;
        let mut bytes = vec![0x45, 0, 0, length as u8, 0, 0, 0x40, 0, 64, 6, 0, 0];
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x13, 0x88, 0x9c, 0x40, 0, 0, 0, 1, 0, 0, 0, 1]);
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
        timestamps(&parse_head(&bytes, bytes.len(), Link::Ip), &bytes)
    }

    /// Two no-operations, then kind 8, length 10, TSval 7, TSecr 9.
    const OPTION: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];

    #[test]
    fn both_timestamps_are_read() {
        let expected = Timestamps {
            value: 7,
            echo: Some(9),
            is_answered: true,
        };
        assert_eq!(read(ACK, &OPTION, 1), Some(expected));
        let pure = read(ACK, &OPTION, 0).unwrap();
        assert!(!pure.is_answered);
        // Behind another option: maximum segment size.
        let mut behind = vec![2, 4, 5, 0xb4];
        behind.extend(OPTION);
        assert_eq!(read(ACK, &behind, 1), Some(expected));
    }

    #[test]
    fn an_echo_without_ack_is_invalid() {
        // RFC 7323 section 3.2: TSecr is valid only if the ACK bit is set.
        let first = read(SYN, &OPTION, 0).unwrap();
        assert_eq!((first.echo, first.is_answered), (None, true));
    }

    #[test]
    fn segments_without_the_option_or_with_broken_ones_have_none() {
        assert_eq!(read(ACK, &[], 1), None);
        assert_eq!(read(ACK, &[0, 1, 8, 10], 1), None);
        assert_eq!(read(ACK, &[8, 12, 0, 0], 1), None);
        assert_eq!(read(ACK, &[8, 0, 0, 0], 1), None);
        assert_eq!(read(ACK, &[8, 6, 0, 0, 0, 1, 0, 0], 1), None);
    }
}
