//! The interface between Sluice and a module, version 1. `docs/modules.md` explains it.

/// Version of the interface. A module declares the version that it was written for.
pub const VERSION: u32 = 1;

/// Name of the custom section in which a module declares itself.
pub const SECTION: &str = "sluice";

/// Name under which functions are imported.
pub const IMPORTS: &str = "sluice";

/// The functions that a module can import.
pub const FUNCTIONS: [&str; 11] = [
    "random",
    "total_bytes",
    "limit_packets",
    "limit_bytes",
    "segments",
    "dscp",
    "class",
    "tag",
    "src",
    "dst",
    "hold_until",
];

/// The verdict: the packet passes.
pub const PASS: i32 = 0;
/// The verdict: the packet is marked and passes. Only for an ECN-capable packet.
pub const MARK: i32 = 1;
/// The verdict: the packet is dropped.
pub const DROP: i32 = 2;

/// Arguments of `on_enqueue`, `on_dequeue`, `on_refused` and `rank`: the queue's handle, the time, the
/// packet's length, ECN codepoint and flow, its sojourn time, and the packets and bytes in the
/// queue. Times are in nanoseconds.
pub type PacketArgs = (i32, i64, i32, i32, i32, i64, i64, i64);

/// Arguments of `on_enqueue` and `on_dequeue` of a scheduler: the same, and the rank.
pub type RankedArgs = (i32, i64, i32, i32, i32, i64, i64, i64, i64);
