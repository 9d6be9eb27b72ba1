"""PIE of RFC 8033, appendix A with sections 5.1, 5.4 and 5.5, like `pie` of Sluice."""

import sluice
from sluice.aqm import BacklogView, Context, PacketView

# RFC 8033 section 4.2: the smaller the probability, the smaller its steps.
STEPS = [(1e-6, 2048), (1e-5, 512), (1e-4, 128), (1e-3, 32), (1e-2, 8), (1e-1, 2)]


class Pie(sluice.Aqm):
    """Drops with a probability that a delay controller sets."""

    target: sluice.Span = "15ms"
    """target delay of the controller"""
    tupdate: sluice.Span = "15ms"
    """time between two updates of the probability"""
    alpha: float = 0.125
    """gain of the distance from the target, per second"""
    beta: float = 1.25
    """gain of the change of the delay, per second"""
    max_burst: sluice.Span = "150ms"
    """time for which a burst passes before anything is dropped"""
    max_ecnth: float = 0.1
    """probability above which ECN-capable packets are dropped too"""
    ecn: bool = False
    """mark ECN-capable packets instead of dropping them"""
    mean_packet: sluice.Bytes = 800
    """never drop while at most twice this many bytes are queued"""

    def __init__(self) -> None:
        self.probability = self.accumulated = 0.0
        self.delay = self.old_delay = 0
        self.burst: int | None = None
        self.next_update: int | None = None

    def next_timer(self) -> int:
        # Called once before the first packet, when the parameters are set.
        if self.next_update is None:
            self.next_update, self.burst = self.tupdate, self.max_burst
        return self.next_update

    def on_timer(self, queue: BacklogView, cx: Context) -> None:
        self.catch_up(queue.bytes, cx.now_ns + 1)

    def on_enqueue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        # An arrival precedes an update at the same instant, and a departure follows it.
        self.catch_up(queue.bytes, cx.now_ns)
        drops = self.burst == 0 and self.drops_early(queue, cx)
        self.on_arrival()
        if not drops:
            return sluice.PASS
        if self.ecn and packet.ecn_capable and self.probability < self.max_ecnth:
            return sluice.MARK
        self.accumulated = 0.0
        return sluice.DROP

    def on_dequeue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        self.catch_up(queue.bytes + packet.size_bytes, cx.now_ns + 1)
        self.delay = packet.sojourn_ns
        return sluice.PASS

    def on_refused(self, packet: PacketView, queue: BacklogView, cx: Context) -> None:
        self.catch_up(queue.bytes, cx.now_ns)
        self.on_arrival()
        self.accumulated = 0.0

    def state(self) -> dict[str, float]:
        return {"probability": self.probability, "delay": self.delay}

    def catch_up(self, queued: int, before: int) -> None:
        """Make the updates that are due before an instant, with `queued` bytes in the queue."""
        while self.next_timer() < before:
            self.update(queued)

    def update(self, queued: int) -> None:
        """Compute the next probability: `calculate_drop_prob`."""
        if queued == 0:
            self.delay = 0
        change = self.alpha * (self.delay - self.target) + self.beta * (self.delay - self.old_delay)
        step = change / 1e9 / next((by for below, by in STEPS if self.probability < below), 1)
        if self.probability >= 0.1:
            step = min(step, 0.02)
        following = self.probability + step
        if self.delay == self.old_delay == 0:
            following *= 0.98
        self.probability = min(max(following, 0.0), 1.0)
        self.old_delay = self.delay
        assert self.burst is not None
        assert self.next_update is not None
        self.burst = max(self.burst - self.tupdate, 0)
        self.next_update += self.tupdate

    def on_arrival(self) -> None:
        half = self.target // 2
        if self.probability == 0 and self.delay < half and self.old_delay < half:
            self.burst = self.max_burst

    def drops_early(self, queue: BacklogView, cx: Context) -> bool:
        is_calm = self.old_delay < self.target // 2 and self.probability < 0.2
        if is_calm or queue.bytes <= 2 * self.mean_packet:
            return False
        if self.probability == 0:
            self.accumulated = 0.0
        self.accumulated += self.probability
        if self.accumulated < 0.85:
            return False
        if self.accumulated >= 8.5:
            return True
        drops = cx.random() < self.probability
        if drops:
            self.accumulated = 0.0
        return drops
