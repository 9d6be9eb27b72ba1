/* A step in the delay or the length of the queue, like `step` of Sluice: marks every packet beyond a
 * threshold, as DCTCP (RFC 8257 section 3.1) and L4S senders (RFC 9332) expect. It has no state. */
#include "sluice.h"

SLUICE_AQM("marks every packet beyond a threshold of time or bytes",
           SLUICE_PARAM(threshold, span, "1ms", "0s", "100s", "sojourn time above which a departing packet is marked")
           SLUICE_PARAM(threshold_bytes, bytes, "1GiB", "0", "1GiB", "queue above which an arriving packet is marked")
           SLUICE_FLAG(l4s, "off", "mark only ECT(1) and CE packets")
           SLUICE_FLAG(drop, "off", "drop packets that are not ECN-capable instead of passing them"));

enum { ECT1 = 1, CE = 3 };

static int64_t params[4];
#define THRESHOLD params[0]
#define THRESHOLD_BYTES params[1]
#define L4S params[2]
#define DROPS params[3]

void SLUICE_EXPORT(set_param)(int32_t number, int64_t value)
{
    params[number] = value;
}

int32_t SLUICE_EXPORT(create)(void)
{
    return 0;
}

static int32_t signal(int32_t ecn)
{
    if (L4S ? ecn == ECT1 || ecn == CE : ecn != 0)
        return SLUICE_MARK;
    return DROPS ? SLUICE_DROP : SLUICE_PASS;
}

int32_t SLUICE_EXPORT(on_enqueue)(int32_t state, int64_t now, int32_t length, int32_t ecn, int32_t flow,
                                  int64_t sojourn, int64_t packets, int64_t bytes)
{
    return bytes > THRESHOLD_BYTES ? signal(ecn) : SLUICE_PASS;
}

int32_t SLUICE_EXPORT(on_dequeue)(int32_t state, int64_t now, int32_t length, int32_t ecn, int32_t flow,
                                  int64_t sojourn, int64_t packets, int64_t bytes)
{
    return sojourn > THRESHOLD ? signal(ecn) : SLUICE_PASS;
}
