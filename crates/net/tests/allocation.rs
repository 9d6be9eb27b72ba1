//! The packet path allocates no memory in steady state.
#![allow(unsafe_code)]

mod common;

use common::segments::{PLAIN, flow};
use sluice_net::Clock;
use sluice_net::namespace::Offloads;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::{Interest, PacketPort, Pool, PoolSize, Port, Spin, Waiter, Watch};
use sluice_wire::frame::{FlowHasher, Link, SuperPacket, VnetHeader, parse_head, set_ce};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsFd;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls are passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_running_packet_path_allocates_nothing() {
    let namespace = common::wire::namespace();
    let clock = Clock::start();
    let options = PacketOptions {
        timestamps: Some(clock),
        ..PacketOptions::default()
    };
    let [mut left, mut right] =
        ["left", "right"].map(|name| PacketPort::open(&namespace, name, options).unwrap());
    let size = PoolSize {
        slots: 512,
        large: 128,
    };
    let mut pool = Pool::new(size).unwrap();
    let mut waiter = Waiter::new(Spin::Adaptive);
    let hasher = FlowHasher::new(1);
    let mut batch = Vec::with_capacity(512);
    let frame = super_packet();
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type: 1,
        hdr_len: 54,
        gso_size: 500,
        csum_start: 34,
        csum_offset: 16,
    };
    let mut received = 0;
    for round in 0..300 {
        if round == 100 {
            ALLOCATIONS.with(|count| count.set(0));
        }
        // Every other frame is split before it is sent, and its segments come through the ring. The
        // others pass whole, and wait in the queue.
        let slot = pool.allocate().unwrap();
        pool.room_mut(slot)[..frame.len()].copy_from_slice(&frame);
        pool.set_frame(slot, frame.len() as u32, vnet);
        let view = parse_head(pool.head(slot), pool.frame_len(slot), Link::Ethernet);
        assert!(set_ce(pool.head_mut(slot), &view));
        std::hint::black_box(hasher.flow(&view));
        batch.clear();
        if round % 2 == 0 {
            batch.push(slot);
        } else {
            let packet = SuperPacket::new(&view, &vnet).unwrap();
            for index in 0..packet.segments() {
                let room = pool.allocate().unwrap();
                pool.write_segment(slot, &packet, index, room).unwrap();
                batch.push(room);
            }
            pool.free(slot);
        }
        assert_eq!(left.transmit(&mut pool, &batch), batch.len());
        batch.clear();
        let watch = Watch {
            descriptor: right.as_fd(),
            interest: Interest::Readable,
        };
        let deadline = clock.now() + sluice_core::Span::from_ms(100);
        waiter.wait(&[watch], Some(deadline), &clock);
        right.receive(&mut pool, &mut batch);
        received += batch.len();
        for slot in batch.drain(..) {
            pool.free(slot);
        }
        std::hint::black_box(right.counters());
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), 0);
    // Most have arrived when the last is sent: 150 whole, 150 in four segments.
    assert!(received > 300, "{received}");
}

/// Segments that the port combines into a train.
#[test]
fn trains_allocate_nothing() {
    let namespace = common::wire::namespace();
    namespace.set_offloads("left", Offloads::OFF).unwrap();
    let mut port = PacketPort::open(&namespace, "left", PacketOptions::default()).unwrap();
    let size = PoolSize {
        slots: 64,
        large: 64,
    };
    let mut pool = Pool::new(size).unwrap();
    let mut batch = Vec::with_capacity(8);
    let segments = flow(PLAIN, &[500; 8]);
    for round in 0..100 {
        if round == 10 {
            ALLOCATIONS.with(|count| count.set(0));
        }
        batch.clear();
        for segment in &segments {
            let slot = pool.allocate().unwrap();
            pool.room_mut(slot)[..segment.len()].copy_from_slice(segment);
            pool.set_frame(slot, segment.len() as u32, VnetHeader::default());
            batch.push(slot);
        }
        assert_eq!(port.transmit(&mut pool, &batch), batch.len());
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), 0);
    let counters = port.counters();
    assert_eq!((counters.sent, counters.sent_trains), (800, 100));
}

/// 1900 bytes of payload behind 54 bytes of headers, ECT(0).
fn super_packet() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 2];
    frame.extend(1940u16.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let mut tcp = [0; 20];
    tcp[12] = 0x50;
    frame.extend(tcp);
    frame.resize(54 + 1900, 7);
    frame
}
