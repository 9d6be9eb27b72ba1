/* AQMs and schedulers for Sluice as WebAssembly modules, interface version 1 (docs/modules.md).
 *
 *     clang --target=wasm32 -O2 -nostdlib -fno-builtin -mno-bulk-memory -I sdk/c \
 *         -Wl,--no-entry,--stack-first,-z,stack-size=8192 -o my.wasm my.c
 *
 * A module declares itself once with SLUICE_AQM or SLUICE_SCHEDULER, exports `create` and the hooks
 * that it needs with SLUICE_EXPORT, and has no floating-point numbers. Times are in nanoseconds. */
#ifndef SLUICE_H
#define SLUICE_H

typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
_Static_assert(sizeof(int32_t) == 4 && sizeof(int64_t) == 8, "the target is wasm32");

/* Verdicts of on_enqueue and on_dequeue. */
enum {
    SLUICE_PASS = 0,
    SLUICE_MARK = 1, /* only for an ECN-capable packet: ecn != 0 */
    SLUICE_DROP = 2,
};

/* Exports a function under its own name. */
#define SLUICE_EXPORT(name) __attribute__((export_name(#name))) name

/* Declares the AQM: a documentation line and the lines of SLUICE_PARAM, SLUICE_FLAG and
 * SLUICE_VARIABLE. Numbers of parameters and variables count from 0 in this order. */
#define SLUICE_AQM(doc, lines)                                                                     \
    __asm__(".section .custom_section.sluice,\"\",@\n"                                             \
            ".ascii \"abi 1\\ndoc " doc "\\n" lines "\"\n"                                         \
            ".text\n")

/* Declares a scheduler, which exports `rank`: the packet with the lowest rank leaves first. */
#define SLUICE_SCHEDULER(doc, lines) SLUICE_AQM(doc, lines)

/* kind: span (ns), rate (bit/s), bytes, count or ratio (billionths). */
#define SLUICE_PARAM(name, kind, preset, low, high, doc)                                           \
    "param " #name " " #kind " " preset " " low " " high " " doc "\\n"
#define SLUICE_FLAG(name, preset, doc) "param " #name " flag " preset " " doc "\\n"
/* kind: count, time (ns), span (ns), ratio (billionths) or flag. */
#define SLUICE_VARIABLE(name, kind) "var " #name " " #kind "\\n"

#define SLUICE_IMPORT(name) __attribute__((import_module("sluice"), import_name(#name)))

/* 64 uniform bits of the run's seed. */
SLUICE_IMPORT(random) int64_t sluice_random(void);
/* Bytes in the whole discipline, and the limits of the queue. */
SLUICE_IMPORT(total_bytes) int64_t sluice_total_bytes(void);
SLUICE_IMPORT(limit_packets) int64_t sluice_limit_packets(void);
SLUICE_IMPORT(limit_bytes) int64_t sluice_limit_bytes(void);
/* Of the packet in question: wire packets in it, its codepoint, its class, the number that its host
 * gave it, and the hosts that it is from and to. */
SLUICE_IMPORT(segments) int64_t sluice_segments(void);
SLUICE_IMPORT(dscp) int64_t sluice_dscp(void);
SLUICE_IMPORT(class) int64_t sluice_class(void);
SLUICE_IMPORT(tag) int64_t sluice_tag(void);
SLUICE_IMPORT(src) int64_t sluice_src(void);
SLUICE_IMPORT(dst) int64_t sluice_dst(void);
/* In `rank`: the packet must not leave before this time. */
SLUICE_IMPORT(hold_until) void sluice_hold_until(int64_t time);

/* Memory for the states of queues: grows and is never freed, since a queue lasts as long as its
 * discipline. Returns 0 when the module's memory is full. */
static inline void *sluice_allocate(uint32_t bytes)
{
    extern unsigned char __heap_base;
    static uint32_t next, end;
    if (!next) {
        next = ((uint32_t)&__heap_base + 15) & ~15u;
        end = (uint32_t)__builtin_wasm_memory_size(0) << 16;
    }
    bytes = (bytes + 15) & ~15u;
    if (end - next < bytes) {
        uint32_t pages = (bytes - (end - next) + 65535) >> 16;
        if (__builtin_wasm_memory_grow(0, pages) == (unsigned long)-1)
            return 0;
        end += pages << 16;
    }
    void *at = (void *)next;
    next += bytes;
    return at;
}

#endif
