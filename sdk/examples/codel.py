"""CoDel of RFC 8289, sections 5.5 and 5.6, like `codel` of Sluice with `variant rfc`.

The loops of the pseudo-code are unrolled into one decision per packet.
"""

from math import isqrt

import sluice
from sluice.aqm import BacklogView, Context, PacketView

NOTHING, ENTERED, DROPPED = range(3)


class Codel(sluice.Aqm):
    """Signals when the delay exceeds a target for an interval."""

    target: sluice.Span = "5ms"
    interval: sluice.Span = "100ms"
    ecn: bool = False
    mtu: sluice.Bytes = 1514

    def __init__(self) -> None:
        self.first_above = self.drop_next = 0
        self.count = self.last_count = 0
        self.dropping = False
        self.pending = NOTHING

    def on_dequeue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        now = cx.now_ns
        may_drop = self.may_drop(packet, queue, now)
        pending, self.pending = self.pending, NOTHING
        if pending == ENTERED:
            return sluice.PASS
        if pending == NOTHING and not self.dropping:
            return self.enter(packet, now) if may_drop else sluice.PASS
        if not may_drop:
            self.dropping = False
            return sluice.PASS
        if pending == DROPPED:
            self.drop_next = self.control_law(self.drop_next)
        if now < self.drop_next:
            return sluice.PASS
        self.count += 1
        verdict = self.signal(packet)
        if verdict == sluice.MARK:
            self.drop_next = self.control_law(self.drop_next)
        else:
            self.pending = DROPPED
        return verdict

    def on_empty(self, cx: Context) -> None:
        if self.pending != ENTERED:
            self.dropping = False
        self.pending = NOTHING
        self.first_above = 0

    def state(self) -> dict[str, float]:
        return {"count": self.count, "dropping": self.dropping, "drop_next": self.drop_next}

    def may_drop(self, packet: PacketView, queue: BacklogView, now: int) -> bool:
        if packet.sojourn_ns < self.target or queue.bytes <= self.mtu:
            self.first_above = 0
            return False
        if self.first_above == 0:
            self.first_above = now + self.interval
            return False
        return now >= self.first_above

    def enter(self, packet: PacketView, now: int) -> int:
        delta = self.count - self.last_count
        recent = now - self.drop_next < 16 * self.interval
        self.count = self.last_count = delta if delta > 1 and recent else 1
        self.dropping = True
        self.drop_next = self.control_law(now)
        verdict = self.signal(packet)
        if verdict == sluice.DROP:
            self.pending = ENTERED
        return verdict

    def signal(self, packet: PacketView) -> int:
        return sluice.MARK if self.ecn and packet.ecn_capable else sluice.DROP

    def control_law(self, t: int) -> int:
        """Return t + interval / sqrt(count)."""
        return t + isqrt(self.interval * self.interval // self.count)
