"""What becomes of a store's errors, and of a connection that is closed or whose server says nothing."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

from shard_runtime.record_log.redis.connection import ConnectionLostError, ErrorReply
from shard_runtime.record_log.redis.resp import RespConnection, StoreAddress, error_reply
from tests.support.ports import free_port


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (NoScriptError("No matching script."), ErrorReply("NOSCRIPT", "No matching script.")),
        (OutOfMemoryError("command not allowed"), ErrorReply("OOM", "command not allowed")),
        (ReadOnlyError("You can't write"), ErrorReply("READONLY", "You can't write")),
        (ResponseError("WRONGTYPE not a list"), ErrorReply("WRONGTYPE", "not a list")),
        (ResponseError("unknown command 'X'"), ErrorReply("ERR", "unknown command 'X'")),
    ],
)
def test_an_error_that_the_store_answers_keeps_its_code(error: Exception, reply: ErrorReply) -> None:
    assert error_reply(error) == reply


def test_an_address_is_told_as_a_person_writes_it() -> None:
    assert StoreAddress(UnixDomainSocketConnection, {"path": "/run/s"}, 1_000).address == "/run/s"
    assert StoreAddress(Connection, {}, 1_000).address == "localhost:6379"
    first = StoreAddress(SSLConnection, {"host": "a", "port": 1, "password": "p"}, 1_000)
    other = first.at("b", 2)
    assert other.address == "b:2"
    assert other._options["password"] == "p", "the same credentials"
    assert issubclass(other._kind, SSLConnection), "and TLS"


@pytest.mark.asyncio
async def test_where_nobody_listens_the_error_names_the_address() -> None:
    port = free_port()
    with pytest.raises(ConnectionLostError, match=f"cannot connect to 127.0.0.1:{port}"):
        await StoreAddress(Connection, {"host": "127.0.0.1", "port": port}, 5_000).connect()


class Silent:
    """redis-py's connection to a server that answers nothing."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.closed = 0

    async def send_packed_command(self, packed: list[bytes], check_health: bool) -> None:
        assert not check_health
        self.sent.append(packed)

    async def read_response(self, **_: object) -> object:
        await asyncio.Event().wait()
        return None

    async def disconnect(self, nowait: bool) -> None:
        assert nowait
        self.closed += 1


@pytest.mark.rule("CM-19")
@pytest.mark.asyncio
async def test_a_server_that_says_nothing_costs_the_connection_which_is_never_opened_again() -> None:
    silent = Silent()
    connection = RespConnection(silent, "a:1")  # type: ignore[arg-type]  # what it calls
    with pytest.raises(ConnectionLostError, match="a:1 did not answer within 20 ms"):
        await connection.run([("PING",)], 20)
    with pytest.raises(ConnectionLostError, match="was closed"):
        await connection.run([("PING",)], 20)
    assert silent.sent == [[b"*1\r\n$4\r\nPING\r\n"]]
    assert silent.closed == 1
