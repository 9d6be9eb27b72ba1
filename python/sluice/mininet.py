"""Mininet links with Sluice's queues: `SluiceLink` replaces `TCLink`.

`sudo mn --custom "$(python3 -m sluice.mininet)" --link sluice,bw=10,delay=5ms,queue=fq_codel`, or
`Mininet(topo, link=SluiceLink)` with `addLink(h1, s1, bw=10, delay="5ms", queue="fq_codel")`.

Each link is two veth pairs with a router between them. One process runs the routers of all links.
It ends with the last link, with the process that made the links, or by `mn -c`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from mininet.link import Intf, Link
from mininet.log import error, info
from mininet.util import quietRun

from sluice import algorithms
from sluice._sluice import parse_span
from sluice.router import Router

__all__ = ["SluiceIntf", "SluiceLink", "links"]


class SluiceIntf(Intf):  # type: ignore[misc]
    """An interface with the keywords of `TCIntf` and the keyword `queue`.

    They apply to packets that leave the node through the interface.
    """

    # TCIntf's upper limit comes from tc.
    bwParamMax = 1_000_000

    def config(
        self,
        bw: float | None = None,
        delay: str | float | None = None,
        jitter: str | float | None = None,
        loss: float | None = None,
        gro: bool = False,
        txo: bool = True,
        rxo: bool = True,
        speedup: float = 0,
        use_hfsc: bool = False,
        use_tbf: bool = False,
        latency_ms: float | None = None,
        enable_ecn: bool = False,
        enable_red: bool = False,
        max_queue_size: int | None = None,
        queue: str | None = None,
        **params: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """Configure the interface, and the direction of the link that begins at it.

        `bw` is in Mbit/s and counts Ethernet frames, `delay` and `jitter` are times such as
        `"5ms"`, `loss` is in percent, `max_queue_size` in packets. `queue` is written as in `sluice
        list`, such as `"fq_codel"` or `"codel target 10ms"`; the default is a FIFO of 1000 packets.
        `enable_ecn` and `enable_red` select RED with the thresholds of `TCIntf`. As in `TCIntf`,
        `latency_ms` needs `use_tbf`; otherwise `use_tbf` and `use_hfsc` have no effect. A later
        call changes the link while it runs. Its packets stay, unless another discipline replaces
        the queue.

        Raises:
            SluiceError: a value is wrong; the message is that of the command line.

        """
        gro = not params.pop("disable_gro", not gro)
        done: dict[str, Any] = super().config(**params)
        states = [word for pair in (("gro", gro), ("tx", txo), ("rx", rxo)) for word in _on(*pair)]
        self.cmd("ethtool", "-K", self, *states)
        if bw is not None and not 0 < bw <= self.bwParamMax:
            error(f"*** Bandwidth limit {bw} is outside of 0..{self.bwParamMax}, ignoring it\n")
            bw = None
        if speedup > 0 and bw is not None and self.node.name[:1] == "s":
            bw = speedup
        if loss is not None and not 0 <= loss <= 100:
            error(f"*** Bad loss percentage {loss}, ignoring it\n")
            loss = None
        if latency_ms is None and use_tbf and bw is not None:
            latency_ms = 15.0 * 8 / bw
        words = []
        shown = []
        if bw is not None:
            # tc counts the Ethernet header, Sluice's routers count IP packets.
            words.append(f"bw {bw:.12g}Mbit/s overhead 14")
            shown.append(f"{bw:.2f}Mbit")
        for name, value in (("delay", delay), ("jitter", jitter)):
            if value:
                words.append(f"{name} {_time(value)}")
                shown.append(f"{_time(value)} {name}")
        if loss:
            words.append(f"plr {loss / 100:.9g}")
            shown.append(f"{loss:.5f}% loss")
        if (enable_ecn or enable_red) and queue is None and bw is not None:
            # min 30000 max 35000 avpkt 1500 burst 20 probability 1; tc computes the weight 1/2 from
            # these.
            queue = "red 0.5/20/23/1" + (" ecn" if enable_ecn else "")
            max_queue_size = max_queue_size or 666
        if not words and queue is None and max_queue_size is None:
            return done
        if use_tbf and latency_ms is not None and bw is not None and max_queue_size is None:
            slots = f"{max(1500, round(bw * latency_ms * 1000 / 8))}Bytes"
        else:
            slots = str(max_queue_size or DEFAULT_QUEUE)
        if queue is not None:
            shown.append(queue)
        info(f"({' '.join(shown)}) ")
        self.link.shape(self.name, words, queue, slots, max_queue_size)
        return done


class SluiceLink(Link):  # type: ignore[misc]
    """A link with the keywords of `TCLink` and the keyword `queue`; `router` is its router."""

    def __init__(self, *args: Any, **params: Any) -> None:  # noqa: ANN401
        """Create the link, as `TCLink` does."""
        params.setdefault("cls1", SluiceIntf)
        params.setdefault("cls2", SluiceIntf)
        self._shaped: dict[str, str] = {}
        self._process: _Routers | None = None
        super().__init__(*args, **params)

    def makeIntfPair(
        self,
        intfname1: str,
        intfname2: str,
        addr1: str | None = None,
        addr2: str | None = None,
        node1: Any = None,  # noqa: ANN401
        node2: Any = None,  # noqa: ANN401
        deleteIntfs: bool = True,
    ) -> tuple[str, str]:
        """Create two pairs of interfaces, and the router between them."""
        self._process = _Routers.running()
        ends = self._process.ends()
        ours = ((intfname1, addr1, node1), (intfname2, addr2, node2))
        for (name, address, node), end in zip(ours, ends, strict=True):
            if deleteIntfs:
                quietRun(f"ip link del {name}")
            words = ["ip", "link", "add", "name", name]
            words += ["address", address] if address else []
            words += ["netns", str(node.pid)] if node else []
            words += ["type", "veth", "peer", "name", end, "netns", str(self._process.pid)]
            made = subprocess.run(words, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                raise RuntimeError(f"`{' '.join(words)}` failed: {made.stderr.strip()}")
        self._ends = dict(zip((intfname1, intfname2), reversed(ends), strict=True))
        self.router = self._process.add(ends)
        return intfname1, intfname2

    def shape(
        self, name: str, words: list[str], queue: str | None, slots: str, limit: int | None
    ) -> None:
        """Configure a pipe and a queue for the direction that begins at the interface `name`."""
        number = 1 + list(self._ends).index(name)
        rule, out = 100 * number, f"ip from any to any out xmit {self._ends[name]}"
        pipe = " ".join([f"pipe {number} config", *words])
        algorithm = (queue or "").split(" ")[0]
        before = self._shaped.get(name)
        lines = [] if before is None else [f"delete {rule}"]
        if queue is None or _is_aqm(algorithm):
            if before == "queue":
                lines += [f"queue {number} delete", f"pipe {number} delete"]
            kind = "pipe"
            lines += [f"{pipe} queue {slots} {queue or ''}"]
        else:
            kind = "queue"
            if limit is not None and " limit " not in f" {queue} ":
                queue = f"{queue} limit {limit}"
            lines += [pipe, f"sched {number} config pipe {number} type {queue}"]
            lines += [f"queue {number} config sched {number}"]
        lines += [f"add {rule} {kind} {number} {out}"]
        self.router.command("\n".join(lines), how="atomic")
        self._shaped[name] = kind

    def delete(self) -> None:
        """Delete the interfaces, and stop the router."""
        if self._process is not None:
            self._process.remove(self.router)
            self._process = None
        super().delete()


class _Routers:
    """The process that runs the routers of all links in its own network namespace."""

    _running: "_Routers | None" = None

    @classmethod
    def running(cls) -> "_Routers":
        if cls._running is None or cls._running._process.poll() is not None:
            cls._running = cls()
        return cls._running

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-mininet-")
        self._links = 0
        self._made = 0
        # `mn -c` finds the processes to kill by this word.
        python = [sys.executable, "-P", "-m", "sluice._routers"]
        words = ["mnexec", "-n", *python, "mininet:sluice"]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._ask({})

    @property
    def pid(self) -> int:
        return self._process.pid

    def ends(self) -> tuple[str, str]:
        """Return names for the two ends of a new link at the router."""
        self._made += 1
        return f"link{self._made}a", f"link{self._made}b"

    def add(self, ends: tuple[str, str]) -> Router:
        socket = str(Path(self._folder.name, ends[0][:-1]))
        self._ask({"add": list(ends), "socket": socket})
        self._links += 1
        return Router.connect(socket)

    def remove(self, router: Router) -> None:
        self._links -= 1
        if self._process.poll() is None:
            self._ask({"remove": str(router.socket)})
            if self._links == 0:
                self._input.close()
                self._process.wait()
        if self._links == 0:
            self._folder.cleanup()
            _Routers._running = None

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin is not None, "it is a pipe"
        return self._process.stdin

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        try:
            self._input.write(json.dumps(request) + "\n")
            self._input.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"the process of the routers ended: status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])


def _is_aqm(name: str) -> bool:
    if name.partition(":")[0] in ("py", "wasm") or name == "red":
        return True
    return any(found["name"] == name and found["form"] == "aqm" for found in algorithms())


def _on(feature: str, is_on: bool) -> tuple[str, str]:
    return feature, "on" if is_on else "off"


def _time(value: str | float) -> str:
    """Format a time in milliseconds; a bare number is in microseconds, as in tc."""
    text = str(value)
    is_bare = text.replace(".", "", 1).isdigit()
    return f"{parse_span(f'{text}us' if is_bare else text) / 1e6:.12g}ms"


# The same as tc's.
DEFAULT_QUEUE = 1000

links = {"sluice": SluiceLink}
"""The link types that `--custom` adds to `mn --link`."""

if __name__ == "__main__":
    print(Path(__file__).with_name("_mininet_custom.py"))
