"""RED of Floyd and Jacobson (1993), like `red` of Sluice in its default form.

The average is kept in 2^-32 packets and the probability in 2^-56, as in Sluice, so that every
decision is the same.
"""

import sluice
from sluice.aqm import BacklogView, Context, PacketView

ONE = 1 << 56


class Red(sluice.Aqm):
    """Drops more as the average queue grows."""

    min: int = 5
    """average queue, in packets, below which nothing is dropped"""
    max: int = 15
    """average queue from which everything is dropped"""
    max_p: float = 0.02
    """probability of a drop when the average reaches `max`"""
    wq: float = 0.002
    """weight of one packet in the average"""
    mean_packet: sluice.Bytes = 1000
    """packet whose time on the link counts while the queue is idle"""
    bandwidth: sluice.Rate = "10Mbit/s"
    """rate of the link"""
    ecn: bool = False
    """mark ECN-capable packets instead of dropping them, up to `max`"""

    def __init__(self) -> None:
        self.average = 0
        self.idle_since: int | None = 0
        self.count: int | None = None

    def on_enqueue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        self.measure(queue, cx.now_ns)
        low, high = self.min << 32, self.max << 32
        if self.average < low:
            self.count = None
            return sluice.PASS
        if self.average >= high:
            self.count = 0
            return sluice.DROP
        chance = fraction(self.max_p, 56) * (self.average - low) // (high - low)
        if not self.drops_by(chance, cx):
            return sluice.PASS
        return sluice.MARK if self.ecn and packet.ecn_capable else sluice.DROP

    def on_dequeue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        if queue.packets == 0:
            self.idle_since = cx.now_ns
        return sluice.PASS

    def on_refused(self, packet: PacketView, queue: BacklogView, cx: Context) -> None:
        self.measure(queue, cx.now_ns)
        self.count = 0

    def state(self) -> dict[str, float]:
        return {"average": self.average / 2**32}

    def measure(self, queue: BacklogView, now: int) -> None:
        """Update the average; an idle queue counts as if small packets had found it empty."""
        weight = fraction(self.wq, 32)
        if self.idle_since is not None and queue.packets == 0:
            one = -(-self.mean_packet * 8 * 10**9 // self.bandwidth)
            missed, rest = divmod(now - self.idle_since, one)
            kept = power((1 << 32) - weight, missed)
            self.average = self.average * kept >> 32
            # If this packet is dropped, the rest counts for the next one.
            self.idle_since = now - rest
        else:
            self.average += ((queue.packets << 32) - self.average) * weight >> 32

    def drops_by(self, chance: int, cx: Context) -> bool:
        """Space the drops: the longer ago the last one, the more likely the next."""
        count = 0 if self.count is None else self.count + 1
        spent = min(count * chance, ONE)
        drops = (cx.random_bits() >> 8) * (ONE - spent) < chance * ONE
        self.count = 0 if drops else count
        return drops


def fraction(ratio: float, bits: int) -> int:
    """Return a parameter, which is exact to 1e-9, in units of 2^-bits."""
    return (round(ratio * 1e9) << bits) // 10**9


def power(base: int, exponent: int) -> int:
    """Return a power of a fraction in 2^-32, rounded after each step."""
    result = 1 << 32
    while exponent and result:
        if exponent & 1:
            result = result * base >> 32
        base = base * base >> 32
        exponent >>= 1
    return result
