"""A connection to a real store. redis-py opens it and does the handshake; then this module reads and writes it.

redis-py passes a reply through a StreamReader, a task and its own parser. That costs three times as much as hiredis fed
by the transport, which matters when a record waits for the reply (P-9). There is one write per pipeline and one reply
per command. An error that the store returns is a value. A broken or silent connection raises and is closed, because
later replies could not be matched to commands.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, cast

import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError

from kip932.armed_timer import ArmedTimer
from kip932.store_settings import PasswordFileError
from kip932.store_tls import NO_TLS_FILES, StoreTls, client_context, explained, is_of_handshake
from shard_runtime.record_log.redis.connection import (
    Command,
    ConnectionLostError,
    ErrorReply,
    HandshakeError,
    Reply,
    StoreAccessError,
    StoreLoadingError,
)
from shard_runtime.record_log.redis.credentials import StoreCredentials

#: redis-py's own packer is written in Python and costs five times as much (P-9). The cast corrects hiredis' type hint.
_pack: Final[Callable[[Command], bytes]] = cast("Callable[[Command], bytes]", hiredis.pack_command)
_MORE: Final = object()
"""The value that hiredis' reader returns while a reply is incomplete; None is a reply."""
_UNUSABLE: Final = frozenset({"LOADING", "NOAUTH", "WRONGPASS"})
"""Errors that concern the connection, not a command: it is closed, then opened and checked again."""
_TICK_S: Final = 0.001
"""A timer may fire early by this much."""
PUSHED_MAX: Final = 1_024
"""The maximum number of pushed messages that wait for `message`; at this number the socket is not read until one is
taken."""


class RespConnection(asyncio.Protocol):
    """`StoreConnection` over the transport of an open redis-py connection, which it reads in place of redis-py."""

    def __init__(self, connection: AbstractConnection, address: str) -> None:
        writer = connection._writer
        if writer is None:
            raise ConnectionLostError(f"the connection to {address} was closed")
        self._connection = connection  # it owns the transport, and closes it when it is dropped
        self._transport = cast(asyncio.Transport, writer.transport)
        self._address = address
        self._closed = ""  # why it was closed; "" while it is open
        self._reader = hiredis.Reader(replyError=error_reply, notEnoughData=_MORE)  # type: ignore[arg-type]  # any callable
        self._wanted = 0
        self._replies: list[Reply] = []
        self._waiter: asyncio.Future[None] | None = None
        self._pushed: deque[list[Reply]] = deque()
        self._timer = ArmedTimer(self._check)
        self._until = inf
        self._timeout_ms = 0
        self._transport.set_protocol(self)

    @property
    def address(self) -> str:
        """The server's address, for messages."""
        return self._address

    async def run(self, commands: Sequence[Command], timeout_ms: int) -> list[Reply]:
        """Send the commands and read the replies; the time-out covers both."""
        self._check_open()
        if not commands:
            return []
        self._wanted, self._replies = len(commands), []
        self._transport.writelines([_pack(command) for command in commands])
        await self._answered(timeout_ms)
        replies, self._replies = self._replies, []
        return replies

    async def message(self) -> list[Reply]:
        """The next pushed message."""
        if not self._pushed:
            self._check_open()
            await self._answered(None)
        message = self._pushed.popleft()
        if len(self._pushed) == PUSHED_MAX - 1 and not self._closed:
            self._transport.resume_reading()
        return message

    async def close(self) -> None:
        """Close the socket without waiting for the other side."""
        self._end("this process has closed it")
        try:
            await self._connection.disconnect(nowait=True)
        except (RedisError, OSError):
            return  # it was broken already

    # -- called by the transport --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes; wake the caller when its last reply has arrived."""
        reader = self._reader
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not _MORE:
                if self._wanted and reply.__class__ is not ErrorReply:
                    self._replies.append(reply)
                    self._wanted -= 1
                else:
                    self._take(reply)
        except hiredis.HiredisError as error:
            self._break(str(error))
        if not self._wanted and (self._replies or self._pushed):
            self._wake()

    def eof_received(self) -> None:
        """Note that the server closed the connection; the transport closes this side too."""
        self._break("the server closed it")

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the transport is closed."""
        self._break(str(exc or "it was closed"))

    # -- steps --------------------------------------------------------------------------------------------------------

    def _take(self, reply: Reply) -> None:
        """Handle an error, or a message that is not a reply to a command."""
        if reply.__class__ is ErrorReply and reply.code in _UNUSABLE:
            self._break(str(reply), StoreLoadingError if reply.code == "LOADING" else ConnectionLostError)
        elif self._wanted:
            self._replies.append(reply)
            self._wanted -= 1
        elif isinstance(reply, list):
            self._pushed.append(reply)
            if len(self._pushed) == PUSHED_MAX:
                self._transport.pause_reading()
        else:
            self._break(f"it sent {reply!r:.100}, which no command asked for")

    async def _answered(self, timeout_ms: int | None) -> None:
        """Wait for the replies, or for a pushed message. If that fails or is cancelled, the connection is closed."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        if timeout_ms is not None:
            self._timeout_ms = timeout_ms
            self._until = loop.time() + timeout_ms / 1000
            if self._until < self._timer.at:
                self._timer.arm(self._until, timeout_ms / 1000)
        try:
            await waiter
        except BaseException:
            await self.close()
            raise
        finally:
            self._until = inf

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionLostError(f"the connection to {self._address} was closed: {self._closed}")

    def _break(self, why: str, kind: type[ConnectionLostError] = ConnectionLostError) -> None:
        self._end(f"the connection to {self._address} broke: {why}", kind)

    def _end(self, why: str, kind: type[ConnectionLostError] = ConnectionLostError) -> None:
        """Close the connection: accept no more commands and fail the waiting caller with `why`. Only the first call
        counts."""
        if self._closed:
            return
        self._closed = why
        self._timer.cancel()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(kind(why))
        self._transport.abort()

    def _check(self) -> None:
        """Handle the timer, which serves all time-outs: end the connection if one has expired, else arm it again."""
        if self._until == inf:
            return
        left_s = self._until - asyncio.get_running_loop().time()
        if left_s <= _TICK_S:
            self._end(f"{self._address} did not answer within {self._timeout_ms} ms")
        else:
            self._timer.arm(self._until, left_s)


def error_reply(message: str) -> ErrorReply:
    """Make the value for an error that the store returned: its code is the first word if that is in capitals, else
    ERR."""
    first, _, rest = message.partition(" ")
    return ErrorReply(first, rest) if first.isupper() else ErrorReply("ERR", message)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _NamedSSLConnection(SSLConnection):
    """A TLS connection to an address that a name was resolved to; the certificate must be for that name, and of the
    authorities that are given, not of the system's (CM-195)."""

    def __init__(self, *, server_hostname: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._server_hostname = server_hostname

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments = dict(super()._connection_arguments())
        given = self.ssl_context
        if given.ca_certs:
            context = client_context(given.ca_certs, given.certfile, given.keyfile)
            context.check_hostname, context.verify_mode = given.check_hostname, given.cert_reqs
            arguments["ssl"] = context
        return {**arguments, "server_hostname": self._server_hostname} if self._server_hostname else arguments


class StoreAddress:
    """Opens connections to one server, by redis-py's connection class and arguments."""

    def __init__(
        self,
        kind: type[AbstractConnection],
        options: Mapping[str, Any],
        connect_ms: int,
        credentials: StoreCredentials | None = None,
        tls: StoreTls = NO_TLS_FILES,
    ) -> None:
        self._credentials = credentials
        self._tls = tls
        self._kind = _NamedSSLConnection if issubclass(kind, SSLConnection) else kind
        self._options = dict(options)
        self._connect_ms = connect_ms

    @property
    def address(self) -> str:
        """The address for messages: `host:port`, or a socket's path."""
        if "path" in self._options:
            return str(self._options["path"])
        return f"{self._options.get('host', 'localhost')}:{self._options.get('port', 6379)}"

    def at(self, host: str, port: int) -> StoreAddress:
        """The address of another server, with the same credentials and TLS."""
        options = {key: value for key, value in self._options.items() if key != "path"}
        kind = SSLConnection if issubclass(self._kind, SSLConnection) else Connection
        return StoreAddress(
            kind, {**options, "host": host, "port": port}, self._connect_ms, self._credentials, self._tls
        )

    def of_sentinels(self, username: str, password: str | None, *, tls: StoreTls, encrypted: bool) -> StoreAddress:
        """The address of Sentinels: with the same options, but without the store's user, password and database.

        `tls`: the files for Sentinels; without any, those for the store. `encrypted`: False for Sentinels without TLS.
        Raises ValueError for files that cannot be used, or have no use. A password in a file is added by `known_as`.
        """
        options = {name: value for name, value in self._options.items() if name not in {"username", "password", "db"}}
        options |= {"username": username} if username else {}
        options |= {} if password is None else {"password": password}
        is_tls = issubclass(self._kind, SSLConnection)
        if not encrypted or tls:
            options = {name: value for name, value in options.items() if not name.startswith("ssl_")}
        if not encrypted:
            if tls:
                raise ValueError(f"{tls.prefix}.* names files, but {tls.prefix}.enable is false; set one of them")
            if not is_tls:
                raise ValueError(f"{tls.prefix}.enable is false, but it has no TLS at all; expected rediss+sentinel://")
            return StoreAddress(Connection, options, self._connect_ms)
        found = StoreAddress(self._kind, options, self._connect_ms, None, self._tls)
        return found.with_tls(tls) if tls else found

    def with_tls(self, tls: StoreTls) -> StoreAddress:
        """The same address with these files. Raises ValueError when they cannot be used, for a file that the URL names
        as well, and for an address without TLS."""
        if not issubclass(self._kind, SSLConnection):
            raise ValueError(f"{tls.prefix}.* is set, but connections to it would not be encrypted; expected rediss://")
        options = tls.options()
        if twice := sorted(options.keys() & self._options.keys()):
            raise ValueError(f"it has the option {twice[0]}, and {tls.prefix}.* names another file; set one of them")
        return StoreAddress(self._kind, {**self._options, **options}, self._connect_ms, self._credentials, tls)

    def known_by(self, credentials: StoreCredentials) -> StoreAddress:
        """The same address, with a user and the password in a file. Raises ValueError when the file cannot be used."""
        credentials.read()
        return StoreAddress(self._kind, self._options, self._connect_ms, credentials, self._tls)

    def known_as(self, username: str, password_file: Path | None) -> StoreAddress:
        """The same address for a user, and with the password in a file. Raises ValueError when the address has them
        already, or the file cannot be used."""
        named = str(self._options.get("username") or "")
        if username and named and username != named:
            raise ValueError(f"it names the user {named}, but store.username is {username}")
        if password_file is None:
            options = {**self._options, "username": username or named}
            return StoreAddress(self._kind, options, self._connect_ms, None, self._tls)
        if self._options.get("password"):
            raise ValueError(f"it holds a password, and store.password.location={password_file} names another")
        return self.known_by(StoreCredentials(username or named, password_file))

    async def connect(self) -> RespConnection:
        """Open a connection, handshake included.

        Raises ConnectionLostError, which names the address and the cause; StoreAccessError for refused credentials,
        StoreLoadingError for a store that loads its data, HandshakeError for certificates that do not fit.
        """
        try:
            async with asyncio.timeout(self._connect_ms / 1000):
                return RespConnection(await self._open_known(await self._resolve()), self.address)
        except PasswordFileError as error:
            raise StoreAccessError(f"{self.address}: {error}") from error
        except (TimeoutError, RedisError, OSError, UnicodeError) as error:  # UnicodeError: not a possible host name
            if isinstance(error, AuthenticationError):
                raise StoreAccessError(self._refusal(error)) from error
            if isinstance(error, BusyLoadingError):
                raise StoreLoadingError(f"cannot connect to {self.address}: it is still loading its data") from error
            if isinstance(error, socket.gaierror):
                cause = f"its name cannot be looked up: {error.strerror}"
                raise ConnectionLostError(f"cannot connect to {self.address}: {cause}") from error
            tls, in_url = issubclass(self._kind, SSLConnection), str(self._options.get("ssl_ca_certs") or "")
            said = str(error) or "no answer"
            cause = explained(said, tls=tls, files=self._tls, ca_in_url=in_url)
            kind = HandshakeError if tls and is_of_handshake(said, self._tls) else ConnectionLostError
            raise kind(f"cannot connect to {self.address}: {cause}") from error

    async def _resolve(self) -> list[Mapping[str, Any]]:
        """The connection arguments, one set for each address of the server's name.

        The name is resolved here, because a time-out cancels uvloop's `create_connection` but not the name resolution
        that it started: when that failed later, the log showed "Future exception was never retrieved".
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

    async def _open_known(self, ways: Sequence[Mapping[str, Any]]) -> AbstractConnection:
        """Connect with each known password until one is accepted. Raises AuthenticationError or PasswordFileError."""
        if self._credentials is None:
            return await self._open_first(ways)
        user = {"username": self._credentials.username} if self._credentials.username else {}
        refusal: AuthenticationError | None = None
        for password in self._credentials.candidates():
            try:
                opened = await self._open_first([{**way, **user, "password": password} for way in ways])
            except AuthenticationError as error:
                refusal = refusal or error
            else:
                self._credentials.accepted(password, refused=refusal is not None)
                return opened
        assert refusal is not None
        raise refusal

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
        cause = str(error).rstrip(".")
        if self._credentials is not None:
            cause = f"{cause}; the password is from {self._credentials.setting.name}={self._credentials.path}"
        elif not self._options.get("password") and not self._options.get("username"):
            return f"{self.address} wants a password and was given none (NOAUTH)"
        return f"{self.address} refuses the user or the password it was given (WRONGPASS): {cause}"
