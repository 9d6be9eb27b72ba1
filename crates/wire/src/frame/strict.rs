//! Frames whose headers a filter cannot judge.
//!
//! A rule that names a port or protocol does not match a packet in which these could not be found,
//! but the packet's destination may find them: behind more extension headers than are followed, or
//! when it puts fragments together. References: RFC 1858 and RFC 3128 (tiny and overlapping
//! fragments of TCP), RFC 7112 (a first fragment contains the whole chain of IPv6 headers).

use super::view::{DESTINATION, HOP_BY_HOP, IPV6, ROUTING, TCP, Transport, View};

impl View {
    /// Returns whether a filter should drop this frame because its headers cannot be judged: they
    /// are damaged or not all found, the first fragment does not hold the whole TCP header, or a
    /// later fragment could overwrite a TCP header. The latter includes every later fragment of an
    /// IPv6 packet whose fragments begin with options or a routing header.
    pub fn is_evasive(&self) -> bool {
        if self.fault.is_some() {
            return true;
        }
        let Some(fragment) = self.fragment else {
            return false;
        };
        if fragment.offset > 0 {
            return match self.protocol {
                TCP => fragment.offset < TCP_LEN,
                // The TCP header is anywhere behind these headers.
                HOP_BY_HOP | ROUTING | DESTINATION => self.ethertype == IPV6,
                _ => false,
            };
        }
        let Transport::Tcp { header_len, .. } = self.transport else {
            return false;
        };
        let end = u32::from(self.network) + self.ip_len;
        u32::from(self.transport_at) + u32::from(header_len) > end
    }
}

/// Bytes of a TCP header without options (RFC 9293).
const TCP_LEN: u16 = 20;
