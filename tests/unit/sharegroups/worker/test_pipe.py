"""The worker's end of a pipe to a process: whole messages, without waiting for the other end."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import struct
from multiprocessing.connection import Connection
from typing import Any

import pytest

from sharegroups.worker.pipe import Pipe

pytestmark = pytest.mark.asyncio


def ends() -> tuple[Pipe, Connection[Any, Any]]:
    ours, theirs = multiprocessing.Pipe()
    return Pipe(ours, asyncio.get_running_loop()), theirs


@pytest.mark.rule("CL-122")
async def test_messages_come_whole_in_order_and_both_ways() -> None:
    pipe, theirs = ends()
    assert (pipe.read(), pipe.has_ended) == ([], False)
    for message in ("ready", ("verdict", 0.5), None):
        theirs.send(message)
    assert pipe.read() == ["ready", ("verdict", 0.5), None]
    pipe.send(("topic", b"value"))
    assert theirs.recv() == ("topic", b"value")
    theirs.send("last")
    theirs.close()
    assert (pipe.read(), pipe.has_ended) == (["last"], True)
    with pytest.raises(OSError, match="pipe"):
        pipe.send("more")
    pipe.close()
    pipe.close()
    assert pipe.fileno() == -1


@pytest.mark.rule("CL-122")
@pytest.mark.parametrize("long", [False, True])
async def test_a_message_is_read_once_its_last_byte_has_come(long: bool) -> None:
    pipe, theirs = ends()
    packed = pickle.dumps("x" * 1_000)
    head = struct.pack("!iQ", -1, len(packed)) if long else struct.pack("!i", len(packed))
    for byte in head + packed[:-1]:
        os.write(theirs.fileno(), bytes([byte]))
        assert pipe.read() == []
    os.write(theirs.fileno(), packed[-1:] + head[:3])
    assert pipe.read() == ["x" * 1_000]
    theirs.close()
    assert (pipe.read(), pipe.has_ended) == ([], True), "half a message is none"
    pipe.close()


@pytest.mark.rule("CL-122")
async def test_what_finds_no_room_is_sent_when_the_other_end_reads() -> None:
    pipe, theirs = ends()
    value = b"v" * 5_000_000
    pipe.send(value)
    assert pipe.is_sending
    reading = asyncio.get_running_loop().run_in_executor(None, theirs.recv)
    assert await asyncio.wait_for(reading, 30) == value
    assert not pipe.is_sending
    pipe.send(value)
    theirs.close()
    await asyncio.sleep(0.05)
    assert pipe.is_sending, "no error is raised: the end of the process is noticed elsewhere"
    pipe.close()
