"""The process behind `sluice.mininet`: one router per link, driven by requests in JSON lines.

It ends when its input ends. Then the kernel removes its network namespace and the links in it.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from sluice.router import Router


def main() -> None:
    """Answer each request with one line: `{}` or the error."""
    # Ctrl-C is for the program that builds the network.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("all", "default"):
        switch = Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
        # The ends of links have no addresses. With IPv6, the kernel would assign some and look for
        # neighbours.
        if switch.exists():
            switch.write_text("1")
    routers: dict[str, Router] = {}
    for line in sys.stdin:
        try:
            _carry_out(json.loads(line), routers)
            answer = {}
        except (ValueError, OSError, subprocess.CalledProcessError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def _carry_out(request: dict[str, Any], routers: dict[str, Router]) -> None:
    if "add" in request:
        for end in request["add"]:
            subprocess.run(["ip", "link", "set", end, "up"], check=True)
        # No rule drops packets: a direction without a pipe forwards them unchanged.
        routers[request["socket"]] = Router(
            *request["add"], accept=True, socket=request["socket"], port="packet"
        )
    elif "remove" in request:
        routers.pop(request["remove"]).stop()


if __name__ == "__main__":
    main()
