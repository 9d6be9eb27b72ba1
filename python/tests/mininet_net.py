"""A net of three switches for test_mininet.py, which runs this as root in namespaces of its own."""

import json
import os
import re
import subprocess
import sys
import time
from typing import Any

from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
from mininet.topo import Topo

from sluice.mininet import SluiceIntf, SluiceLink


class Three(Topo):  # type: ignore[misc]
    """Three switches in a row, each with a host."""

    def build(self) -> None:
        """Add the nodes and links."""
        for n in (1, 2, 3):
            self.addSwitch(f"s{n}")
            self.addHost(f"h{n}", ip=f"10.0.0.{n}/8")
            self.addLink(f"h{n}", f"s{n}", delay="2ms")
        self.addLink("s1", "s2", bw=10, delay="10ms", queue="fq_codel")
        self.addLink("s2", "s3", bw=20, delay="6ms", loss=0, queue="codel target 8ms")


def processes() -> list[str]:
    """Return the processes of the routers."""
    words = ["pgrep", "-f", "sluice._routers mininet:"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()


def interfaces() -> list[str]:
    """Return the interfaces of the namespace."""
    shown = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^\d+: ([^:@]+)", shown, re.MULTILINE)


def ping(net: Any, count: int = 4) -> tuple[int, float]:  # noqa: ANN401
    """Send pings from the first host to the last; return the answers and the shortest time."""
    said = net["h1"].cmd(f"ping -c {count} -i 0.2 -W 20 {net['h3'].IP()}")
    times = [float(t) for t in re.findall(r"time=([0-9.]+)", said)]
    return len(times), min(times, default=0.0)


def link_of(net: Any, a: str, b: str) -> SluiceLink:  # noqa: ANN401
    """Return the link between two nodes."""
    (found,) = net.linksBetween(net[a], net[b])
    assert isinstance(found, SluiceLink)
    return found


def main() -> None:
    """Create the net, and print the measurements."""
    seen: dict[str, Any] = {}
    net = Mininet(
        topo=Three(), switch=LinuxBridge, link=SluiceLink, controller=None, waitConnected=False
    )
    net.start()
    seen["lost"] = net.pingAll()
    seen["processes"] = len(processes())
    seen["links"] = len(net.links)
    seen["ping"] = ping(net)
    middle = link_of(net, "s1", "s2")
    seen["schedulers"] = middle.router.command("sched show")
    seen["pipes"] = [pipe["link"]["rate_bps"] for pipe in middle.router.show("pipe")["pipes"]]
    seen["codel"] = link_of(net, "s2", "s3").router.command("pipe show")
    # In one direction, while it runs.
    interface = middle.intf1
    assert isinstance(interface, SluiceIntf)
    interface.config(bw=5, delay="40ms", max_queue_size=50)
    seen["slower"] = ping(net)
    seen["changed"] = [pipe["link"]["rate_bps"] for pipe in middle.router.show("pipe")["pipes"]]
    # TCP through the slower direction: nothing can be faster than the link.
    net["h3"].cmd("iperf -s &")
    deadline = time.monotonic() + 20
    while ":5001" not in net["h3"].cmd("ss -ltn") and time.monotonic() < deadline:
        time.sleep(0.05)
    said = net["h1"].cmd(f"iperf -c {net['h3'].IP()} -t 2 -y C")
    seen["bits"] = int(said.strip().splitlines()[-1].split(",")[7])
    if sys.argv[1:] == ["wait"]:
        print(json.dumps(seen), flush=True)
        # For the test of `mn -c`: this process is stopped with everything in place.
        time.sleep(600)
    net.stop()
    seen["left"] = [processes(), interfaces()]
    print(json.dumps(seen))


if __name__ == "__main__":
    assert os.geteuid() == 0
    main()
