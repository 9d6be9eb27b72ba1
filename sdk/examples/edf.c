/* Earliest deadline first, like `pifo rank edf` of Sluice. It has no state. */
#include "sluice.h"

SLUICE_SCHEDULER("the packet whose deadline is next leaves first",
                 SLUICE_PARAM(deadline, span, "10ms", "0s", "100s", "deadline of a packet for which the host gave none"));

static int64_t deadline;

void SLUICE_EXPORT(set_param)(int32_t number, int64_t value)
{
    deadline = value;
}

int32_t SLUICE_EXPORT(create)(void)
{
    return 0;
}

int64_t SLUICE_EXPORT(rank)(int32_t state, int64_t now, int32_t length, int32_t ecn, int32_t flow,
                            int64_t sojourn, int64_t packets, int64_t bytes)
{
    /* The tag of a packet is its deadline in microseconds after the arrival. */
    int64_t tag = sluice_tag();
    return now - sojourn + (tag ? tag * 1000 : deadline);
}
