//! The objects that hooks receive.

use pyo3::prelude::*;

use sluice_core::aqm::QueueView;
use sluice_core::{Cx, Packet, Rng, Time};

/// The fields of a packet.
#[pyclass(subclass)]
#[derive(Default)]
pub struct PacketFields {
    /// When the packet arrived, in nanoseconds.
    #[pyo3(get)]
    arrival_ns: u64,
    /// The size on the wire.
    #[pyo3(get)]
    size_bytes: u32,
    /// A hash of the flow: addresses, protocol and ports.
    #[pyo3(get)]
    flow: u32,
    /// A hash of the source host.
    #[pyo3(get)]
    src: u32,
    /// A hash of the destination host.
    #[pyo3(get)]
    dst: u32,
    /// The class that a rule or the flow of a scenario gives; otherwise 0.
    #[pyo3(get)]
    class_: u32,
    /// For rank functions: bytes that the flow has still to send, or the deadline in microseconds after
    /// the arrival; 0 if unknown.
    #[pyo3(get)]
    tag: u32,
    /// The wire packets that a super-packet stands for; otherwise 1.
    #[pyo3(get)]
    segments: u16,
    /// The ECN codepoint: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    #[pyo3(get)]
    ecn: u8,
    /// Whether the packet may be marked.
    #[pyo3(get)]
    pub(super) ecn_capable: bool,
    /// The DSCP, from 0 to 63.
    #[pyo3(get)]
    dscp: u8,
}

impl PacketFields {
    pub(super) fn of(packet: &Packet) -> PacketFields {
        PacketFields {
            arrival_ns: packet.arrival.as_ns(),
            size_bytes: packet.len,
            flow: packet.flow,
            src: packet.src,
            dst: packet.dst,
            class_: packet.class,
            tag: packet.tag,
            segments: packet.segments,
            ecn: packet.ecn as u8,
            ecn_capable: packet.ecn.is_capable(),
            dscp: packet.dscp,
        }
    }
}

/// The packet in question.
#[pyclass(extends = PacketFields)]
#[derive(Default)]
pub struct PacketView {
    /// How long the packet has waited, in nanoseconds.
    #[pyo3(get)]
    sojourn_ns: u64,
}

/// The queue, without the packet in question.
#[pyclass]
#[derive(Default)]
pub struct BacklogView {
    /// The wire packets in the queue.
    #[pyo3(get)]
    packets: u64,
    /// The bytes in the queue.
    #[pyo3(get)]
    bytes: u64,
    /// The bytes in all queues of the discipline.
    #[pyo3(get)]
    total_bytes: u64,
    /// The wire packets that the queue holds at most.
    #[pyo3(get)]
    limit_packets: u64,
    /// The bytes that the queue holds at most.
    #[pyo3(get)]
    limit_bytes: u64,
}

/// The time, and the randomness of the run.
#[pyclass(subclass)]
pub struct Context {
    /// The time in nanoseconds.
    #[pyo3(get)]
    now_ns: u64,
    rng: Rng,
}

impl Context {
    pub(super) fn new() -> Context {
        Context {
            now_ns: 0,
            rng: Rng::from_seed(0),
        }
    }
}

#[pymethods]
impl Context {
    /// Return a number in [0, 1) that depends on the seed of the run alone.
    fn random(&mut self) -> f64 {
        self.rng.unit_f64()
    }

    /// Return 64 bits that depend on the seed of the run alone.
    fn random_bits(&mut self) -> u64 {
        self.rng.next_u64()
    }
}

/// The objects of one queue. They are created once and filled before each call.
pub(super) struct Views {
    pub packet: Py<PacketView>,
    pub queue: Py<BacklogView>,
    pub context: Py<Context>,
}

impl Views {
    pub fn new(py: Python<'_>) -> PyResult<Views> {
        Ok(Views {
            packet: Py::new(py, (PacketView::default(), PacketFields::default()))?,
            queue: Py::new(py, BacklogView::default())?,
            context: Py::new(py, Context::new())?,
        })
    }

    pub fn fill_queue(&self, py: Python<'_>, queue: &QueueView) {
        *self.queue.borrow_mut(py) = BacklogView {
            packets: queue.packets,
            bytes: queue.bytes,
            total_bytes: queue.total_bytes,
            limit_packets: queue.limit_packets,
            limit_bytes: queue.limit_bytes,
        };
    }

    pub fn fill_packet(&self, py: Python<'_>, packet: &Packet, now: Time) {
        let mut view = self.packet.borrow_mut(py);
        view.sojourn_ns = packet.sojourn(now).as_ns();
        **view.as_super() = PacketFields::of(packet);
    }
}

/// Calls `call` while `context` has the time and the randomness of `cx`.
pub(super) fn within<R>(
    context: &Bound<'_, Context>,
    cx: &mut Cx<'_>,
    call: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let swap = |rng: &mut Rng| {
        let mut context = context.borrow_mut();
        context.now_ns = cx.now.as_ns();
        std::mem::swap(&mut context.rng, rng);
    };
    swap(cx.rng);
    let outcome = call();
    swap(cx.rng);
    outcome
}
