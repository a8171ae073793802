"""A connection's handling of a store's replies, errors and messages, and of being closed or left without replies."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection

from shard_runtime.record_log.redis.connection import ConnectionLostError, ErrorReply, StoreLoadingError
from shard_runtime.record_log.redis.resp import PUSHED_MAX, RespConnection, StoreAddress, error_reply
from tests.support.ports import free_port
from tests.support.virtual_time import virtual


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ("NOSCRIPT No matching script.", ErrorReply("NOSCRIPT", "No matching script.")),
        ("OOM command not allowed", ErrorReply("OOM", "command not allowed")),
        ("READONLY You can't write", ErrorReply("READONLY", "You can't write")),
        ("MOVED 3999 127.0.0.1:6381", ErrorReply("MOVED", "3999 127.0.0.1:6381")),
        ("ERR unknown command 'X'", ErrorReply("ERR", "unknown command 'X'")),
        ("a script's own words", ErrorReply("ERR", "a script's own words")),
    ],
)
def test_an_error_that_the_store_answers_keeps_its_code(message: str, reply: ErrorReply) -> None:
    assert error_reply(message) == reply


def test_an_address_is_shown_as_a_person_writes_it() -> None:
    assert StoreAddress(UnixDomainSocketConnection, {"path": "/run/s"}, 1_000).address == "/run/s"
    assert StoreAddress(Connection, {}, 1_000).address == "localhost:6379"
    first = StoreAddress(SSLConnection, {"host": "a", "port": 1, "password": "p"}, 1_000)
    other = first.at("b", 2)
    assert other.address == "b:2"
    assert other._options["password"] == "p", "the same credentials"
    assert issubclass(other._kind, SSLConnection), "and TLS"


@pytest.mark.parametrize("kind", [Connection, SSLConnection, UnixDomainSocketConnection])
def test_redis_py_has_the_private_name_that_is_read(kind: type[Connection]) -> None:
    """ADR 18: each kind of connection sets `_writer`; redis-py versions that do not must not be installed."""
    assert kind()._writer is None


@pytest.mark.asyncio
async def test_where_no_server_listens_the_error_names_the_address() -> None:
    port = free_port()
    with pytest.raises(ConnectionLostError, match=f"cannot connect to 127.0.0.1:{port}"):
        await StoreAddress(Connection, {"host": "127.0.0.1", "port": port}, 5_000).connect()


class Socket(asyncio.Transport):
    """The transport of a connection; keeps the bytes sent through it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.said: list[str] = []

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.said.append(type(protocol).__name__)

    def writelines(self, list_of_data: object) -> None:
        assert isinstance(list_of_data, list)
        self.sent.append(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self.said.append("pause")

    def resume_reading(self) -> None:
        self.said.append("resume")

    def abort(self) -> None:
        self.said.append("abort")


class Greeted:
    """A connection of redis-py after its handshake."""

    def __init__(self, socket: Socket) -> None:
        self._writer = SimpleNamespace(transport=socket)
        self.closed = 0

    async def disconnect(self, nowait: bool) -> None:
        assert nowait
        self.closed += 1


def opened() -> tuple[RespConnection, Socket, Greeted]:
    socket = Socket()
    greeted = Greeted(socket)
    connection = RespConnection(greeted, "a:1")  # type: ignore[arg-type]  # it has what is needed
    assert socket.said.pop() == "RespConnection"
    return connection, socket, greeted


async def running(connection: RespConnection, *commands: tuple[str, ...]) -> asyncio.Task[list[object]]:
    task = asyncio.ensure_future(connection.run(commands, 1_000))
    await asyncio.sleep(0)
    return task


@pytest.mark.rule("CM-19")
@virtual
async def test_a_server_that_says_nothing_costs_the_connection_which_is_never_opened_again() -> None:
    connection, socket, greeted = opened()
    with pytest.raises(ConnectionLostError, match="a:1 did not answer within 20 ms"):
        await connection.run([("PING",)], 20)
    assert asyncio.get_running_loop().time() == pytest.approx(0.02)
    with pytest.raises(ConnectionLostError, match="was closed: a:1 did not answer"):
        await connection.run([("PING",)], 20)
    assert socket.sent == [b"*1\r\n$4\r\nPING\r\n"]
    assert socket.said == ["abort"]
    assert greeted.closed == 1


@virtual
async def test_a_time_out_is_counted_from_its_own_commands() -> None:
    connection, _, _ = opened()
    for _ in range(3):  # during the later waits, the timer of the first wait is still armed
        run = asyncio.ensure_future(connection.run([("PING",)], 1_000))
        await asyncio.sleep(0.6)
        connection.data_received(b"+PONG\r\n")
        assert await run == [b"PONG"]
    began = asyncio.get_running_loop().time()
    with pytest.raises(ConnectionLostError, match="did not answer within 50 ms"):
        await connection.run([("PING",)], 50)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.05)


@pytest.mark.asyncio
async def test_a_pipeline_is_one_write_and_its_replies_may_come_in_pieces() -> None:
    connection, socket, _ = opened()
    run = await running(connection, ("MULTI",), ("GET", "k"), ("EXEC",))
    assert socket.sent == [b"*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nEXEC\r\n"]
    for byte in b"+OK\r\n-ERR what\r\n*3\r\n$-1\r\n:7\r\n-WRONGTYPE not a list\r\n":
        assert not run.done()
        connection.data_received(bytes([byte]))
    assert await run == [b"OK", ErrorReply("ERR", "what"), [None, 7, ErrorReply("WRONGTYPE", "not a list")]]
    assert await connection.run([], 1_000) == []


@pytest.mark.parametrize(
    ("heard", "why"),
    [
        (b"-LOADING it reads its data\r\n", "LOADING it reads its data"),
        (b"-NOAUTH Authentication required.\r\n", "NOAUTH"),
        (b"what is this\r\n", "Protocol error"),
        (b"+PONG\r\n+PONG\r\n+PONG\r\n", "which no command asked for"),
    ],
)
@pytest.mark.asyncio
async def test_a_connection_whose_replies_cannot_be_used_is_closed(heard: bytes, why: str) -> None:
    connection, socket, _ = opened()
    run = await running(connection, ("PING",), ("PING",))
    connection.data_received(heard)
    assert socket.said == ["abort"]
    with pytest.raises(ConnectionLostError, match=f"the connection to a:1 broke: .*{why}") as broken:
        await run
    assert isinstance(broken.value, StoreLoadingError) == ("LOADING" in why)
    with pytest.raises(ConnectionLostError, match=f"was closed: .*{why}"):
        await connection.run([("PING",)], 1_000)


@pytest.mark.asyncio
async def test_a_server_that_hangs_up_fails_the_commands_under_way() -> None:
    for ended, why in (
        (lambda connection: connection.eof_received(), "the server closed it"),
        (lambda connection: connection.connection_lost(ConnectionResetError("reset")), "reset"),
        (lambda connection: connection.connection_lost(None), "it was closed"),
    ):
        connection, _, greeted = opened()
        run = await running(connection, ("PING",))
        ended(connection)  # type: ignore[no-untyped-call]
        with pytest.raises(ConnectionLostError, match=why):
            await run
        assert greeted.closed == 1


@pytest.mark.asyncio
async def test_cancelled_commands_close_the_connection_since_their_replies_would_be_taken_for_others() -> None:
    connection, socket, _ = opened()
    run = await running(connection, ("PING",))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert socket.said == ["abort"]


@pytest.mark.asyncio
async def test_pushed_messages_wait_in_order_and_past_a_bound_the_socket_is_not_read() -> None:
    connection, socket, _ = opened()
    waiting = asyncio.ensure_future(connection.message())
    await asyncio.sleep(0)
    connection.data_received(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n")
    assert (await waiting)[2] == b"0"
    for number in range(PUSHED_MAX):
        assert socket.said == []
        connection.data_received(b">2\r\n$7\r\nmessage\r\n:%d\r\n" % number)
    assert socket.said == ["pause"]
    assert [(await connection.message())[1] for _ in range(PUSHED_MAX)] == list(range(PUSHED_MAX))
    assert socket.said == ["pause", "resume"]
    connection.eof_received()
    with pytest.raises(ConnectionLostError, match="the server closed it"):
        await connection.message()
