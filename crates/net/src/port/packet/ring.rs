//! A receive ring that a packet socket shares with the kernel: packet(7), `PACKET_RX_RING`, version
//! 2 (Linux's Documentation/networking/packet_mmap.rst).
//!
//! The ring consists of places of equal size. The kernel fills them in order and sets the status of
//! each; the reader resets the status. So checking for frames needs no system call, and frames are
//! copied by the core on which they arrive. Of a frame that does not fit a place, the ring holds
//! only the beginning; the whole frame is put in the socket's queue (`PACKET_COPY_THRESH`), in ring
//! order.
#![allow(unsafe_code)]

use super::super::HEAD_LEN;
use super::super::messages::TAG_8021Q;
use crate::sys::{self, SharedMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The ring and the reader's position.
pub(super) struct Ring {
    map: SharedMap,
    places: usize,
    next: usize,
}

/// The contents of a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrived<'a> {
    /// The offload header, if requested, and the frame or its beginning.
    pub bytes: &'a [u8],
    /// Length of the whole frame, without the offload header.
    pub length: usize,
    /// Whether the whole frame is in the socket's queue.
    pub is_queued: bool,
    /// A VLAN tag that the kernel stripped: protocol and TCI.
    pub tag: Option<(u16, u16)>,
    /// CLOCK_REALTIME when the kernel received the frame.
    pub stamp_ns: u64,
}

impl Ring {
    /// Creates a ring of about `bytes` bytes for `socket`, which receives nothing yet.
    pub(super) fn open(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<Ring> {
        let blocks = bytes.div_ceil(BLOCK_LEN).max(1);
        let places = blocks * PLACES;
        let set = |name, value: &i32| sys::set_option(&socket, libc::SOL_PACKET, name, value);
        set(
            libc::PACKET_VERSION,
            &(libc::tpacket_versions::TPACKET_V2 as i32),
        )?;
        // A switch, not a number of bytes.
        set(libc::PACKET_COPY_THRESH, &1)?;
        request(socket, blocks)?;
        match SharedMap::of(socket, 0, blocks * BLOCK_LEN) {
            Ok(map) => Ok(Ring {
                map,
                places,
                next: 0,
            }),
            Err(error) => {
                // Otherwise frames would go to a ring that nobody reads.
                request(socket, 0)?;
                Err(error)
            }
        }
    }

    /// Closes the ring; from now on all frames go to the socket's queue. Frames that are in either
    /// are lost.
    pub(super) fn close(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        // The kernel refuses to close a mapped ring.
        drop(self.map);
        request(socket, 0)
    }

    /// Returns the frame `ahead` places after the next one, if it has arrived. `vnet_len` is the
    /// length of its offload header.
    pub(super) fn look(&self, ahead: usize, vnet_len: usize) -> Option<Arrived<'_>> {
        if ahead >= self.places {
            return None;
        }
        let place = place(self.after(ahead));
        let status = self.status(place).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: a place starts with a header, which the kernel has finished.
        let header = unsafe { self.map.at(place).cast::<libc::tpacket2_hdr>().read() };
        // Lengths are clamped, so that no header leads outside its place.
        let start = usize::from(header.tp_mac)
            .saturating_sub(vnet_len)
            .min(PLACE_LEN - 1);
        let end = (usize::from(header.tp_mac) + header.tp_snaplen as usize).clamp(start, PLACE_LEN);
        // SAFETY: the bytes are inside the place. The kernel does not touch them until the status
        // is reset, which takes `&mut self` and so ends this borrow.
        let bytes = unsafe { std::slice::from_raw_parts(self.map.at(place + start), end - start) };
        let protocol = match status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => TAG_8021Q,
            _ => header.tp_vlan_tpid,
        };
        Some(Arrived {
            bytes,
            length: header.tp_len as usize,
            is_queued: status & libc::TP_STATUS_COPY != 0,
            tag: (status & libc::TP_STATUS_VLAN_VALID != 0)
                .then_some((protocol, header.tp_vlan_tci)),
            stamp_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
        })
    }

    /// Returns whether the next frame has arrived.
    pub(super) fn has_next(&self) -> bool {
        let status = self.status(place(self.next));
        status.load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
    }

    /// Returns the next `count` places, whose frames have been processed, to the kernel.
    pub(super) fn give_back(&mut self, count: usize) {
        for _ in 0..count {
            let status = self.status(place(self.next));
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = self.after(1);
        }
    }

    /// Returns the index of the place `ahead` places after the next.
    fn after(&self, ahead: usize) -> usize {
        let number = self.next + ahead;
        if number < self.places {
            number
        } else {
            number - self.places
        }
    }

    fn status(&self, place: usize) -> &AtomicU32 {
        // SAFETY: the status is the first word of a place and aligned; both sides access it by
        // whole words.
        unsafe { AtomicU32::from_ptr(self.map.at(place).cast()) }
    }
}

/// Requests a ring of `blocks` blocks; 0 closes it.
fn request(socket: BorrowedFd<'_>, blocks: usize) -> io::Result<()> {
    let frame = if blocks == 0 { 0 } else { PLACE_LEN };
    let block = if blocks == 0 { 0 } else { BLOCK_LEN };
    let too_many = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let request = libc::tpacket_req {
        tp_block_size: block as u32,
        tp_block_nr: u32::try_from(blocks).map_err(too_many)?,
        tp_frame_size: frame as u32,
        tp_frame_nr: u32::try_from(blocks * PLACES).map_err(too_many)?,
    };
    sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
}

/// Returns the offset of a place. No place crosses a block boundary.
const fn place(number: usize) -> usize {
    number / PLACES * BLOCK_LEN + number % PLACES * PLACE_LEN
}

/// Bytes of a place: a full-size Ethernet packet and about 80 of header. An odd number of cache
/// lines, because places a power of two apart would evict each other from the caches.
const PLACE_LEN: usize = 27 * 64;
const _: () = assert!(
    PLACE_LEN <= HEAD_LEN,
    "what lies in a place fits a slot without more room"
);
/// Bytes of a block, the unit in which the kernel allocates.
const BLOCK_LEN: usize = 64 << 10;
/// Places per block.
const PLACES: usize = BLOCK_LEN / PLACE_LEN;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a ring of one block, and the kernel's view of it.
    fn ring() -> (Ring, SharedMap) {
        let map = SharedMap::anonymous(BLOCK_LEN).unwrap();
        let kernel = map.clone();
        let ring = Ring {
            map,
            places: PLACES,
            next: 0,
        };
        (ring, kernel)
    }

    /// Fills a place as the kernel does: the frame after the header first, then the status.
    fn fill(kernel: &SharedMap, number: usize, header: libc::tpacket2_hdr, frame: &[u8]) {
        let at = place(number);
        // SAFETY: the place is inside the mapping and aligned, and nobody reads it before its
        // status is set.
        unsafe {
            kernel
                .at(at)
                .cast::<libc::tpacket2_hdr>()
                .write(libc::tpacket2_hdr {
                    tp_status: 0,
                    ..header
                });
            let room = kernel.at(at + usize::from(header.tp_mac).min(PLACE_LEN - 1));
            room.copy_from_nonoverlapping(frame.as_ptr(), frame.len());
            AtomicU32::from_ptr(kernel.at(at).cast()).store(header.tp_status, Ordering::Release);
        }
    }

    fn header(status: u32, length: usize, snap: usize) -> libc::tpacket2_hdr {
        libc::tpacket2_hdr {
            tp_status: libc::TP_STATUS_USER | status,
            tp_len: length as u32,
            tp_snaplen: snap as u32,
            tp_mac: 80,
            tp_net: 94,
            tp_sec: 3,
            tp_nsec: 7,
            tp_vlan_tci: 5,
            tp_vlan_tpid: 0x88a8,
            tp_padding: [0; 4],
        }
    }

    #[test]
    fn frames_arrive_in_turn_round_and_round() {
        let (mut ring, kernel) = ring();
        assert_eq!(BLOCK_LEN / 1728, 37, "places of a block");
        for round in 0..5usize {
            assert!(!ring.has_next());
            for number in 0..PLACES {
                fill(
                    &kernel,
                    number,
                    header(0, 4, 4),
                    &[round as u8, number as u8, 1, 2],
                );
            }
            for number in 0..PLACES {
                assert!(ring.has_next());
                let arrived = ring.look(0, 0).unwrap();
                assert_eq!(arrived.bytes, [round as u8, number as u8, 1, 2]);
                assert_eq!(
                    (arrived.length, arrived.is_queued, arrived.tag),
                    (4, false, None)
                );
                assert_eq!(arrived.stamp_ns, 3_000_000_007);
                let last = PLACES - 1 - number;
                assert!(ring.look(last, 0).is_some());
                assert_eq!(
                    ring.look(last + 1, 0),
                    None,
                    "it was given back, or is the first again"
                );
                ring.give_back(1);
            }
        }
    }

    #[test]
    fn status_bits_tell_of_tags_and_of_the_queue() {
        let (ring, kernel) = ring();
        let tag = libc::TP_STATUS_VLAN_VALID;
        fill(&kernel, 0, header(tag, 2, 2), &[1, 2]);
        fill(
            &kernel,
            1,
            header(tag | libc::TP_STATUS_VLAN_TPID_VALID, 2, 2),
            &[1, 2],
        );
        fill(&kernel, 2, header(libc::TP_STATUS_COPY, 9000, 2), &[1, 2]);
        assert_eq!(ring.look(0, 0).unwrap().tag, Some((0x8100, 5)));
        assert_eq!(ring.look(1, 0).unwrap().tag, Some((0x88a8, 5)));
        let queued = ring.look(2, 0).unwrap();
        assert_eq!(
            (queued.is_queued, queued.length, queued.tag),
            (true, 9000, None)
        );
    }

    #[test]
    fn no_header_leads_outside_of_its_place() {
        let (ring, kernel) = ring();
        let numbers = [0, 1, 79, 80, 1727, 1728, 65535];
        for mac in numbers {
            for snap in numbers
                .map(|number| number as u32)
                .into_iter()
                .chain([u32::MAX])
            {
                let header = libc::tpacket2_hdr {
                    tp_mac: mac,
                    tp_snaplen: snap,
                    ..header(0, 0, 0)
                };
                fill(&kernel, PLACES - 1, header, &[]);
                for vnet_len in [0, 10] {
                    let arrived = ring.look(PLACES - 1, vnet_len).unwrap();
                    let start = arrived.bytes.as_ptr() as usize - kernel.at(0) as usize;
                    let bounds = place(PLACES - 1)..=place(PLACES - 1) + PLACE_LEN;
                    assert!(
                        bounds.contains(&start) && bounds.contains(&(start + arrived.bytes.len()))
                    );
                }
            }
        }
    }
}
