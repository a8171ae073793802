"""A connection to a real store: redis-py's asyncio connection (hiredis parser), without its pool and its retries.

One write per pipeline, one reply per command (P-9). An error that the store answers is a value. A broken or silent
connection raises and is closed, because later replies could not be matched to commands.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ExecAbortError,
    MasterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from shard_runtime.record_log.redis.connection import Command, ConnectionLostError, ErrorReply, Reply, StoreAccessError

_CODES: Final[Mapping[type[Exception], str]] = {
    MovedError: "MOVED",
    AskError: "ASK",
    TryAgainError: "TRYAGAIN",
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
    ExecAbortError: "EXECABORT",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    NoScriptError: "NOSCRIPT",
}
"""redis-py drops the code from errors it has a class for; all other errors keep it as their first word."""


#: redis-py's own packer is written in Python and costs five times as much (P-9); hiredis' hint lacks an ellipsis.
_pack: Final[Callable[[Command], bytes]] = cast("Callable[[Command], bytes]", pack_command)


class RespConnection:
    """`StoreConnection` over a redis-py connection."""

    def __init__(self, connection: AbstractConnection, address: str) -> None:
        self._connection = connection
        self._address = address
        self._closed = False

    @property
    def address(self) -> str:
        """The server's address, for messages."""
        return self._address

    async def run(self, commands: Sequence[Command], timeout_ms: int) -> list[Reply]:
        """Send the commands and read the replies; the time-out covers both."""
        connection = self._connection
        if self._closed:  # redis-py would connect again, to a server that was not checked
            raise ConnectionLostError(f"the connection to {self._address} was closed")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await connection.send_packed_command([_pack(command) for command in commands], check_health=False)
                return [await self._reply() for _ in commands]
        except TimeoutError as error:
            await self.close()
            raise ConnectionLostError(f"{self._address} did not answer within {timeout_ms} ms") from error
        except (RedisError, OSError) as error:
            await self.close()
            raise ConnectionLostError(f"the connection to {self._address} broke: {error}") from error

    async def _reply(self) -> Reply:
        try:
            reply = await self._connection.read_response(timeout=math.inf, push_request=True)
        except ResponseError as error:
            return error_reply(error)
        if isinstance(reply, list):
            return [error_reply(part) if isinstance(part, Exception) else part for part in reply]
        return reply

    async def message(self) -> list[Reply]:
        """The next pushed message."""
        try:
            message: list[Reply] = await self._connection.read_response(timeout=math.inf, push_request=True)
        except (RedisError, OSError) as error:
            await self.close()
            raise ConnectionLostError(f"the connection to {self._address} broke: {error}") from error
        return message

    async def close(self) -> None:
        """Close the socket without waiting for the other side."""
        self._closed = True
        try:
            await self._connection.disconnect(nowait=True)
        except (RedisError, OSError):
            return  # it was broken already


def error_reply(error: Exception) -> ErrorReply:
    """An error that the store answered, with its code."""
    message = str(error)
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return ErrorReply(code, message)
    first, _, rest = message.partition(" ")
    return ErrorReply(first, rest) if first.isupper() else ErrorReply("ERR", message)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _NamedSSLConnection(SSLConnection):
    """TLS to an address that a look-up of a name gave; the certificate must be for that name."""

    def __init__(self, *, server_hostname: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._server_hostname = server_hostname

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments: Mapping[str, Any] = super()._connection_arguments()
        return {**arguments, "server_hostname": self._server_hostname} if self._server_hostname else arguments


class StoreAddress:
    """How to reach one server: redis-py's connection arguments and class."""

    def __init__(self, kind: type[AbstractConnection], options: Mapping[str, Any], connect_ms: int) -> None:
        self._kind = _NamedSSLConnection if issubclass(kind, SSLConnection) else kind
        self._options = dict(options)
        self._connect_ms = connect_ms

    @property
    def address(self) -> str:
        """The address as a person writes it."""
        if "path" in self._options:
            return str(self._options["path"])
        return f"{self._options.get('host', 'localhost')}:{self._options.get('port', 6379)}"

    def at(self, host: str, port: int) -> StoreAddress:
        """Another server, with the same credentials and TLS."""
        options = {key: value for key, value in self._options.items() if key != "path"}
        kind = SSLConnection if issubclass(self._kind, SSLConnection) else Connection
        return StoreAddress(kind, {**options, "host": host, "port": port}, self._connect_ms)

    async def connect(self) -> RespConnection:
        """Open a connection, handshake included.

        Raises ConnectionLostError that names the address and the cause; StoreAccessError for refused credentials.
        """
        try:
            async with asyncio.timeout(self._connect_ms / 1000):
                return RespConnection(await self._open_first(await self._found_at()), self.address)
        except (TimeoutError, RedisError, OSError, UnicodeError) as error:  # UnicodeError: not a possible host name
            if isinstance(error, AuthenticationError):
                raise StoreAccessError(self._refusal(error)) from error
            if isinstance(error, BusyLoadingError):
                cause = "is still loading its data"
            elif isinstance(error, socket.gaierror):
                cause = f"its name cannot be looked up: {error.strerror}"
            else:
                cause = str(error) or "no answer"
            raise ConnectionLostError(f"cannot connect to {self.address}: {cause}") from error

    async def _found_at(self) -> list[Mapping[str, Any]]:
        """The connection arguments, one set for each address that the server's name has.

        The name is looked up here, because a time-out cancels uvloop's `create_connection`, and that does not cancel
        its own look-up: when the look-up then failed, the log showed "Future exception was never retrieved".
        """
        host, port = self._options.get("host", "localhost"), self._options.get("port", 6379)
        if "path" in self._options or _is_address(host):
            return [self._options]
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        hosts = dict.fromkeys(str(address[0]) for *_, address in found)
        if not hosts:
            raise OSError("its name has no address")
        named = {"server_hostname": host} if issubclass(self._kind, _NamedSSLConnection) else {}
        return [{**self._options, **named, "host": one} for one in hosts]

    async def _open_first(self, ways: Sequence[Mapping[str, Any]]) -> AbstractConnection:
        """Connect to the first address that answers; raise the last one's error when none does."""
        *others, last = ways
        for way in others:
            try:
                return await self._open(way)
            except (AuthenticationError, BusyLoadingError):
                raise  # it was reached
            except (RedisError, OSError):
                continue
        return await self._open(last)

    async def _open(self, way: Mapping[str, Any]) -> AbstractConnection:
        connection = self._kind(
            **way,
            socket_timeout=None,
            socket_connect_timeout=self._connect_ms / 1000,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _refusal(self, error: AuthenticationError) -> str:
        if self._options.get("password") or self._options.get("username"):
            cause = str(error).rstrip(".")
            return f"{self.address} refuses the user or the password it was given (WRONGPASS): {cause}"
        return f"{self.address} wants a password and was given none (NOAUTH)"
