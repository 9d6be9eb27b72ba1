//! The kernel's own view of a connection.

use crate::sys;
use sluice_core::{Span, Time};
use socket2::Socket;
use std::io;

/// The sender's state at one instant (`struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSample {
    /// The instant of the reading.
    pub time: Time,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow start threshold in segments (2^31 - 1 before the first congestion).
    pub ssthresh: u32,
    /// Bytes of payload per segment.
    pub mss: u32,
    /// Smoothed RTT.
    pub srtt: Span,
    /// Variation of the RTT.
    pub rttvar: Span,
    /// Lowest RTT in the kernel's window of time.
    pub min_rtt: Span,
    /// Retransmission timeout.
    pub rto: Span,
    /// Segments in flight, as estimated by the sender.
    pub unacked: u32,
    /// Segments that count as lost now.
    pub lost: u32,
    /// Segments retransmitted so far.
    pub retransmits: u32,
    /// Payload bytes acknowledged so far.
    pub bytes_acked: u64,
    /// Payload bytes sent so far, retransmissions included.
    pub bytes_sent: u64,
    /// Payload bytes retransmitted so far.
    pub bytes_retransmitted: u64,
    /// Segments delivered so far with a CE mark, as reported by the receiver.
    pub delivered_ce: u32,
    /// Latest estimate of the delivery rate, in bits per second (0 before the first).
    pub delivery_rate_bps: u64,
    /// The sender's pacing rate, in bits per second (all ones when it does not pace).
    pub pacing_rate_bps: u64,
    /// 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
}

/// linux/tcp.h: `struct tcp_info`, up to `tcpi_bytes_retrans`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct TcpInfo {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    wscale: u8,
    flags: u8,
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    /// Payload bytes that have come in order so far, read by the application or not.
    pub bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
}

impl TcpInfo {
    /// Reads the state of a connection from the kernel.
    pub fn read(socket: &Socket) -> io::Result<TcpInfo> {
        let mut info = TcpInfo::default();
        // SAFETY: `TcpInfo` consists of integers only. An older kernel fills a shorter one and
        // leaves the rest zero.
        #[allow(unsafe_code)]
        unsafe {
            sys::option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        }
        Ok(info)
    }

    /// Returns how many payload bytes wait to be sent. A closed connection sends none.
    pub fn unsent_bytes(&self) -> u32 {
        if self.state == CLOSE {
            return 0;
        }
        self.notsent_bytes
    }

    /// Reads the structure as the kernel wrote it. An older kernel's is shorter; the rest is zero.
    pub(crate) fn of_bytes(bytes: &[u8]) -> TcpInfo {
        let mut info = TcpInfo::default();
        let count = bytes.len().min(size_of::<TcpInfo>());
        // SAFETY: `TcpInfo` consists of integers only, for which all bytes are valid, and at most
        // its size is copied from a slice that has as many.
        #[allow(unsafe_code)]
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut info).cast::<u8>(), count);
        }
        info
    }

    /// Returns whether both sides agreed on ECN.
    pub fn has_ecn(&self) -> bool {
        self.options & TCPI_OPT_ECN != 0
    }

    /// Converts the structure to our units.
    pub fn sample(&self, time: Time) -> TcpSample {
        let us = |us: u32| Span::from_us(u64::from(us));
        TcpSample {
            time,
            cwnd: self.snd_cwnd,
            ssthresh: self.snd_ssthresh,
            mss: self.snd_mss,
            srtt: us(self.rtt),
            rttvar: us(self.rttvar),
            // The kernel reports all ones before the first measurement.
            min_rtt: us(if self.min_rtt == u32::MAX {
                0
            } else {
                self.min_rtt
            }),
            rto: us(self.rto),
            unacked: self.unacked,
            lost: self.lost,
            retransmits: self.total_retrans,
            bytes_acked: self.bytes_acked,
            bytes_sent: self.bytes_sent,
            bytes_retransmitted: self.bytes_retrans,
            delivered_ce: self.delivered_ce,
            delivery_rate_bps: self.delivery_rate.saturating_mul(8),
            pacing_rate_bps: self.pacing_rate.saturating_mul(8),
            ca_state: self.ca_state,
        }
    }
}

/// linux/tcp.h.
const TCPI_OPT_ECN: u8 = 8;
/// include/net/tcp_states.h.
const CLOSE: u8 = 7;
