//! `step`: marks every packet beyond a threshold, as DCTCP and other Scalable senders expect.
//!
//! Sources: RFC 8257 section 3.1 (DCTCP: the queue in bytes, on arrival); RFC 9332 appendix A.1
//! note c (a ramp without a range) and Linux dualpi2 (L4S: the delay, on departure). Choices made
//! here:
//! 1. Both thresholds may be set; each marks independently.
//! 2. Packets that are not ECN-capable pass unless `drop` is set. Switches that mark by RED with
//!    equal thresholds drop them.
//!
//! Units: nanoseconds and bytes.

use alloc::sync::Arc;

use super::{Aqm, AqmAlgorithm, QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::{Ecn, Packet};
use crate::params;
use crate::units::{Bytes, Span};

params! {
    /// Parameters of a step.
    pub struct StepParams {
        /// sojourn time above which a departing packet is marked
        threshold: Span = Span(Span::from_ms(1)), Span(Span::ZERO) => Span(Span::MAX), "Linux dualpi2: step_thresh 1 ms; the middle of the ramp of RFC 9332 appendix A.1";
        /// queue in bytes above which an arriving packet is marked
        threshold_bytes: Bytes = Bytes(Bytes::new(u64::MAX)), Bytes(Bytes::ZERO) => Bytes(Bytes::new(u64::MAX)), "none: time is measured; RFC 8257 section 3.1 calls it K";
        /// mark only ECT(1) and CE packets
        l4s: bool = Flag(false), "RFC 8257 section 3.1: any ECN-capable packet";
        /// drop packets that are not ECN-capable instead of passing them
        drop: bool = Flag(false), "RFC 8257 section 3.1: it marks";
    }
}

/// A step has no state.
#[derive(Clone, Debug)]
pub struct Step {
    params: Arc<StepParams>,
}

impl AqmAlgorithm for Step {
    type Params = StepParams;
    const DOC: &'static str = "marks every packet beyond a threshold of time or bytes";

    fn new(params: &StepParams) -> Self {
        Self::for_flow(&Arc::new(params.clone()))
    }

    fn for_flow(params: &Arc<StepParams>) -> Self {
        Step {
            params: Arc::clone(params),
        }
    }
}

impl Aqm for Step {
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, _cx: &mut Cx<'_>) -> Verdict {
        if queue.bytes > self.params.threshold_bytes.as_u64() {
            self.signal(packet)
        } else {
            Verdict::Pass
        }
    }

    fn on_dequeue(&mut self, packet: &Packet, _queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        if packet.sojourn(cx.now) > self.params.threshold {
            self.signal(packet)
        } else {
            Verdict::Pass
        }
    }

    fn state(&self, _visit: &mut dyn FnMut(&'static str, StateValue)) {}
}

impl Step {
    fn signal(&self, packet: &Packet) -> Verdict {
        let is_markable = if self.params.l4s {
            matches!(packet.ecn, Ecn::Ect1 | Ecn::Ce)
        } else {
            packet.ecn.is_capable()
        };
        if is_markable {
            Verdict::Mark
        } else if self.params.drop {
            Verdict::Drop(DropReason::Congestion)
        } else {
            Verdict::Pass
        }
    }
}
