#!/usr/bin/env python3
"""Forwards every frame between two interfaces over raw sockets, one frame per system call.

Usage: forward.py FIRST SECOND THREADS. With one thread, both sockets are polled.
"""

import select
import socket
import sys
import threading

ALL = 3  # ETH_P_ALL
SOL_PACKET = 263
IGNORE_OUTGOING = 23  # PACKET_IGNORE_OUTGOING


def open_raw(interface: str) -> socket.socket:
    """Open a socket that receives what arrives at an interface, but not what leaves by it."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    opened.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
    opened.bind((interface, ALL))
    return opened


def forward_one(source: socket.socket, target: socket.socket, frame: memoryview) -> None:
    """Receive a frame and send it."""
    length = source.recv_into(frame)
    try:
        target.send(frame[:length])
    except OSError:
        pass  # A full queue of the interface drops the frame, as a router's does.


def one_way(source: socket.socket, target: socket.socket) -> None:
    """Forward the frames of one direction forever."""
    frame = memoryview(bytearray(65536))
    while True:
        forward_one(source, target, frame)


def main() -> None:
    """Forward forever."""
    if len(sys.argv) != 4:
        raise SystemExit("usage: forward.py FIRST SECOND THREADS")
    first, second = open_raw(sys.argv[1]), open_raw(sys.argv[2])
    if sys.argv[3] == "2":
        threading.Thread(target=one_way, args=(second, first), daemon=True).start()
        one_way(first, second)
    frame = memoryview(bytearray(65536))
    poll = select.poll()
    ways = {first.fileno(): (first, second), second.fileno(): (second, first)}
    for descriptor in ways:
        poll.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            forward_one(*ways[descriptor], frame)


main()
