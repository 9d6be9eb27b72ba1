//! Converts segments of Sluice's TCP into the headers of a recording.

use sluice_core::Time;
use sluice_recording::headers::TcpHeader;
use sluice_tcp::{Flags, Segment};

/// Returns the header of a segment that is sent at `now`. The timestamp that it echoes counts in
/// ticks of 1 ms, as Linux's do, since the start of the run; `since_start` converts an instant of
/// the network to one of the run.
pub(crate) fn tcp_header(
    segment: &Segment,
    connection: u32,
    since_start: impl Fn(Time) -> Time,
    now: Time,
) -> TcpHeader {
    let tick = |at: Time| since_start(at).as_ns() / TICK_NS;
    let echo_age = (segment.ts_echo > Time::ZERO)
        .then(|| tick(now).saturating_sub(tick(segment.ts_echo)) as u32);
    TcpHeader {
        connection,
        flags: segment.flags.bits(),
        payload: segment.len,
        seq: segment.seq,
        ack: segment.ack,
        window: segment.window,
        echo_age,
        syn: segment
            .flags
            .has(Flags::SYN)
            .then_some((segment.mss.saturating_add(TIMESTAMPS), segment.wscale)),
        sack: segment.sack.map(|block| (block.start, block.end)),
        sack_count: segment.sacks().len() as u8,
    }
}

/// Bytes of timestamps in each segment. The MSS option does not account for other options (RFC 6691
/// section 2), but the MSS of Sluice's TCP does.
const TIMESTAMPS: u16 = 12;
/// A tick of the timestamps in TCP headers.
const TICK_NS: u64 = 1_000_000;
