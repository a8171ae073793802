"""How the delayer parses the kernel's messages about packets."""

from __future__ import annotations

import struct

import pytest

from tests.chaos.drivers.delayer import attribute, packets

PACKET, VERDICT = 3 << 8, 3 << 8 | 1


def netlink(kind: int, *attributes: bytes) -> bytes:
    """Return one message as the kernel sends it."""
    body = struct.pack(">BBH", 0, 0, 7) + b"".join(attributes)
    size = 16 + len(body)
    return struct.pack("=LHHLL", size, kind, 0, 0, 0) + body + b"\0" * (-size % 4)


def header(number: int) -> bytes:
    """Return the attribute with a packet's number: 4 bytes of it, protocol and hook."""
    return attribute(1, struct.pack(">IHB", number, 0x0800, 1))


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (b"", []),
        (netlink(PACKET, header(5)), [5]),
        (netlink(PACKET, attribute(4, b"odd"), header(6)), [6]),
        (netlink(PACKET, header(7)) + netlink(PACKET, header(1 << 31)), [7, 1 << 31]),
        (netlink(VERDICT, header(8)), []),
    ],
)
def test_the_number_of_every_packet_is_read_whatever_is_before_it(message: bytes, numbers: list[int]) -> None:
    assert list(packets(message)) == numbers
