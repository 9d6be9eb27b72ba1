//! Trains on the way out: segments of a flow that leave together cross into the kernel as one
//! super-packet, and the kernel takes it apart again before the interface sees it.
//!
//! What arrives is the same, byte for byte ([`Train`](crate::frame::Train)), but an allocation, a way through the stack
//! and, on a virtual interface, a call of the receiving host's stack are paid once per train and not once
//! per packet. That is for interfaces that get single packets because they have no segmentation of
//! their own: where there is one, hosts hand over super-packets anyway, and a neighbour on a virtual
//! interface would see the train whole. And it is for interfaces without a queueing discipline: past
//! one (PACKET_QDISC_BYPASS) nothing is taken apart, and through it packets would queue a second time.
//!
//! Within a batch a packet may pass packets of other flows, never one of its own.

mod batch;
#[cfg(test)]
mod tests;

use super::messages::Messages;
use super::{Counters, Loss, Pool, Slot, packet};
use crate::frame::VnetHeader;
use crate::namespace::{Interface, Namespace};
use crate::sys;
use batch::Batch;
use socket2::{Domain, Socket, Type};
use std::os::fd::AsFd;

/// Sends batches with trains in them on one interface.
pub(super) struct Trains {
    socket: Socket,
    batch: Batch,
    outgoing: Messages,
    /// The kernel does not take super-packets here after all.
    is_refused: bool,
}

impl Trains {
    /// Most frames of a batch.
    pub(super) const MOST: usize = 64;

    /// For `interface`, if it is one for trains and the process may.
    pub(super) fn open(namespace: &Namespace, interface: &Interface) -> Option<Trains> {
        let offloads = namespace.offloads(&interface.name).ok()?;
        if interface.has_queue || offloads.tcp_segmentation {
            return None;
        }
        let socket = namespace
            .enter(|| Socket::new(Domain::PACKET, Type::RAW, None))
            .ok()?
            .ok()?;
        socket.set_nonblocking(true).ok()?;
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32).ok()?;
        // A wish: what the kernel grants is enough for some batches.
        let _ = socket.set_send_buffer_size(SEND_BUFFER);
        let trains = Trains {
            socket,
            batch: Batch::new(),
            outgoing: Messages::new(Trains::MOST),
            is_refused: false,
        };
        packet::bind(&trains.socket, interface.index, packet::protocol(false)).ok()?;
        Some(trains)
    }

    /// Looks for trains in a batch of at most [`Trains::MOST`] frames; whether there are so many that
    /// [`Trains::send`] pays.
    pub(super) fn find(&mut self, pool: &Pool, slots: &[Slot], mtu: u32) -> bool {
        let is_long = |slot: &Slot| pool.frame_len(*slot) >= LONG;
        if self.is_refused || slots.len() < 2 || !slots.iter().any(is_long) {
            return false;
        }
        self.batch.sort(pool, slots, mtu);
        self.batch.messages().len() * 2 <= slots.len()
    }

    /// Sends the batch that was looked through last, and frees it. Whether the interface is there and up.
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
            // slot is in one message once, and none is changed before.
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
        let (batch, is_refused, mut is_there) = (&self.batch, &mut self.is_refused, true);
        let messages = batch.messages();
        let told = self.outgoing.send_all(self.socket.as_fd(), |index, error| {
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
            *is_refused |= reason == Loss::Offload;
        });
        if told < messages.len() {
            counters.blocked += 1;
            let frames = messages[told..].iter().flat_map(|rest| batch.frames(rest));
            counters.lose(Loss::Refused, frames.count() as u64);
        }
        slots.iter().for_each(|slot| pool.free(*slot));
        is_there
    }
}

/// A batch of frames that are all shorter (acknowledgements) has no train that is worth looking for.
const LONG: usize = 256;
const SEND_BUFFER: usize = 8 << 20;
