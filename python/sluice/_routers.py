"""The process of `sluice.mininet`: a router for each link, and requests for them as lines of JSON.

It ends with its input. Then the kernel removes its network namespace, with the links in it.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from sluice.router import Router


def main() -> None:
    """Answer each request with a line: `{}`, or the error."""
    # Ctrl-C is for the program that makes the net.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("all", "default"):
        switch = Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
        # The ends of links have no addresses; without IPv6 they do not look for any.
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
        # No rule drops packets: a direction without a pipe is a wire.
        routers[request["socket"]] = Router(
            *request["add"], accept=True, socket=request["socket"], port="packet"
        )
    elif "remove" in request:
        routers.pop(request["remove"]).stop()


if __name__ == "__main__":
    main()
