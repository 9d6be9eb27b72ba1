"""Puts the frames of a host into VLAN 7: `tag.py HOST TRUNK`, in a namespace with both interfaces.

Frames from HOST leave through TRUNK with a tag. Frames of the VLAN from TRUNK leave through HOST
without one; all others are dropped. Super-packets pass whole. A kernel without VLANs cannot do this
itself.
"""

import select
import socket
import struct
import sys

SOL_PACKET = 263
# linux/if_packet.h
PACKET_AUXDATA = 8
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
TP_STATUS_VLAN_VALID = 1 << 4
ETH_P_ALL = 3
# linux/virtio_net.h: flags, type, length of headers, size of segments, place of the checksum.
VNET = struct.Struct("=BBHHHH")
NEEDS_CSUM = 1
# struct tpacket_auxdata: status, two lengths, two offsets, tag, type of the tag.
AUXDATA = struct.Struct("=IIIHHHH")
TAG = struct.pack("!HH", 0x8100, 7)


def opened(interface: str) -> socket.socket:
    """Open an interface for frames and super-packets."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    for name in (PACKET_AUXDATA, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING):
        port.setsockopt(SOL_PACKET, name, 1)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    port.bind((interface, ETH_P_ALL))
    return port


def received(port: socket.socket) -> tuple[bytes, int | None]:
    """Return the next frame behind its offload header, and its tag, which the kernel takes away."""
    data, more, _, _ = port.recvmsg(1 << 17, 256)
    for level, kind, content in more:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, *_, tag, _ = AUXDATA.unpack(content[: AUXDATA.size])
            return data, tag if status & TP_STATUS_VLAN_VALID else None
    return data, None


def tagged(data: bytes) -> bytes:
    """Insert the tag behind the addresses."""
    flags, kind, headers, size, start, offset = VNET.unpack(data[: VNET.size])
    frame = data[VNET.size :]
    if flags & NEEDS_CSUM:
        start += len(TAG)
    if kind:
        headers += len(TAG)
    vnet = VNET.pack(flags & NEEDS_CSUM, kind, headers, size, start, offset)
    return vnet + frame[:12] + TAG + frame[12:]


def main() -> None:
    """Pass frames on in both directions."""
    host, trunk = map(opened, sys.argv[1:])
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([host, trunk], [], [])
        if host in readable:
            data, tag = received(host)
            if tag is None:
                trunk.send(tagged(data))
        if trunk in readable:
            data, tag = received(trunk)
            if tag == 7:
                host.send(data)


main()
