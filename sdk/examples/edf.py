"""Earliest deadline first, like `pifo rank edf` of Sluice."""

import sluice
from sluice.aqm import Context, PacketView


class Edf(sluice.Rank):
    """The packet whose deadline is next leaves first."""

    deadline: sluice.Span = "10ms"
    """deadline, after its arrival, of a packet for which the host gave none"""

    def rank(self, packet: PacketView, cx: Context) -> int:
        # The tag of a packet is its deadline in microseconds after the arrival.
        return packet.arrival_ns + (packet.tag * 1000 or self.deadline)
