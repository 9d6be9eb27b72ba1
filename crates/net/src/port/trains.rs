//! Trains: segments of a flow that leave together are passed to the kernel as one super-packet,
//! which the kernel segments again before the interface sees it.
//!
//! The receiver gets the same bytes ([`Train`](sluice_wire::frame::Train)), but an allocation, a
//! traversal of the stack and, on a virtual interface, a call of the receiving host's stack are
//! paid once per train instead of once per packet. Trains are for interfaces without segmentation
//! offload, which get single packets: with the offload, hosts send super-packets anyway, and a
//! neighbour on a virtual interface would receive the train as one frame. They are also only for
//! interfaces without a queueing discipline: if one is bypassed (PACKET_QDISC_BYPASS), the kernel
//! segments nothing, and through it packets would be queued a second time.
//!
//! Within a batch a packet may overtake packets of other flows, never one of its own.

mod batch;
#[cfg(test)]
mod tests;

use super::messages::Messages;
use super::{Counters, Loss, Pool, Slot, packet};
use crate::errand::{Errand, NotDone};
use crate::namespace::{DeviceSettings, Interface, Links, Namespace, Offloads};
use crate::sys;
use batch::Batch;
use sluice_wire::frame::VnetHeader;
use socket2::Socket;
use std::os::fd::AsFd;
use std::time::Duration;

/// Sends batches with trains in them on one interface.
pub(super) struct Trains {
    socket: Socket,
    batch: Batch,
    outgoing: Messages,
    /// The properties of the interface when the trains were opened, except for the MTU.
    interface: Interface,
    /// `None` while the helper has it.
    probe: Option<Probe>,
    asked: Option<Asked>,
    looked_ns: u64,
    /// Whether trains could be used on the interface at the last check.
    is_fit: bool,
    /// Whether the interface was replaced, or the kernel refused a super-packet on it.
    is_over: bool,
    /// Frames that the port had sent before trains were opened.
    reported_before: u64,
    /// Frames that the interface had not sent at the last check, whether lost or still waiting.
    missing: u64,
    /// Frames that the interface never sent.
    lost: u64,
}

/// What it takes to ask for the properties of an interface.
struct Probe {
    links: Links,
    settings: DeviceSettings,
}

/// A question about the interface that the helper has.
struct Asked {
    answer: Errand<(Probe, Option<Properties>)>,
    /// Frames that had been sent when it was asked.
    reported: u64,
}

/// The properties of an interface, and whether trains could be used on it.
type Properties = (Interface, bool);

impl Probe {
    fn ask(&mut self, interface: &str) -> Option<Properties> {
        let link = self.links.interface(interface).ok()?;
        let is_fit = is_fit(&link, &self.settings);
        Some((link, is_fit))
    }
}

impl Trains {
    /// Largest number of frames of a batch.
    pub(super) const MOST: usize = 64;

    /// Creates trains for `interface`, for a port that has sent no frame yet. Returns `None` if the
    /// interface cannot use them or the process lacks the privilege. Asks the kernel, which may take
    /// long.
    pub(super) fn open(namespace: &Namespace, interface: &Interface) -> Option<Trains> {
        let settings = namespace.device_settings(&interface.name).ok()?;
        if !is_fit(interface, &settings) {
            return None;
        }
        let socket = packet::open_segmenting(namespace, interface.index, SEND_BUFFER);
        let socket = socket.ok()?.ok()?;
        Some(Trains {
            socket,
            batch: Batch::new(),
            outgoing: Messages::new(Trains::MOST),
            interface: interface.clone(),
            probe: Some(Probe {
                links: namespace.links().ok()?,
                settings,
            }),
            asked: None,
            looked_ns: sys::clock_ns(libc::CLOCK_MONOTONIC),
            is_fit: true,
            is_over: false,
            reported_before: 0,
            missing: 0,
            lost: 0,
        })
    }

    /// Sorts a batch of at most [`Trains::MOST`] frames into trains. Returns whether there are
    /// enough of them for [`Trains::send`] to pay off. Once a second, also checks the interface.
    pub(super) fn find(&mut self, pool: &Pool, slots: &[Slot], counters: &mut Counters) -> bool {
        let is_long = |slot: &Slot| pool.frame_len(*slot) >= LONG;
        if self.is_over || slots.len() < 2 || !slots.iter().any(is_long) {
            return false;
        }
        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        if self.asked.is_some() || now_ns >= self.looked_ns + LOOK_EVERY_NS {
            self.look(counters);
        }
        if self.is_over || !self.is_fit {
            return false;
        }
        self.batch.sort(pool, slots, self.interface.mtu);
        self.batch.messages().len() * 2 <= slots.len()
    }

    /// Sets the number of frames that the port has sent before it uses the trains.
    pub(super) fn begin(&mut self, counters: &Counters) {
        self.reported_before = counters.sent;
    }

    /// Lets the helper ask whether the interface can still use trains, and how many frames it has
    /// really sent, or judges its answer. For a single frame the kernel reports a drop; for a train
    /// it does not report the number of frames dropped. Frames that are missing in two consecutive
    /// answers are lost, because no frame is in transit to a neighbour for that long. Frames that
    /// are sent while the helper asks, and those that other programs send on the interface, can hide
    /// losses, but not add any.
    pub(super) fn look(&mut self, counters: &mut Counters) {
        if let Some(asked) = self.asked.take() {
            match asked.answer.poll() {
                Err(NotDone::Pending) => self.asked = Some(asked),
                Err(NotDone::Failed) => self.is_over = true,
                Ok(answer) => self.judge(answer, asked.reported, counters),
            }
            return;
        }
        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        if now_ns < self.looked_ns + LEAST_APART_NS {
            return;
        }
        self.looked_ns = now_ns;
        let Some(mut probe) = self.probe.take() else {
            return;
        };
        let interface = self.interface.name.clone();
        self.asked = Some(Asked {
            answer: Errand::send(move || {
                let properties = probe.ask(&interface);
                (probe, properties)
            }),
            reported: self.reported(counters),
        });
    }

    /// Counts the frames that were lost by the end: waits for answers, but not for long.
    pub(super) fn conclude(&mut self, counters: &mut Counters) {
        if let Some(asked) = self.asked.take()
            && let Ok(answer) = asked.answer.wait(CONCLUDE_WITHIN)
        {
            self.judge(answer, asked.reported, counters);
        }
        self.look(counters);
        if let Some(asked) = self.asked.take()
            && let Ok(answer) = asked.answer.wait(CONCLUDE_WITHIN)
        {
            self.judge(answer, asked.reported, counters);
        }
    }

    fn reported(&self, counters: &Counters) -> u64 {
        (counters.sent + self.lost).saturating_sub(self.reported_before)
    }

    fn judge(
        &mut self,
        (probe, properties): (Probe, Option<Properties>),
        reported: u64,
        counters: &mut Counters,
    ) {
        self.probe = Some(probe);
        // If the interface is gone, the next transmission reports it.
        let Some((link, is_fit)) = properties else {
            return;
        };
        if link.index != self.interface.index {
            self.is_over = true;
            return;
        }
        self.is_fit = is_fit;
        self.interface.mtu = link.mtu;
        let seen = link
            .traffic
            .sent
            .saturating_sub(self.interface.traffic.sent);
        let missing = reported.saturating_sub(seen);
        let lost = missing.min(self.missing).max(self.lost) - self.lost;
        counters.lose(Loss::Refused, lost);
        counters.sent -= lost;
        self.lost += lost;
        self.missing = missing;
    }

    /// Sends the batch that was sorted last, and frees it. Returns whether the interface exists and
    /// is up.
    pub(super) fn send(
        &mut self,
        pool: &mut Pool,
        slots: &[Slot],
        counters: &mut Counters,
    ) -> bool {
        self.outgoing.clear();
        for message in self.batch.messages() {
            let first = slots[message.first];
            let train = message.train.filter(|_| message.is_train());
            if let Some(train) = &train {
                let vnet = train.write_headers(pool.head_mut(first));
                pool.set_vnet(first, vnet);
            }
            let (head, tail) = pool.send_parts(first, VnetHeader::LEN);
            // SAFETY: the parts are of `pool`, which is borrowed until this function returns; each
            // slot is in one message once, and none is modified before.
            #[allow(unsafe_code)]
            unsafe {
                self.outgoing.push(head, tail);
            }
            let header_len = train.map_or(0, |train| train.first().header_len());
            for follower in self.batch.frames(message).skip(1) {
                let payload = pool.payload_mut(slots[follower], header_len);
                // SAFETY: as above.
                #[allow(unsafe_code)]
                unsafe {
                    self.outgoing.extend(payload);
                }
            }
        }
        let (batch, is_over, mut is_there) = (&self.batch, &mut self.is_over, true);
        let messages = batch.messages();
        let reported = self.outgoing.send_all(self.socket.as_fd(), |index, error| {
            let frames = batch.frames(&messages[index]);
            let Some(error) = error else {
                counters.sent_trains += u64::from(messages[index].is_train());
                for frame in frames {
                    counters.sent += 1;
                    counters.sent_bytes += pool.frame_len(slots[frame]) as u64;
                }
                return;
            };
            let reason = Loss::of(&error);
            counters.lose(reason, frames.count() as u64);
            is_there &= reason != Loss::Down;
            // A lack of buffers does not mean that the kernel refuses trains.
            let is_no_train = error.raw_os_error() != Some(libc::ENOBUFS) && reason != Loss::Down;
            *is_over |= messages[index].is_train() && is_no_train;
        });
        if reported < messages.len() {
            counters.blocked += 1;
            let frames = messages[reported..]
                .iter()
                .flat_map(|rest| batch.frames(rest));
            counters.lose(Loss::Refused, frames.count() as u64);
        }
        slots.iter().for_each(|slot| pool.free(*slot));
        is_there
    }
}

/// Returns whether the interface sends single packets with complete checksums, directly to the
/// driver and in one order.
fn is_fit(link: &Interface, settings: &DeviceSettings) -> bool {
    let is_plain = |offloads: Offloads| !offloads.tcp_segmentation && !offloads.tx_checksum;
    !link.has_queue
        && settings.offloads().is_ok_and(is_plain)
        && settings.queues().is_ok_and(|queues| queues.transmit == 1)
}

const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// No frame waits this long in a neighbour's ring.
const LEAST_APART_NS: u64 = 100_000_000;
/// Twice this is less than the time within which a router ends.
const CONCLUDE_WITHIN: Duration = Duration::from_secs(1);
/// A batch of only shorter frames (acknowledgements) has no train worth looking for.
const LONG: usize = 256;
const SEND_BUFFER: usize = 8 << 20;
