"""The host name of a store node: resolved before connecting, given up cleanly, and every address is tried."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from shard_runtime.record_log.redis.connection import ConnectionLostError
from shard_runtime.record_log.redis.topology import open_store
from tests.support.stores import Server

#: Connects to a name that does not exist, gives up during the lookup, and later prints the loop's complaints. Lookups
#: run one after the other, so when the second one has failed, the first has too.
GIVES_UP = """
import asyncio, gc, uvloop
from shard_runtime.record_log.redis.topology import open_store

async def main():
    loop, said = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: said.append((context["message"], context.get("exception"))))
    connecting = asyncio.create_task(open_store("redis://no-such-store.invalid.:6379").connect(""))
    for _ in range(5):
        await asyncio.sleep(0)
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    assert connecting.cancelled(), connecting
    try:
        await loop.getaddrinfo("no-other-either.invalid.", 6379)
    except OSError:
        await asyncio.sleep(0)
    else:
        raise AssertionError("a name under .invalid was found")
    del connecting
    gc.collect()
    print(said)

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


@pytest.mark.rule("CM-19")
def test_a_lookup_that_is_given_up_leaves_no_complaint_behind_when_it_fails_later() -> None:
    pytest.importorskip("uvloop", reason="its lookups are the ones that stayed behind")
    environment = {**os.environ, "UV_THREADPOOL_SIZE": "1", "RES_OPTIONS": "timeout:1 attempts:1"}
    ran = subprocess.run(
        [sys.executable, "-c", GIVES_UP], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "[]"), ran.stderr


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    one = Server()
    await one.start()
    yield one
    one.stop()


def names(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Resolve every name to these addresses from now on."""

    async def found(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)


@pytest.mark.rule("CM-19")
@pytest.mark.asyncio
async def test_every_address_of_a_name_is_tried(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "127.0.0.2", "127.0.0.2", "127.0.0.1")
    connection = await open_store(f"redis://store:{server.port}").connect("")
    assert await connection.run([("PING",)], 1_000) == [b"PONG"]
    await connection.close()


@pytest.mark.rule("CM-19")
@pytest.mark.asyncio
async def test_what_fails_names_the_store_and_the_cause(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"store:{server.port}"
    for hosts, cause in (
        (("127.0.0.2",), f"cannot connect to {address}: Error 111 connecting to 127.0.0.2:{server.port}"),
        ((), f"cannot connect to {address}: its name has no address"),
    ):
        names(monkeypatch, *hosts)
        with pytest.raises(ConnectionLostError, match=cause):
            await open_store(f"redis://{address}").connect("")
    monkeypatch.undo()
    with pytest.raises(ConnectionLostError, match="its name cannot be looked up"):
        await open_store("redis://no-such-store.invalid.:6379").connect("")
    with pytest.raises(ConnectionLostError, match="label"):
        await open_store(f"redis://{'s' * 64}:6379").connect("")
