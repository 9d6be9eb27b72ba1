//! Chooses the frames of a batch that leave together.

use super::Trains;
use crate::port::{Pool, Slot};
use sluice_wire::frame::{Addresses, Link, Segment, Train, View, parse_head};

/// A batch, sorted into messages in the order of their first frames.
pub(super) struct Batch {
    messages: Vec<Message>,
    /// By frame, the next one of the same message.
    next: [usize; Trains::MOST],
    /// The messages that may still grow, by their numbers: at most one of each flow.
    open: Vec<usize>,
}

/// A frame, or those of a train.
pub(super) struct Message {
    /// The first of its frames, by its place in the batch.
    pub first: usize,
    /// The train; `None` for a frame that cannot be part of one.
    pub train: Option<Train>,
    last: usize,
    flow: Flow,
    /// Whether the first frame's checksums were found to be correct.
    is_intact: bool,
}

/// The flow, whose order is kept.
#[derive(Clone, Copy)]
struct Flow {
    addresses: Addresses,
    ports: Option<(u16, u16)>,
}

impl Flow {
    fn of(view: &View) -> Flow {
        Flow {
            addresses: view.addresses,
            ports: view.ports(),
        }
    }

    /// Returns whether packets of both may belong to one flow: a later fragment has no ports.
    fn meets(&self, other: &Flow) -> bool {
        self.addresses == other.addresses
            && (self.ports == other.ports || self.ports.is_none() || other.ports.is_none())
    }
}

impl Message {
    /// Returns whether the message has several frames.
    pub(super) fn is_train(&self) -> bool {
        self.first != self.last
    }

    /// Appends frame `number`, a segment. Returns whether it fits there.
    fn join(&mut self, number: usize, segment: &Segment, pool: &Pool, slots: &[Slot]) -> bool {
        let Some(mut train) = self.train else {
            return false;
        };
        let [first, next] = [self.first, number].map(|place| slots[place]);
        if !train.join(pool.head(first), segment, pool.head(next)) {
            return false;
        }
        let is_intact =
            |segment: &Segment, slot| segment.is_intact(&pool.vnet(slot), pool.head(slot));
        self.is_intact = self.is_intact || is_intact(train.first(), first);
        if !self.is_intact || !is_intact(segment, next) {
            return false;
        }
        self.train = Some(train);
        self.last = number;
        true
    }
}

impl Batch {
    pub(super) fn new() -> Batch {
        Batch {
            messages: Vec::with_capacity(Trains::MOST),
            next: [0; Trains::MOST],
            open: Vec::with_capacity(MOST_OPEN),
        }
    }

    /// Returns the messages in the order in which they leave.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The frames of a message, by their places in the batch.
    pub(super) fn frames(&self, message: &Message) -> impl Iterator<Item = usize> {
        let last = message.last;
        std::iter::successors(Some(message.first), move |frame| {
            (*frame != last).then(|| self.next[*frame])
        })
    }

    /// Sorts at most [`Trains::MOST`] frames, for an interface of this MTU.
    pub(super) fn sort(&mut self, pool: &Pool, slots: &[Slot], mtu: u32) {
        self.messages.clear();
        self.open.clear();
        for (number, slot) in slots.iter().enumerate() {
            let (frame, vnet) = (pool.head(*slot), pool.vnet(*slot));
            let view = parse_head(frame, pool.frame_len(*slot), Link::Ethernet);
            let flow = Flow::of(&view);
            let is_whole = frame.len() == pool.frame_len(*slot) && !pool.is_cut(*slot);
            // The kernel refuses a longer one.
            let segment =
                Segment::of(&view, &vnet, frame).filter(|_| is_whole && view.ip_len <= mtu);
            let place = self
                .open
                .iter()
                .position(|open| self.messages[*open].flow.meets(&flow));
            if let Some(place) = place {
                let message = &mut self.messages[self.open[place]];
                let before = message.last;
                if segment.is_some_and(|segment| message.join(number, &segment, pool, slots)) {
                    self.next[before] = number;
                    continue;
                }
                // No frame may overtake this one.
                let messages = &self.messages;
                self.open.retain(|open| !messages[*open].flow.meets(&flow));
            }
            if segment.is_some() {
                if self.open.len() == MOST_OPEN {
                    self.open.remove(0);
                }
                self.open.push(self.messages.len());
            }
            self.messages.push(Message {
                first: number,
                train: segment.map(Train::new),
                last: number,
                flow,
                is_intact: false,
            });
        }
    }
}

/// The number of flows whose trains are searched for at one time.
const MOST_OPEN: usize = 16;
