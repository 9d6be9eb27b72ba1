//! Settings of an endpoint, with their defaults and the sources of the defaults.

use crate::cc::{self, Growth, SlowStart};
use crate::ecn::EcnMode;
use crate::rtt::RtoFloor;
use sluice_core::Span;

/// The algorithm that detects lost segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LossDetection {
    /// By time, with tail loss probes (RFC 8985), as in Linux.
    #[default]
    RackTlp,
    /// A segment is lost when three segments above it are SACKed (RFC 6675). Losses at the end of
    /// the data wait for the timeout.
    DupAck,
}

/// Whether segments are paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pacing {
    /// The congestion control decides: BBR and Prague pace, the others do not.
    #[default]
    Auto,
    /// Never; only the window limits bursts.
    Off,
    /// Always, at the rate of the congestion control. If it has none, at Linux's multiple of window
    /// / SRTT (2 in slow start below half of ssthresh, 1.2 otherwise).
    On,
}

/// The way in which the application reads delivered bytes from the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reading {
    /// The application reads at once; the window stays open.
    #[default]
    Immediate,
    /// The application calls [`crate::Endpoint::read`].
    Explicit,
    /// The application reads at once, up to the number of bytes that
    /// [`crate::Endpoint::allow_reading`] has allowed.
    Allowed,
}

/// Settings of one endpoint. `Config::default()` behaves like a Linux host.
#[derive(Clone, Debug)]
pub struct Config {
    /// Payload bytes of a full segment. 1448 = 1500 - 20 (IPv4) - 20 (TCP) - 12 (timestamps).
    pub mss: u32,
    /// Initial window in segments of any size, as in Linux (RFC 6928 §2: 10, but at most 14600
    /// bytes or two segments, whichever is larger).
    pub initial_window: u32,
    /// The congestion control, from [`cc::REGISTRY`].
    pub congestion_control: &'static cc::Descriptor,
    /// Explicit congestion notification. Both ends must request the same mode.
    pub ecn: EcnMode,
    /// Whether a mark reduces the window less than a loss does (RFC 8511), for reno and cubic.
    pub abe: bool,
    /// The condition that ends slow start, for reno and cubic.
    pub slow_start: SlowStart,
    /// The unit in which CUBIC counts its growth.
    pub growth: Growth,
    /// Whether segments are paced.
    pub pacing: Pacing,
    /// The algorithm that detects lost segments.
    pub loss_detection: LossDetection,
    /// Lower bound of the retransmission timeout. Linux: 200 ms on its variance term.
    pub rto_floor: RtoFloor,
    /// Timeout before the first RTT sample (RFC 6298 §2.1: 1 s).
    pub rto_initial: Span,
    /// Upper bound of the timeout (RFC 6298 §2.5: at least 60 s; Linux: 120 s).
    pub rto_max: Span,
    /// Consecutive expiries after which the connection is aborted (Linux `tcp_retries2`: 15).
    pub max_retries: u32,
    /// Bytes that the receiver can hold at most (Linux `tcp_rmem` maximum: 6 MiB).
    pub receive_buffer: u64,
    /// Bytes that the receiver offers at first. As the sender uses the window, it grows up to
    /// `receive_buffer`. If both values are the same, the window is constant (Linux `tcp_rmem`
    /// default: 128 KiB, of which half counts as overhead).
    pub initial_receive_window: u64,
    /// Size of the send buffer: bytes that may be unacknowledged, whatever the windows allow.
    pub send_buffer: u64,
    /// The way in which the application reads the receive buffer.
    pub reading: Reading,
    /// How long an ACK may wait for a second segment (RFC 9293 §3.8.6.3: under 0.5 s;
    /// Linux: 40 ms).
    pub ack_delay: Span,
    /// How long an ACK for data beyond a gap may wait. The first three are sent at once. If a
    /// twentieth of the RTT is shorter, it is the limit. Zero sends each ACK at once, as RFC 5681
    /// §4.2 requires (Linux `tcp_comp_sack_delay_ns`: 1 ms).
    pub sack_delay: Span,
    /// Full segments per ACK (RFC 5681 §4.2: at least every second one is acknowledged).
    pub ack_every: u32,
    /// Segments that are acknowledged one by one at the start and after idle periods (Linux: 16).
    pub quick_acks: u32,
    /// Whether a small segment waits while bytes are outstanding (Nagle; RFC 9293 §3.7.4).
    pub nagle: bool,
    /// Initial send sequence number.
    pub isn: u32,
    /// Chooses among equal alternatives, such as BBR's first gain phase. The seeds of a run's flows
    /// should differ.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mss: 1448,
            initial_window: 10,
            congestion_control: &cc::CUBIC,
            ecn: EcnMode::Off,
            abe: false,
            slow_start: SlowStart::Auto,
            growth: Growth::Segments,
            pacing: Pacing::Auto,
            loss_detection: LossDetection::RackTlp,
            rto_floor: RtoFloor::Variance(Span::from_ms(200)),
            rto_initial: Span::from_secs(1),
            rto_max: Span::from_secs(120),
            max_retries: 15,
            receive_buffer: 6 << 20,
            initial_receive_window: 64 << 10,
            send_buffer: u64::MAX,
            reading: Reading::Immediate,
            ack_delay: Span::from_ms(40),
            sack_delay: Span::from_ms(1),
            ack_every: 2,
            quick_acks: 16,
            nagle: true,
            isn: 0,
            seed: 0,
        }
    }
}

/// Errors of [`Config::validate`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The segment size is too small, or does not fit an IP packet.
    #[error("mss of {0} bytes (64 to 65000 are possible)")]
    Mss(u32),
    /// The initial window is zero or too large.
    #[error("initial window of {0} segments (1 to 1000 are possible)")]
    InitialWindow(u32),
    /// The window scale option cannot express the buffer, or one segment does not fit into it.
    #[error("receive buffer of {0} bytes (one mss to 1 GiB are possible)")]
    ReceiveBuffer(u64),
    /// One segment does not fit into the window.
    #[error("initial receive window of {0} bytes (at least one mss is needed)")]
    InitialReceiveWindow(u64),
    /// One segment does not fit into the buffer.
    #[error("send buffer of {0} bytes (at least one mss is needed)")]
    SendBuffer(u64),
    /// The number of segments per ACK is zero or too large.
    #[error("an ACK for every {0} segments (1 to 64 are possible)")]
    AckEvery(u32),
    /// The delay is longer than the standard allows.
    #[error("ACK delay of {0} (less than 500ms)")]
    AckDelay(Span),
    /// The lower bound of the timeout is above its upper bound.
    #[error("retransmission timeout between {floor} and {max}")]
    Rto {
        /// The lower bound.
        floor: Span,
        /// The upper bound.
        max: Span,
    },
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    ///
    /// ```
    /// use sluice_tcp::{Config, ConfigError};
    /// assert_eq!(Config::default().validate(), Ok(()));
    /// let config = Config { mss: 0, ..Config::default() };
    /// assert_eq!(config.validate(), Err(ConfigError::Mss(0)));
    /// ```
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(64..=65_000).contains(&self.mss) {
            return Err(ConfigError::Mss(self.mss));
        }
        if !(1..=1000).contains(&self.initial_window) {
            return Err(ConfigError::InitialWindow(self.initial_window));
        }
        // RFC 7323 §2.3: the largest scale is 14, so a window is under 2^30 bytes.
        if self.receive_buffer < u64::from(self.mss) || self.receive_buffer > 1 << 30 {
            return Err(ConfigError::ReceiveBuffer(self.receive_buffer));
        }
        if self.initial_receive_window < u64::from(self.mss) {
            return Err(ConfigError::InitialReceiveWindow(
                self.initial_receive_window,
            ));
        }
        if self.send_buffer < u64::from(self.mss) {
            return Err(ConfigError::SendBuffer(self.send_buffer));
        }
        if !(1..=64).contains(&self.ack_every) {
            return Err(ConfigError::AckEvery(self.ack_every));
        }
        // RFC 9293 §3.8.6.3 (MUST-40): the delay is less than half a second.
        if self.ack_delay >= Span::from_ms(500) {
            return Err(ConfigError::AckDelay(self.ack_delay));
        }
        let (RtoFloor::Total(floor) | RtoFloor::Variance(floor)) = self.rto_floor;
        if floor > self.rto_max || self.rto_initial > self.rto_max {
            return Err(ConfigError::Rto {
                floor: floor.max(self.rto_initial),
                max: self.rto_max,
            });
        }
        Ok(())
    }
}
