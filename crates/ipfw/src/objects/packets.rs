//! The records of packets inside the engine, by slot, and the sink that counts events.

use sluice_core::event::{DropReason, Event, Sink};
use sluice_core::packet::Packet;
use sluice_core::units::Time;

use super::instance::{NONE, Queue};
use super::stats::{Counters, Histogram};
use super::watch::{ObjectName, Rows};
use crate::headers::Headers;
use crate::rules::Place;

/// Where a packet has been before a pass through the rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trail {
    /// The number of pipes that it has entered.
    pub pipes: u16,
    /// The worker at which it arrived, which has the states of its flow.
    pub home: u16,
}

/// The passage of a packet through a pipe.
#[derive(Clone, Debug)]
pub(crate) struct Passage {
    pub headers: Headers,
    /// The flowset that the packet entered.
    pub flowset: u32,
    /// The rule that sent the packet; the rules behind it apply next.
    pub from: Place,
    /// Where the packet has been, including this pipe.
    pub trail: Trail,
    /// The value of `one_pass` when the packet entered.
    pub one_pass: bool,
    /// The slot of the scheduler that holds the packet, or [`NONE`].
    pub holder: u32,
}

/// All passages by slot. Slots are small numbers: indexes of the host's buffers.
#[derive(Debug, Default)]
pub(crate) struct Passages {
    slots: Vec<Option<Passage>>,
    /// The packets that each scheduler holds, with those in delay lines.
    held: Vec<u32>,
}

impl Passages {
    pub fn put(&mut self, slot: u32, passage: Passage) {
        self.leave(slot);
        if self.slots.len() <= slot as usize {
            self.slots.resize(slot as usize + 1, None);
        }
        self.slots[slot as usize] = Some(passage);
    }

    /// Counts a packet inside as held by the scheduler in slot `holder`.
    pub fn hold(&mut self, packet: &Packet, holder: u32) {
        self.leave(packet.slot);
        if self.held.len() <= holder as usize {
            self.held.resize(holder as usize + 1, 0);
        }
        self.held[holder as usize] += 1;
        if let Some(Some(passage)) = self.slots.get_mut(packet.slot as usize) {
            passage.holder = holder;
        }
    }

    /// Counts the packet in `slot` as held by no scheduler.
    pub fn leave(&mut self, slot: u32) {
        if let Some(Some(passage)) = self.slots.get_mut(slot as usize)
            && passage.holder != NONE
        {
            self.held[passage.holder as usize] -= 1;
            passage.holder = NONE;
        }
    }

    /// Returns the number of packets that the scheduler in slot `holder` holds.
    pub fn held(&self, holder: u32) -> u32 {
        self.held.get(holder as usize).copied().unwrap_or(0)
    }

    /// Returns the passage of a packet inside. It remains after the packet has left, until the slot
    /// is reused.
    pub fn of(&self, packet: &Packet) -> &Passage {
        self.slots[packet.slot as usize]
            .as_ref()
            .expect("a packet inside has entered")
    }
}

/// Counters over all pipes: the variables `io_pkt`, `io_pkt_fast` and `io_pkt_drop`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub packets: u64,
    pub dropped: u64,
    pub expired: u64,
}

/// Receives the events of one instance, counts them and forwards them to the host.
pub(crate) struct Tap<'a> {
    pub sink: &'a mut dyn Sink,
    /// The pipe or scheduler of the instance.
    pub object: Option<ObjectName>,
    pub is_listening: bool,
    pub counters: &'a mut Counters,
    pub waits: &'a mut Histogram,
    /// The queues of a scheduler with several queues; the class of a packet is its queue.
    pub queues: Option<&'a mut [Queue]>,
    pub totals: &'a mut Totals,
    pub passages: &'a mut Passages,
    /// Where the watcher counts.
    pub watch: Option<Rows<'a>>,
    /// Whether packets are being moved to another queue. Drops are then not caused by traffic.
    pub is_moving: bool,
}

impl Tap<'_> {
    fn queue(&mut self, packet: &Packet) -> Option<&mut Queue> {
        self.queues.as_mut()?.get_mut(packet.class as usize)
    }
}

/// Returns the number of the row of the packet's queue in the watcher's table.
fn watch_row(queues: Option<&[Queue]>, packet: &Packet) -> Option<u16> {
    let queue = queues?.get(packet.class as usize)?;
    Some(queue.watch_row)
}

impl Sink for Tap<'_> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        let reason = match reason {
            DropReason::Overflow | DropReason::Evicted if self.is_moving => {
                DropReason::Reconfigured
            }
            other => other,
        };
        self.counters.drop(packet.segments, reason);
        self.totals.dropped += u64::from(packet.segments);
        if let Some(queue) = self.queue(&packet) {
            queue.counters.drop(packet.segments, reason);
        }
        if let Some(rows) = &mut self.watch {
            let queue = watch_row(self.queues.as_deref(), &packet);
            let headers = &self.passages.of(&packet).headers;
            rows.discard(&packet, reason, queue, headers);
        }
        self.passages.leave(packet.slot);
        self.sink.discard(now, packet, reason);
    }

    fn copy(&mut self, now: Time, packet: &Packet) -> Option<u32> {
        let slot = self.sink.copy(now, packet)?;
        let passage = self.passages.of(packet).clone();
        let holder = passage.holder;
        self.passages.put(
            slot,
            Passage {
                holder: NONE,
                ..passage
            },
        );
        if holder != NONE {
            self.passages.hold(&Packet::new(slot, 0), holder);
        }
        Some(slot)
    }

    fn corrupt(&mut self, now: Time, packet: &Packet, bit: u64) {
        self.sink.corrupt(now, packet, bit);
    }

    fn pipe_name(&self) -> Option<String> {
        let object = self.object?;
        Some(format!("{} {}", object.word(), object.number()))
    }

    fn packet_number(&self, packet: &Packet) -> Option<u64> {
        self.sink.packet_number(packet)
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        match event {
            Event::Mark { packet } => {
                if let Some(rows) = &mut self.watch {
                    let queue = watch_row(self.queues.as_deref(), packet);
                    rows.mark(packet, queue, &self.passages.of(packet).headers);
                }
                self.counters.marked += u64::from(packet.segments);
                if let Some(queue) = self.queue(packet) {
                    queue.counters.marked += u64::from(packet.segments);
                }
            }
            Event::Dequeue { packet } => {
                self.waits.add(packet.sojourn(now));
                if let Some(rows) = &mut self.watch {
                    let queue = watch_row(self.queues.as_deref(), packet);
                    rows.leave(packet, queue, &self.passages.of(packet).headers, now);
                }
            }
            Event::Enqueue { .. } | Event::State { .. } => {}
        }
        if self.is_listening {
            self.sink.on_event(now, event);
        }
    }
}
