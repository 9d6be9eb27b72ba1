"""A discipline that holds packets itself: one queue per flow, served in turn."""

from collections import OrderedDict, deque

import sluice
from sluice.aqm import Packet, QueueContext


class Fair(sluice.Discipline):
    """One packet of each flow in turn."""

    share: int = 100
    """packets that one flow may have in the queue"""

    def __init__(self) -> None:
        self.flows: OrderedDict[int, deque[Packet]] = OrderedDict()

    def enqueue(self, packet: Packet, cx: QueueContext) -> None:
        flow = self.flows.setdefault(packet.flow, deque())
        flow.append(packet)
        if len(flow) > self.share:
            cx.drop(flow.popleft(), "evicted")

    def dequeue(self, cx: QueueContext) -> Packet | None:
        number, packets = self.flows.popitem(last=False)
        packet = packets.popleft()
        if packets:
            self.flows[number] = packets
        return packet

    def state(self) -> dict[str, float]:
        return {"flows": len(self.flows)}
