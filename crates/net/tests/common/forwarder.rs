//! A minimal router: one thread that forwards frames between two ports, in both directions.

use super::Topology;
use sluice_core::Stop;
use sluice_net::Clock;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::{
    Counters, Interest, PacketPort, Pool, PoolSize, Port, Slot, Spin, Waiter, Watch,
};
use sluice_wire::frame::{Link, SuperPacket, parse_head};
use std::thread::JoinHandle;

/// The treatment of super-packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Whole,
    Split,
}

pub struct Forwarder {
    stop: Stop,
    thread: JoinHandle<Outcome>,
}

/// The counts of the router.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub ports: [Counters; 2],
    pub split_into: u64,
    pub slots_missing: usize,
}

impl Forwarder {
    pub fn start(topology: &Topology, mode: Mode, options: PacketOptions) -> Forwarder {
        let ports =
            ["r2", "r3"].map(|name| PacketPort::open(&topology.router, name, options).unwrap());
        Forwarder::between(ports, mode)
    }

    pub fn between<P: Port + Send + 'static>(ports: [P; 2], mode: Mode) -> Forwarder {
        let size = PoolSize {
            slots: 4096,
            large: 256,
        };
        Forwarder::between_on(Pool::new(size).unwrap(), size, ports, mode)
    }

    /// Forwards between ports that may already hold slots of `pool`, which has this size.
    pub fn between_on<P: Port + Send + 'static>(
        mut pool: Pool,
        size: PoolSize,
        mut ports: [P; 2],
        mode: Mode,
    ) -> Forwarder {
        let stop = Stop::new();
        let seen = stop.clone();
        let thread = std::thread::spawn(move || forward(&mut pool, size, &mut ports, mode, &seen));
        Forwarder { stop, thread }
    }

    pub fn finish(self) -> Outcome {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}

fn forward<P: Port>(
    pool: &mut Pool,
    size: PoolSize,
    ports: &mut [P; 2],
    mode: Mode,
    stop: &Stop,
) -> Outcome {
    let mut waiter = Waiter::new(Spin::None);
    let clock = Clock::start();
    let mut batch = Vec::with_capacity(64);
    let mut segments = Vec::with_capacity(4096);
    let mut split_into = 0;
    while !stop.is_stopped() {
        let deadline = clock.now() + sluice_core::Span::from_ms(20);
        let watches = [0, 1].map(|index| Watch {
            descriptor: ports[index as usize].as_fd(),
            interest: Interest::Readable,
        });
        let wake = waiter.wait(&watches, Some(deadline), &clock);
        for from in [0, 1] {
            if wake.ready & (1 << from) == 0 {
                continue;
            }
            batch.clear();
            ports[from].receive(pool, &mut batch);
            let out = &mut ports[1 - from];
            if mode == Mode::Split {
                segments.clear();
                for slot in &batch {
                    split_into += split(pool, *slot, out.link(), &mut segments);
                }
                std::mem::swap(&mut batch, &mut segments);
            }
            // The router has no queue: frames that would block are dropped.
            let sent = out.transmit(pool, &batch);
            for slot in &batch[sent..] {
                pool.free(*slot);
            }
        }
    }
    let counters = [0, 1].map(|index: usize| ports[index].counters());
    for port in ports.iter_mut() {
        port.release(pool);
    }
    Outcome {
        ports: counters,
        split_into,
        slots_missing: (size.slots as usize - pool.available())
            + (size.large as usize - pool.available_large()),
    }
}

/// Appends the packets in `slot`. Returns their number if it was a super-packet.
fn split(pool: &mut Pool, slot: Slot, link: Link, into: &mut Vec<Slot>) -> u64 {
    let vnet = pool.vnet(slot);
    let view = parse_head(pool.head(slot), pool.frame_len(slot), link);
    let Ok(packet) = SuperPacket::new(&view, &vnet) else {
        into.push(slot);
        return 0;
    };
    for index in 0..packet.segments() {
        let Some(room) = pool.allocate() else { break };
        pool.write_segment(slot, &packet, index, room).unwrap();
        into.push(room);
    }
    pool.free(slot);
    u64::from(packet.segments())
}
