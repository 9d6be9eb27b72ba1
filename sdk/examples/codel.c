/* CoDel of RFC 8289, sections 5.5 and 5.6, like `codel` of Sluice with `variant rfc`: the loops of
 * the pseudo-code are unrolled into one decision per packet. */
#include "sluice.h"

SLUICE_AQM("controlled delay: signals when the delay exceeds a target for an interval",
           SLUICE_PARAM(target, span, "5ms", "1us", "100s", "sojourn time that a standing queue may have")
           SLUICE_PARAM(interval, span, "100ms", "1us", "4s", "a worst-case RTT")
           SLUICE_FLAG(ecn, "off", "mark ECN-capable packets instead of dropping them")
           SLUICE_PARAM(mtu, bytes, "1514", "0", "65536", "never signal when at most this many bytes remain queued")
           SLUICE_VARIABLE(count, count)
           SLUICE_VARIABLE(dropping, flag)
           SLUICE_VARIABLE(drop_next, time)
           SLUICE_VARIABLE(first_above, time));

enum pending { NOTHING, ENTERED, DROPPED };

struct codel {
    uint64_t first_above, drop_next;
    uint32_t count, last_count;
    int32_t dropping;
    enum pending pending;
};

static int64_t params[4];
#define TARGET params[0]
#define INTERVAL ((uint64_t)params[1])
#define ECN params[2]
#define MTU params[3]

void SLUICE_EXPORT(set_param)(int32_t number, int64_t value)
{
    params[number] = value;
}

struct codel *SLUICE_EXPORT(create)(void)
{
    struct codel *codel = sluice_allocate(sizeof *codel);
    if (!codel)
        __builtin_trap();
    return codel; /* fresh memory is zero */
}

int64_t SLUICE_EXPORT(variable)(struct codel *codel, int32_t number)
{
    switch (number) {
    case 0: return codel->count;
    case 1: return codel->dropping;
    case 2: return (int64_t)codel->drop_next;
    default: return (int64_t)codel->first_above;
    }
}

/* The largest integer whose square is at most n. */
static uint64_t root(uint64_t n)
{
    if (n == 0)
        return 0;
    /* Newton's method from above: the first guess is a power of two that is at least the root. */
    uint64_t guess = 1ull << ((64 - __builtin_clzll(n) + 1) / 2), next;
    while ((next = (guess + n / guess) / 2) < guess)
        guess = next;
    return guess;
}

/* t + interval / sqrt(count) */
static uint64_t control_law(uint64_t t, uint32_t count)
{
    return t + root(INTERVAL * INTERVAL / (count ? count : 1));
}

static int32_t signal(int32_t ecn)
{
    return ECN && ecn ? SLUICE_MARK : SLUICE_DROP;
}

static int may_drop(struct codel *codel, uint64_t now, int64_t sojourn, int64_t bytes)
{
    if (sojourn < TARGET || bytes <= MTU) {
        codel->first_above = 0;
        return 0;
    }
    if (!codel->first_above) {
        codel->first_above = now + INTERVAL;
        return 0;
    }
    return now >= codel->first_above;
}

static int32_t enter(struct codel *codel, uint64_t now, int32_t ecn)
{
    uint32_t delta = codel->count - codel->last_count;
    uint64_t since = now > codel->drop_next ? now - codel->drop_next : 0;
    codel->count = delta > 1 && since < 16 * INTERVAL ? delta : 1;
    codel->last_count = codel->count;
    codel->dropping = 1;
    codel->drop_next = control_law(now, codel->count);
    int32_t verdict = signal(ecn);
    if (verdict == SLUICE_DROP)
        codel->pending = ENTERED;
    return verdict;
}

int32_t SLUICE_EXPORT(on_dequeue)(struct codel *codel, int64_t time, int32_t len, int32_t ecn, int32_t flow,
                                  int64_t sojourn, int64_t packets, int64_t bytes)
{
    uint64_t now = (uint64_t)time;
    int may = may_drop(codel, now, sojourn, bytes);
    enum pending pending = codel->pending;
    codel->pending = NOTHING;
    if (pending == ENTERED)
        return SLUICE_PASS;
    if (pending == NOTHING && !codel->dropping)
        return may ? enter(codel, now, ecn) : SLUICE_PASS;
    if (!may) {
        codel->dropping = 0;
        return SLUICE_PASS;
    }
    if (pending == DROPPED)
        codel->drop_next = control_law(codel->drop_next, codel->count);
    if (now < codel->drop_next)
        return SLUICE_PASS;
    if (codel->count != 0xffffffffu)
        codel->count++;
    int32_t verdict = signal(ecn);
    if (verdict == SLUICE_MARK)
        codel->drop_next = control_law(codel->drop_next, codel->count);
    else
        codel->pending = DROPPED;
    return verdict;
}

void SLUICE_EXPORT(on_empty)(struct codel *codel, int64_t now)
{
    if (codel->pending != ENTERED)
        codel->dropping = 0;
    codel->pending = NOTHING;
    codel->first_above = 0;
}
