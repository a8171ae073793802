"""Finds a store's masters: one server, one named by Sentinels, or the nodes of a Redis Cluster.

    redis://host:port/0   rediss://…   unix:///path/to.sock        one server (`redis://…?cluster=true`: a cluster)
    redis+cluster://host:port,host:port   rediss+cluster://…       a cluster, from any of its nodes
    redis+sentinel://host:port,host:port/service                   the master of a service

Credentials and options are redis-py's, in the URL: they are for the store. Sentinels get their own, if any, by the
options sentinel_username and sentinel_password or by settings (CM-230). `connection_check` checks that a server is a
master; this module does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit
from weakref import WeakSet

from redis.asyncio.connection import Connection, parse_url

from kip932.store_settings import STORE_SENTINEL_PASSWORD, StoreAccess, refuse_without_sentinels, sentinel_login
from shard_runtime.record_log.redis.connection import (
    ConnectionLostError,
    ErrorReply,
    HandshakeError,
    MasterLostError,
    NoMasterError,
    Reply,
    SentinelAccessError,
    Store,
    StoreAccessError,
    StoreConnection,
    StoreLoadingError,
)
from shard_runtime.record_log.redis.credentials import StoreCredentials
from shard_runtime.record_log.redis.keys import slot_of
from shard_runtime.record_log.redis.resp import RespConnection, StoreAddress
from shard_runtime.record_log.store_url import masked_url

_CONNECT_MS: Final = 2_000
_ASK_MS: Final = 2_000
_BY_URL: Final = StoreAccess()


def open_store(url: str, connect_ms: int = _CONNECT_MS, access: StoreAccess = _BY_URL) -> Store:
    """The store that a URL names. It is not connected yet. The files of `access` are read again for each connection.

    Raises ValueError for a URL that cannot be parsed, for what is given twice, and for a file that cannot be used.
    """
    shown = masked_url(url)
    if "://" not in url:
        raise ValueError(f"store URL {shown}: it has no scheme; try redis://{shown}")
    parts = _parts(url)
    scheme, _, mode = parts.scheme.partition("+")
    query = dict(parse_qsl(parts.query))
    cluster = mode == "cluster" or query.pop("cluster", "").lower() in ("1", "true", "yes")
    sentinels: StoreAddress | None = None
    if mode not in ("", "cluster", "sentinel") or scheme not in ("redis", "rediss", "unix"):
        raise ValueError(
            f"store URL {shown}: scheme {parts.scheme!r} is not known; "
            "use redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://"
        )
    try:
        login = sentinel_login(query, access.sentinel) if mode == "sentinel" else ("", None)
        base = _endpoint(scheme, parts.netloc, "" if mode == "sentinel" else parts.path, query, connect_ms)
        if access.tls:
            base = base.with_tls(access.tls)
        if access.username or access.password is not None:
            base = base.known_as(access.username, access.password)
        if mode == "sentinel":
            sentinels = _sentinels(base, login, access)
        else:
            refuse_without_sentinels(access.sentinel)
        others = _addresses(parts.netloc)
    except ValueError as error:  # from redis-py, or for a port that is not a number
        raise ValueError(f"store URL {shown}: {error}") from None
    if sentinels is not None:
        service = parts.path.strip("/")
        if not service:
            raise ValueError(f"store URL {shown}: name the service, as in redis+sentinel://host:26379/main")
        return SentinelStore(base, sentinels, others, service)
    return ClusterStoreMap(base, others) if cluster else SingleStore(base)


def _parts(url: str) -> SplitResult:
    """Split a URL. Raises ValueError, without showing a password, when part of the password seems to be elsewhere.

    In `redis://:a/b@host` the address would be `:a`, and the error of a later failure would show half of the password.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may quote everything before the first slash
        parts = None
    misplaced = "" if parts is None or parts.scheme.startswith("unix") else f"{parts.path}#{parts.fragment}"
    bare = parts is not None and any("@" in word and "=" not in word for word in parts.query.split("&"))
    if parts is None or "@" in misplaced or bare:
        raise ValueError(
            f"store URL {masked_url(url)}: it cannot be read; expected redis://USER:PASSWORD@HOST:PORT. Write all but "
            "letters and digits of a password as %XX: @, /, ?, # and [ as %40, %2F, %3F, %23 and %5B"
        )
    return parts


def _addresses(netloc: str) -> list[tuple[str, int]]:
    found = []
    for address in netloc.rpartition("@")[2].split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
        found.append((host.strip("[]") or "localhost", int(port or 6379)))
    return found


def _endpoint(scheme: str, netloc: str, path: str, query: Mapping[str, str], connect_ms: int) -> StoreAddress:
    """The first server a URL names."""
    secret, at, addresses = netloc.rpartition("@")
    first = f"{secret}{at}{addresses.split(',')[0]}"
    options: dict[str, Any] = dict(parse_url(urlunsplit((scheme, first, path, urlencode(query), ""))))
    kind = options.pop("connection_class", Connection)
    for bounded in ("socket_timeout", "socket_connect_timeout", "retry_on_timeout", "max_connections"):
        options.pop(bounded, None)  # this package sets its own time-outs and limits
    return StoreAddress(kind, options, connect_ms)


def _sentinels(base: StoreAddress, login: tuple[str, str | None], access: StoreAccess) -> StoreAddress:
    """The address of a store's Sentinels, with their user and password; nothing of the store's is sent there.

    Raises ValueError for files that cannot be used.
    """
    username, password = login
    given = access.sentinel
    found = base.of_sentinels(username, password, tls=given.tls, encrypted=given.encrypted)
    if given.password is None:
        return found
    return found.known_by(StoreCredentials(username, given.password, STORE_SENTINEL_PASSWORD))


class SingleStore:
    """One server."""

    clustered = False

    def __init__(self, endpoint: StoreAddress) -> None:
        self._endpoint = endpoint
        self._node = endpoint.address

    @property
    def nodes(self) -> tuple[str, ...]:
        """The server."""
        return (self._node,)

    def node_of(self, key: str) -> str | None:
        """The server, for every key."""
        return self._node

    async def refresh(self) -> None:
        """Do nothing: there is one server."""

    async def connect(self, node: str) -> StoreConnection:
        """Connect to the server."""
        return await self._endpoint.connect()


class SentinelStore:
    """The master of a service. For every new connection the Sentinels are asked which server the master is.

    A replaced master may notice its replacement seconds later, and goes on answering until then. So as soon as the
    Sentinels name another master, all connections to other servers are closed.
    """

    clustered = False

    def __init__(
        self, base: StoreAddress, sentinel: StoreAddress, sentinels: Sequence[tuple[str, int]], service: str
    ) -> None:
        self._base = base
        self._sentinel = sentinel
        self._sentinels = list(sentinels)
        self._service = service
        self._connections: WeakSet[RespConnection] = WeakSet()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The only node."""
        return (self._service,)

    def node_of(self, key: str) -> str | None:
        """The only node, whichever server is master."""
        return self._service

    async def refresh(self) -> None:
        """Ask the Sentinels for the master; close connections to any other server."""
        await self._master()

    async def connect(self, node: str) -> StoreConnection:
        """Connect to the master that the Sentinels name. Raises MasterLostError when it cannot be reached."""
        master, by = await self._master()
        try:
            connection = await master.connect()
        except ConnectionLostError as error:
            raise _of_master(error, f"the master of {self._service} that {by} names") from error
        self._connections.add(connection)
        return connection

    async def _master(self) -> tuple[StoreAddress, str]:
        """Ask the Sentinels one after another, beginning with the one that answered last time. Returns the master's
        address and the name of the Sentinel."""
        causes: list[str] = []
        kind: type[ConnectionLostError] = NoMasterError
        for host, port in list(self._sentinels):
            try:
                reply = await self._ask(host, port)
            except ConnectionLostError as error:
                causes.append(str(error))
                kind = _worse(kind, error)
                continue
            if not isinstance(reply, list):
                causes.append(f"Sentinel {host}:{port} knows no service {self._service}")
                continue
            self._sentinels.remove((host, port))
            self._sentinels.insert(0, (host, port))
            master = self._base.at(reply[0].decode(), int(reply[1]))
            for connection in [each for each in self._connections if each.address != master.address]:
                self._connections.discard(connection)
                await connection.close()
            return master, f"Sentinel {host}:{port}"
        raise kind(f"no Sentinel names a master of {self._service}: {'; '.join(causes)}")

    async def _ask(self, host: str, port: int) -> Reply:
        """Ask a Sentinel for the master. Raises ConnectionLostError, which says what is wrong with this Sentinel."""
        try:
            connection = await self._sentinel.at(host, port).connect()
            try:
                asked = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
                reply = (await connection.run([asked], _ASK_MS))[0]
            finally:
                await connection.close()
        except StoreAccessError as error:
            raise SentinelAccessError(f"Sentinel {error}") from error
        except ConnectionLostError as error:
            if "NOAUTH" in str(error):  # it let this process in, and requires a password for the command
                raise SentinelAccessError(
                    f"Sentinel {host}:{port} wants a password and was given none (NOAUTH)"
                ) from error
            raise type(error)(f"Sentinel {host}:{port}: {error}") from error
        if isinstance(reply, ErrorReply):
            if reply.is_missing_right:
                raise SentinelAccessError(
                    f"Sentinel {host}:{port} does not let its user ask for the master ({reply.code} {reply.message})"
                )
            raise NoMasterError(f"{host}:{port} is no Sentinel, or one that cannot answer: {reply}")
        return reply


def _of_master(error: ConnectionLostError, who: str) -> ConnectionLostError:
    """Return the failure of a connection to a master, with who names it; for one that was not reached, what to
    check."""
    if isinstance(error, StoreAccessError | StoreLoadingError):
        return type(error)(f"{who}: {error}")
    if isinstance(error, HandshakeError):
        return HandshakeError(
            f"{who}: {error}. Sentinels name servers by address unless `sentinel resolve-hostnames yes` and `sentinel "
            "announce-hostnames yes` are set"
        )
    return MasterLostError(f"{who}: {error}")


class ClusterStoreMap:
    """The nodes of a Redis Cluster and the slots they own, by the last CLUSTER SLOTS reply."""

    clustered = True

    def __init__(self, base: StoreAddress, seeds: Sequence[tuple[str, int]]) -> None:
        self._base = base
        self._seeds = list(seeds)
        self._slots: list[str | None] = []

    @property
    def nodes(self) -> tuple[str, ...]:
        """The masters that own slots."""
        return tuple(dict.fromkeys(filter(None, self._slots)))

    def node_of(self, key: str) -> str | None:
        """The master of the key's slot."""
        return self._slots[slot_of(key)] if self._slots else None

    async def refresh(self) -> None:
        """Ask known masters, then the seeds, for the slot map.

        A master that has lost contact with the other nodes answers with an old map, in which it is still a master. So
        the map of a node whose cluster state is "fail" is used only if no other node gives a map (CM-19).
        """
        known = [_split(node) for node in self.nodes]
        causes: list[str] = []
        doubtful: list[str | None] = []
        kind = ConnectionLostError
        for host, port in dict.fromkeys([*known, *self._seeds]):
            try:
                state, reply = await self._ask(host, port)
            except ConnectionLostError as error:
                causes.append(str(error))
                kind = _worse(kind, error)
                continue
            if isinstance(reply, ErrorReply):
                causes.append(f"{host}:{port}: {reply}")
                continue
            slots = _slot_map(reply, host)
            if not any(slots):
                causes.append(f"{host}:{port} knows no slots yet")
            elif _is_down(state):
                doubtful = doubtful or slots
            else:
                self._slots = slots
                return
        if not doubtful:
            raise kind(f"no cluster node gives a slot map: {'; '.join(causes)}")
        self._slots = doubtful

    async def _ask(self, host: str, port: int) -> list[Reply]:
        """Ask a node for its state and its slot map."""
        connection = await self._base.at(host, port).connect()
        try:
            return await connection.run([("CLUSTER", "INFO"), ("CLUSTER", "SLOTS")], _ASK_MS)
        finally:
            await connection.close()

    async def connect(self, node: str) -> StoreConnection:
        """Connect to a node."""
        if not node:
            raise ConnectionLostError("no cluster node is known yet")
        host, port = _split(node)
        return await self._base.at(host, port).connect()


def _split(node: str) -> tuple[str, int]:
    host, _, port = node.rpartition(":")
    return host, int(port)


def _worse(kind: type[ConnectionLostError], error: ConnectionLostError) -> type[ConnectionLostError]:
    """Choose which of several nodes' failures to report: refused credentials first, since waiting does not help; then a
    node that loads its data, since waiting does; then certificates that do not fit."""
    for worse in (SentinelAccessError, StoreAccessError, StoreLoadingError, HandshakeError):
        if issubclass(kind, worse) or isinstance(error, worse):
            return worse
    return kind


def _is_down(state: Reply) -> bool:
    """Return whether a node says that it cannot serve. A node that does not show its state is assumed to serve."""
    if isinstance(state, str):
        state = state.encode()
    return isinstance(state, bytes) and b"cluster_state:fail" in state


def _slot_map(reply: Reply, asked: str) -> list[str | None]:
    slots: list[str | None] = [None] * 16384
    for first, last, master, *_replicas in reply:
        host = master[0].decode() if master[0] else asked  # an empty name: the host that was asked
        slots[first : last + 1] = [f"{host}:{master[1]}"] * (last - first + 1)
    return slots
