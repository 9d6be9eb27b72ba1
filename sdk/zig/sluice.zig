//! AQMs and schedulers for Sluice as WebAssembly modules, interface version 1 (docs/modules.md).

/// Verdicts of `on_enqueue` and `on_dequeue`.
pub const pass: i32 = 0;
/// Only for an ECN-capable packet: `ecn != 0`.
pub const mark: i32 = 1;
pub const drop: i32 = 2;

/// Functions that a module may call.
pub const host = struct {
    /// 64 uniform bits of the run's seed.
    pub extern "sluice" fn random() i64;
    /// Bytes in the whole discipline, and the limits of the queue.
    pub extern "sluice" fn total_bytes() i64;
    pub extern "sluice" fn limit_packets() i64;
    pub extern "sluice" fn limit_bytes() i64;
    /// Of the packet in question: wire packets in it, its codepoint, its class, the number that its
    /// host gave it, and the hosts that it is from and to.
    pub extern "sluice" fn segments() i64;
    pub extern "sluice" fn dscp() i64;
    pub extern "sluice" fn class() i64;
    pub extern "sluice" fn tag() i64;
    pub extern "sluice" fn src() i64;
    pub extern "sluice" fn dst() i64;
    /// In `rank`: the packet must not leave before this time.
    pub extern "sluice" fn hold_until(time: i64) void;
};

/// Returns the assembly that declares the AQM, with the text of the custom section:
/// `comptime { asm (sluice.declaration("abi 1\ndoc ...")); }`
pub fn declaration(comptime text: []const u8) []const u8 {
    @setEvalBranchQuota(100_000);
    comptime var quoted: []const u8 = "";
    inline for (text) |byte| {
        quoted = quoted ++ switch (byte) {
            '\n' => "\\n",
            '"' => "\\\"",
            '\\' => "\\\\",
            else => &[1]u8{byte},
        };
    }
    return ".section .custom_section.sluice,\"\",@\n.ascii \"" ++ quoted ++ "\"\n.text\n";
}

/// Allocates the state of a queue, which lasts as long as its discipline.
pub fn allocate(comptime T: type) *T {
    const size = (@sizeOf(T) + 15) & ~@as(usize, 15);
    if (end - next < size) {
        const pages = (size - (end - next) + 65535) >> 16;
        const at = @wasmMemoryGrow(0, pages);
        if (at < 0) @trap();
        const start = @as(usize, @intCast(at)) << 16;
        if (start != end) next = start;
        end = start + (pages << 16);
    }
    const at: *T = @ptrFromInt(next);
    next += size;
    return at;
}

var next: usize = 0;
var end: usize = 0;
