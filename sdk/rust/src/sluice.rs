//! AQMs and schedulers for Sluice as WebAssembly modules, interface version 1 (docs/modules.md).
//!
//! A module implements [`Aqm`] for the state of one queue and declares itself with [`aqm!`], or
//! [`Rank`] and [`scheduler!`]. This file is the crate `sluice-sdk`. It also works as a file of your own crate, `mod sluice;`, without
//! a package manager.

use core::sync::atomic::{AtomicI64, Ordering};

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(dead_code)]
pub enum Verdict {
    /// The packet passes.
    Pass = 0,
    /// The packet is marked and passes. Only for an ECN-capable packet.
    Mark = 1,
    /// The packet is dropped.
    Drop = 2,
}

/// The packet in question.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code)]
pub struct Packet {
    /// The time of the call.
    pub now_ns: i64,
    /// How long the packet has been in the queue.
    pub sojourn_ns: i64,
    /// Its length on the link.
    pub size_bytes: u32,
    /// Its ECN codepoint.
    pub ecn: i32,
    /// Hash of its flow.
    pub flow: u32,
}

#[allow(dead_code)]
impl Packet {
    /// Returns whether it may be marked.
    pub fn is_ecn_capable(&self) -> bool {
        self.ecn != 0
    }

    #[doc(hidden)]
    pub fn of(now: i64, length: i32, ecn: i32, flow: i32, sojourn: i64) -> Packet {
        Packet {
            now_ns: now,
            sojourn_ns: sojourn,
            size_bytes: length as u32,
            ecn,
            flow: flow as u32,
        }
    }
}

/// The queue without the packet in question.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code)]
pub struct Queue {
    /// Packets in it.
    pub packets: i64,
    /// Bytes in it.
    pub bytes: i64,
}

/// The values of the parameters, by their numbers.
pub struct Params([AtomicI64; 32]);

impl Params {
    #[doc(hidden)]
    pub const fn new() -> Params {
        #[allow(clippy::declare_interior_mutable_const)]
        const ZERO: AtomicI64 = AtomicI64::new(0);
        Params([ZERO; 32])
    }

    /// Returns a value: nanoseconds, bits per second, bytes, billionths, 0 or 1.
    pub fn get(&self, number: usize) -> i64 {
        self.0[number].load(Ordering::Relaxed)
    }

    #[doc(hidden)]
    pub fn set(&self, number: i32, value: i64) {
        self.0[number as usize].store(value, Ordering::Relaxed);
    }
}

impl Default for Params {
    fn default() -> Self {
        Params::new()
    }
}

/// The state of one queue. Only the hooks that [`aqm!`] names are called.
#[allow(unused_variables)]
pub trait Aqm: Default {
    /// Decides about an arriving packet.
    fn on_enqueue(&mut self, packet: &Packet, queue: &Queue, params: &Params) -> Verdict {
        Verdict::Pass
    }

    /// Decides about the packet at the head, which has left the queue.
    fn on_dequeue(&mut self, packet: &Packet, queue: &Queue, params: &Params) -> Verdict {
        Verdict::Pass
    }

    /// Handles the refusal of a packet by a full queue.
    fn on_refused(&mut self, packet: &Packet, queue: &Queue, params: &Params) {}

    /// Handles a dequeue that found the queue empty.
    fn on_empty(&mut self, now_ns: i64, params: &Params) {}

    /// Returns when `on_timer` is to be called, -1 for never.
    fn next_timer(&self, params: &Params) -> i64 {
        -1
    }

    /// Handles the expiry of the timer; the next one must be later.
    fn on_timer(&mut self, now_ns: i64, queue: &Queue, params: &Params) {}

    /// Returns the value of a variable, by its number.
    fn variable(&self, number: i32) -> i64 {
        0
    }
}

/// The state of one queue of a scheduler: the packet with the lowest rank leaves first. Only the
/// hooks that [`scheduler!`] names are called, and `rank`.
#[allow(dead_code, unused_variables)]
pub trait Rank: Default {
    /// Returns the rank of an arriving packet.
    fn rank(&mut self, packet: &Packet, queue: &Queue, params: &Params) -> u64;

    /// Notes that a packet was accepted.
    fn on_enqueue(&mut self, packet: &Packet, rank: u64, queue: &Queue, params: &Params) {}

    /// Notes that a packet leaves.
    fn on_dequeue(&mut self, packet: &Packet, rank: u64, queue: &Queue, params: &Params) {}

    /// Returns the value of a variable, by its number.
    fn variable(&self, number: i32) -> i64 {
        0
    }
}

/// Functions that a module may call.
#[cfg(target_arch = "wasm32")]
#[allow(dead_code)]
pub mod host {
    #[link(wasm_import_module = "sluice")]
    extern "C" {
        /// 64 uniform bits of the run's seed.
        pub fn random() -> i64;
        /// Bytes in the whole discipline.
        pub fn total_bytes() -> i64;
        /// Limits of the queue.
        pub fn limit_packets() -> i64;
        /// Limits of the queue.
        pub fn limit_bytes() -> i64;
        /// Wire packets in the current packet.
        pub fn segments() -> i64;
        /// Codepoint of the current packet.
        pub fn dscp() -> i64;
        /// Class of the packet in question.
        pub fn class() -> i64;
        /// The number that its host gave the packet in question.
        pub fn tag() -> i64;
        /// The host that sent the packet in question.
        pub fn src() -> i64;
        /// The host that the packet in question is for.
        pub fn dst() -> i64;
        /// In `rank`: the packet must not leave before this time.
        pub fn hold_until(time_ns: i64);
    }
}

/// Allocates the state of a queue, which lasts as long as its discipline.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub fn allocate<T: Default>() -> *mut T {
    use core::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    static END: AtomicUsize = AtomicUsize::new(0);
    let size = (core::mem::size_of::<T>() + 15) & !15;
    let (mut next, mut end) = (NEXT.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
    if end - next < size {
        let pages = (size + 65535) >> 16;
        let at = core::arch::wasm32::memory_grow(0, pages);
        if at == usize::MAX {
            core::arch::wasm32::unreachable();
        }
        next = at << 16;
        end = next + (pages << 16);
    }
    NEXT.store(next + size, Ordering::Relaxed);
    END.store(end, Ordering::Relaxed);
    let state = next as *mut T;
    // SAFETY: the memory is fresh, large enough and aligned to 16 bytes, and belongs to this state.
    unsafe { state.write(T::default()) };
    state
}

/// Exports the AQM of a type: its hooks, and the text that declares it.
///
/// ```
/// # use sluice_sdk::{aqm, Aqm, Packet, Params, Queue, Verdict};
/// #[derive(Default)]
/// struct Bound;
///
/// impl Aqm for Bound {
///     fn on_dequeue(&mut self, packet: &Packet, _queue: &Queue, params: &Params) -> Verdict {
///         match packet.sojourn_ns <= params.get(0) {
///             true => Verdict::Pass,
///             false => Verdict::Drop,
///         }
///     }
/// }
///
/// aqm! {
///     Bound: on_dequeue;
///     "abi 1
/// doc drops packets that waited too long
/// param bound span 50ms 1us 100s longest time that a packet may wait"
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! aqm {
    ($state:ty: $($hook:ident),+; $text:literal) => {
        $crate::module!($state, $crate::sluice::Aqm, $text);

        $($crate::aqm!(@ $hook $state);)+
    };
    (@ on_enqueue $state:ty) => { $crate::aqm!(@@ on_enqueue $state => i32, verdict); };
    (@ on_dequeue $state:ty) => { $crate::aqm!(@@ on_dequeue $state => i32, verdict); };
    (@ on_refused $state:ty) => { $crate::aqm!(@@ on_refused $state => (), nothing); };
    (@@ $hook:ident $state:ty => $result:ty, $kind:ident) => {
        #[no_mangle]
        #[allow(clippy::too_many_arguments)]
        extern "C" fn $hook(
            state: &mut $state, now: i64, length: i32, ecn: i32, flow: i32, sojourn: i64,
            packets: i64, bytes: i64,
        ) -> $result {
            let packet = $crate::sluice::Packet::of(now, length, ecn, flow, sojourn);
            let queue = $crate::sluice::Queue { packets, bytes };
            let result = $crate::sluice::Aqm::$hook(state, &packet, &queue, &PARAMS);
            $crate::aqm!(@@@ $kind result)
        }
    };
    (@@@ verdict $result:ident) => { $result as i32 };
    (@@@ nothing $result:ident) => { $result };
    (@ on_empty $state:ty) => {
        #[no_mangle]
        extern "C" fn on_empty(state: &mut $state, now: i64) {
            $crate::sluice::Aqm::on_empty(state, now, &PARAMS);
        }
    };
    (@ next_timer $state:ty) => {
        #[no_mangle]
        extern "C" fn next_timer(state: &$state) -> i64 {
            $crate::sluice::Aqm::next_timer(state, &PARAMS)
        }
    };
    (@ on_timer $state:ty) => {
        #[no_mangle]
        extern "C" fn on_timer(state: &mut $state, now: i64, packets: i64, bytes: i64) {
            let queue = $crate::sluice::Queue { packets, bytes };
            $crate::sluice::Aqm::on_timer(state, now, &queue, &PARAMS);
        }
    };
}

/// Exports the scheduler of a type: `rank`, other hooks, and the text that declares it.
///
/// ```
/// # use sluice_sdk::{scheduler, Packet, Params, Queue, Rank};
/// /// The shortest packet leaves first.
/// #[derive(Default)]
/// struct Shortest;
///
/// impl Rank for Shortest {
///     fn rank(&mut self, packet: &Packet, _queue: &Queue, _params: &Params) -> u64 {
///         packet.size_bytes.into()
///     }
/// }
///
/// scheduler! {
///     Shortest:;
///     "abi 1
/// doc the shortest packet leaves first"
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! scheduler {
    ($state:ty: $($hook:ident),*; $text:literal) => {
        $crate::module!($state, $crate::sluice::Rank, $text);

        #[no_mangle]
        #[allow(clippy::too_many_arguments)]
        extern "C" fn rank(
            state: &mut $state, now: i64, length: i32, ecn: i32, flow: i32, sojourn: i64,
            packets: i64, bytes: i64,
        ) -> u64 {
            let packet = $crate::sluice::Packet::of(now, length, ecn, flow, sojourn);
            let queue = $crate::sluice::Queue { packets, bytes };
            $crate::sluice::Rank::rank(state, &packet, &queue, &PARAMS)
        }

        $($crate::scheduler!(@ $hook $state);)*
    };
    (@ $hook:ident $state:ty) => {
        #[no_mangle]
        #[allow(clippy::too_many_arguments)]
        extern "C" fn $hook(
            state: &mut $state, now: i64, length: i32, ecn: i32, flow: i32, sojourn: i64,
            packets: i64, bytes: i64, rank: u64,
        ) {
            let packet = $crate::sluice::Packet::of(now, length, ecn, flow, sojourn);
            let queue = $crate::sluice::Queue { packets, bytes };
            $crate::sluice::Rank::$hook(state, &packet, rank, &queue, &PARAMS);
        }
    };
}

/// Exports what AQMs and schedulers have in common.
#[doc(hidden)]
#[macro_export]
macro_rules! module {
    ($state:ty, $kind:path, $text:literal) => {
        static PARAMS: $crate::sluice::Params = $crate::sluice::Params::new();

        #[cfg(target_arch = "wasm32")]
        #[link_section = "sluice"]
        #[used]
        static DECLARED: [u8; $text.len()] = {
            let (mut bytes, mut at) = ([0; $text.len()], 0);
            while at < bytes.len() {
                bytes[at] = $text.as_bytes()[at];
                at += 1;
            }
            bytes
        };

        #[no_mangle]
        extern "C" fn set_param(number: i32, value: i64) {
            PARAMS.set(number, value);
        }

        #[cfg(target_arch = "wasm32")]
        #[no_mangle]
        extern "C" fn create() -> *mut $state {
            $crate::sluice::allocate()
        }

        #[no_mangle]
        extern "C" fn variable(state: &$state, number: i32) -> i64 {
            <$state as $kind>::variable(state, number)
        }

        #[cfg(target_arch = "wasm32")]
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo) -> ! {
            core::arch::wasm32::unreachable()
        }
    };
}
