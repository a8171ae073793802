"""The store as a reader uses it: finds the node of each stream and sends commands; only `publishing` writes (PM-6).

    redis://host:port/0   rediss://…   unix:///path/to.sock     one server
    redis+cluster://host:port,host:port   rediss+cluster://…    a cluster, from any of its nodes
    redis+sentinel://host:port,host:port/service                the master of a service

The URL never contains the password, because a job's options appear in plans, logs and event files (PM-5): it is in an
environment variable or in a file. Files are read for each new connection.

A store that reads from replicas uses a replica of the node that holds a key, or that node if no replica answers. A
replica may lack the newest entries, so a reader must read them from `primary` before it counts them as lost.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import time
from binascii import crc_hqx
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.connection import SSLConnection
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from kip932.setting import Setting
from kip932.store_settings import (
    STORE_PASSWORD,
    STORE_SENTINEL_PASSWORD,
    PasswordFileError,
    StoreAccess,
    password_in,
    refuse_without_sentinels,
    sentinel_login,
)
from kip932.store_tls import StoreTls, client_context, explained

_log = logging.getLogger(__name__)

Command = Sequence[str | int | bytes]

_SLOTS: Final = 16384
_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.05
#: How many times a command is retried while the store is loading its data, and the pause between attempts, in seconds.
_LOADING_ATTEMPTS: Final = 600
_LOADING_PAUSE_S: Final = 1.0
#: How long, in seconds, a node may take to accept a connection, and to answer. Both are tried four times, so that a
#: store that hangs, or an address that swallows what is sent there, is an error after about 9 s and 21 s.
_CONNECT_S: Final = 2.0
_ANSWER_S: Final = 5.0
#: How long a Sentinel may take to answer, in seconds.
_SENTINEL_S: Final = 2.0
#: What Sentinels say of replicas from which nothing should be read.
_REPLICA_DOWN: Final = frozenset({b"s_down", b"o_down", b"disconnected"})
#: The maximum number of pipelined commands per round trip, so that its replies stay small.
_PIPELINE: Final = 500
_BY_URL: Final = StoreAccess()
#: What to check when a node that a Sentinel names does not answer.
_OF_SENTINEL: Final = (
    "; check that it runs, and that this machine reaches it by that address: a Sentinel gives the one that a node "
    "announces (replica-announce-ip, replica-announce-port), and names a master that is gone until it has noticed that"
)


class StoreUnreachableError(Exception):
    """No node of the store answers; nothing was read."""


class StoreLoadingError(StoreUnreachableError):
    """A node of the store is loading its data, and serves no command until it is done."""


class StoreReplyError(Exception):
    """The store refused a read."""


def _refused_for_now(reply: object) -> bool:
    """Return whether a node refused to serve the key here or now, executing nothing (CM-182).

    MovedError is an AskError.
    """
    busy = isinstance(reply, ResponseError) and str(reply).startswith("BUSY ")
    return busy or isinstance(reply, AskError | TryAgainError | ClusterDownError | MasterDownError)


def slot_of(key: str) -> int:
    """The Redis Cluster slot of a key, by its hash tag."""
    tag = key[key.find("{") + 1 : key.find("}")] if "{" in key and "}" in key else ""
    return crc_hqx((tag or key).encode(), 0) % _SLOTS


def _parts(url: str) -> SplitResult:
    """The parts of a URL. Raises ValueError, which does not quote the URL, since it may contain a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or ("@" in f"{parts.path}{parts.fragment}" and not parts.scheme.startswith("unix")):
        raise ValueError(
            "the store URL cannot be read; expected redis://USER@HOST:PORT, and the password in the environment "
            "variable that passwordEnv names, or in the file of store.password.location"
        )
    return parts


class Store:
    """Connections to a store's nodes, opened when first used. Do not share it between processes or threads (PM-76)."""

    def __init__(
        self, url: str, password_env: str = "", *, access: StoreAccess = _BY_URL, replicas: bool = False,
        env: Mapping[str, str] = os.environ, pause: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        parts = _parts(url)
        scheme, _, mode = parts.scheme.partition("+")
        if scheme not in {"redis", "rediss", "unix"} or mode not in {"", "cluster", "sentinel"}:
            raise ValueError(
                f"store URL scheme {parts.scheme!r} is not known; "
                "use redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://"
            )
        query = dict(parse_qsl(parts.query))
        if parts.password or "password" in query:
            raise ValueError(
                "the store URL holds a password, which would appear in plans and logs; name the environment variable "
                "that holds it, passwordEnv, or the file, store.password.location"
            )
        if "sentinel_password" in query:
            raise ValueError(
                "the store URL holds the Sentinels' password, which would appear in plans and logs; name the file that "
                f"holds it, {STORE_SENTINEL_PASSWORD.name}"
            )
        if password_env and password_env not in env:
            raise ValueError(f"environment variable {password_env} (passwordEnv) is not set")
        self._scheme, self._mode = scheme, mode
        self._sentinel_user = ""
        if mode == "sentinel":
            self._sentinel_user, _ = sentinel_login(query, access.sentinel)
            parts = parts._replace(query=urlencode(query))
        else:
            refuse_without_sentinels(access.sentinel)
        self._parts = parts
        self._access, self._tls = access, _tls_options(parts, access.tls)
        self._sentinel_tls = _tls_of_sentinels(parts, access, self._tls)
        self._user = _user(parts, access)
        if password_env and access.password is not None:
            raise ValueError(f"passwordEnv is {password_env}, and store.password.location={access.password}; give one")
        for file, named_by in ((access.password, STORE_PASSWORD), (access.sentinel.password, STORE_SENTINEL_PASSWORD)):
            if file is not None:
                password_in(file, named_by)
        self._password = env[password_env] if password_env else None
        self._pause = pause
        self._replicas = replicas and bool(mode)  # the URL of a single server is used as it is
        self._primary = Store(url, password_env, access=access, env=env, pause=pause) if self._replicas else self
        self._silent: set[str] = set()
        self._nodes: dict[str, redis.Redis] = {}
        self._slots: list[str] = []
        self._named_by = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def primary(self) -> Store:
        """The same store, read from its primaries; this object if it already does so. It is closed with this one."""
        return self._primary

    def close(self) -> None:
        """Close every connection."""
        if self._primary is not self:
            self._primary.close()
        for client in self._nodes.values():
            client.close()
        self._nodes.clear()

    def call(self, key: str, *words: str | int | bytes) -> Any:
        """Run a command on the node that holds `key`. Returns the raw reply.

        Raises StoreUnreachableError or StoreReplyError.
        """
        return self.pipeline([(key, words)])[0]

    def pipeline(self, commands: Sequence[tuple[str, Command]]) -> list[Any]:
        """Run (key, command) pairs, pipelined by node. Returns their replies in order.

        If a key has moved or is moving to another node, that node is used (PM-14). Waits for a store that is loading
        its data (CM-182). Raises StoreUnreachableError or StoreReplyError.
        """
        for attempt in range(_LOADING_ATTEMPTS):
            try:
                return self._pipeline(commands)
            except StoreLoadingError as error:
                if not attempt:
                    bound_s = _LOADING_ATTEMPTS * _LOADING_PAUSE_S
                    _log.warning("waiting up to %d s: the store loads its data: %s", bound_s, error)
                self._pause(_LOADING_PAUSE_S)
        return self._pipeline(commands)

    def _pipeline(self, commands: Sequence[tuple[str, Command]]) -> list[Any]:
        replies: list[Any] = [None] * len(commands)
        open_ = list(range(len(commands)))
        refusal: object = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._slots.clear()
                self._pause(_PAUSE_S)
            moved: list[int] = []
            for node, indexes in self._by_node(commands, open_).items():
                try:
                    found = self._run(node, [commands[index][1] for index in indexes])
                except StoreUnreachableError:
                    if not self._replicas or node in self._silent:
                        raise
                    self._silent.add(node)  # from now on use its master, or another replica
                    moved += indexes
                    continue
                for index, reply in zip(indexes, found, strict=True):
                    if type(reply) is AskError:  # or its subclass MovedError
                        reply = self._asked(f"{reply.host}:{reply.port}", commands[index][1])  # noqa: PLW2901
                    if _refused_for_now(reply):
                        moved.append(index)
                        refusal = reply
                    elif isinstance(reply, Exception):
                        raise StoreReplyError(f"{commands[index][0]}: {reply}") from reply
                    replies[index] = reply
            if not moved:
                return replies
            open_ = moved
        key = commands[open_[0]][0]
        if isinstance(refusal, AskError | TryAgainError):
            raise StoreUnreachableError(f"{key}: its slot kept moving through {_ATTEMPTS} attempts")
        raise StoreUnreachableError(f"{key}: its node did not serve through {_ATTEMPTS} attempts: {refusal}")

    def _by_node(self, commands: Sequence[tuple[str, Command]], indexes: Sequence[int]) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for index in indexes:
            groups.setdefault(self._node_of(commands[index][0]), []).append(index)
        return groups

    def _run(self, node: str, commands: Sequence[Command]) -> list[Any]:
        try:
            client = self._client(node)
            replies: list[Any] = []
            for begin in range(0, len(commands), _PIPELINE):
                with client.pipeline(transaction=False) as pipe:
                    for words in commands[begin : begin + _PIPELINE]:
                        pipe.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py has no types here
                    replies += pipe.execute(raise_on_error=False)
            return replies
        except BusyLoadingError as error:
            self._slots.clear()
            raise StoreLoadingError(f"the store at {node or self._parts.path} does not answer yet: {error}") from error
        except PasswordFileError as error:
            raise StoreReplyError(f"{node or self._parts.path}: {error}") from error
        except (AuthenticationError, ResponseError) as error:  # from the handshake, about the password or the user
            file = self._access.password
            source = f"; the password is from store.password.location={file}" if file is not None else ""
            raise StoreReplyError(f"{node or self._parts.path}: {error}{source}") from error
        except (RedisError, OSError) as error:
            self._slots.clear()
            check = _OF_SENTINEL if self._named_by else ""
            raise StoreUnreachableError(
                f"the store at {node or self._parts.path}{self._named_by} does not answer: "
                f"{self._meaning(error)}{check}"
            ) from error

    def _meaning(self, error: Exception) -> str:
        in_url = dict(parse_qsl(self._parts.query)).get("ssl_ca_certs", "")
        return explained(str(error), tls=self._scheme == "rediss", files=self._access.tls, ca_in_url=in_url)

    def _asked(self, node: str, words: Command) -> Any:
        """The reply of the node to which a slot is moving; it serves the keys that it already has."""
        return self._run(node, [("ASKING",), words])[1]

    def _client(self, node: str) -> redis.Redis:
        if node not in self._nodes:
            path = "" if self._mode else self._parts.path
            query = f"?{self._parts.query}" if self._parts.query else ""
            url = f"{self._scheme}://{node}{path}{query}"
            file = self._access.password
            known: dict[str, Any] = {"username": self._user or None, "password": self._password}
            if file is not None:
                known = {"credential_provider": _PasswordFile(self._user, file, STORE_PASSWORD)}
            client = redis.Redis.from_url(
                url, **known, **self._tls, protocol=2, retry=Retry(ExponentialBackoff(0.5, 0.05), 3),
                socket_timeout=_ANSWER_S, socket_connect_timeout=_CONNECT_S,
                redis_connect_func=_read_only if self._replicas and self._mode == "cluster" else None,
            )  # fmt: skip
            if self._scheme == "rediss":
                client.connection_pool.connection_class = _StoreConnection
            client.response_callbacks.clear()  # raw replies: parsing them twice costs more than reading
            self._nodes[node] = client
        return self._nodes[node]

    def _node_of(self, key: str) -> str:
        """`host:port` of the node that holds a key; "" for a unix socket."""
        if self._mode == "cluster":
            if not self._slots:
                self._slots = self._slot_map()
            return self._slots[slot_of(key)]
        if self._mode == "sentinel":
            return self._of_service()
        return self._parts.netloc.rpartition("@")[2]

    def _slot_map(self) -> list[str]:
        causes: list[str] = []
        kind = StoreUnreachableError
        for seed in dict.fromkeys([*self._nodes, *self._seeds()]):
            try:
                reply = self._run(seed, [("CLUSTER", "SLOTS")])[0]
            except StoreUnreachableError as error:
                causes.append(str(error))
                kind = StoreLoadingError if isinstance(error, StoreLoadingError) else kind
                continue
            if isinstance(reply, Exception):
                raise StoreReplyError(f"{seed}: {reply}; is it a cluster? Else use {self._scheme}://")
            slots = [seed] * _SLOTS
            for first, last, *nodes in reply:
                named = [f"{one[0].decode() if one[0] else seed.rpartition(':')[0]}:{one[1]}" for one in nodes]
                slots[first : last + 1] = [self._chosen(named)] * (last - first + 1)
            return slots
        raise kind(f"no node of the cluster answers: {'; '.join(causes)}")

    def _seeds(self) -> list[str]:
        named = self._parts.netloc.rpartition("@")[2].split(",")
        return [address if ":" in address else f"{address}:6379" for address in named]

    def _chosen(self, nodes: Sequence[str]) -> str:
        """Choose a replica from `nodes`, or else the master, which comes first.

        It always chooses the same replica, since replicas may differ. One that failed to answer is not used again.
        """
        replicas = sorted(node for node in nodes[1:] if node not in self._silent) if self._replicas else []
        return replicas[0] if replicas else nodes[0]

    def _of_service(self) -> str:
        """The node of a service, as the first Sentinel that answers names it (CM-230)."""
        if self._slots:
            return self._slots[0]
        service = self._parts.path.strip("/")
        causes: list[str] = []
        for seed in self._seeds():
            try:
                with self._sentinel(seed) as sentinel:
                    master = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
                    replicas = sentinel.execute_command("SENTINEL", "REPLICAS", service) if self._replicas else []
            except PasswordFileError as error:
                raise StoreReplyError(f"Sentinel {seed}: {error}") from error
            except RedisError as error:
                causes.append(f"Sentinel {seed}: {self._meaning_of_sentinel(error)}")
                continue
            if master is None:
                causes.append(f"Sentinel {seed} knows no service {service}")
                continue
            named = [f"{host.decode()}:{int(port)}" for host, port in (master, *_served(replicas))]
            self._slots = [self._chosen(named)]
            self._named_by = f", which Sentinel {seed} names for {service},"
            return self._slots[0]
        raise StoreUnreachableError(f"no Sentinel names a master of {service}: {'; '.join(causes)}")

    def _sentinel(self, address: str) -> redis.Redis:
        """A client of one Sentinel, with its own user and password; nothing of the store's is sent there."""
        host, _, port = address.rpartition(":")
        given = self._access.sentinel
        known: dict[str, Any] = {"username": self._sentinel_user or None}
        if given.password is not None:
            known = {"credential_provider": _PasswordFile(self._sentinel_user, given.password, STORE_SENTINEL_PASSWORD)}
        client = redis.Redis(
            host=host.strip("[]"), port=int(port), **known, protocol=2, retry=Retry(NoBackoff(), 0),
            socket_timeout=_SENTINEL_S, socket_connect_timeout=_SENTINEL_S,
        )  # fmt: skip
        if self._sentinel_tls is not None:
            client.connection_pool.connection_class = _StoreConnection
            client.connection_pool.connection_kwargs.update(self._sentinel_tls)
        client.response_callbacks.clear()
        return client

    def _meaning_of_sentinel(self, error: RedisError) -> str:
        said, given = str(error).rstrip("."), self._access.sentinel
        if "NOPERM" in said or "no permissions" in said:
            return f"{said}; its user needs the right +sentinel|get-master-addr-by-name" + (
                " and +sentinel|replicas" if self._replicas else ""
            )
        if isinstance(error, AuthenticationError) or "NOAUTH" in said or "WRONGPASS" in said:
            if given.password is None and "uthentication required" in said:
                return f"{said}; it wants a password and was given none: set {STORE_SENTINEL_PASSWORD.name}"
            if "without any password configured" in said:
                return f"{said}; it requires no password: leave {STORE_SENTINEL_PASSWORD.name} out"
            source = f", and the password is from {given.password}" if given.password is not None else ""
            return f"{said}; its user is {self._sentinel_user or 'the default one'}{source} (store.sentinel.*)"
        tls = given.tls or self._access.tls
        in_url = (self._sentinel_tls or {}).get("ssl_ca_certs", "")
        return explained(str(error), tls=self._sentinel_tls is not None, files=tls, ca_in_url=in_url)


def _served(replicas: Sequence[Sequence[bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the addresses of the replicas that a Sentinel takes for alive."""
    found = []
    for flat in replicas:
        facts = dict(zip(flat[::2], flat[1::2], strict=True))
        if not _REPLICA_DOWN & set(facts.get(b"flags", b"").split(b",")):
            found.append((facts[b"ip"], facts[b"port"]))
    return found


class _PasswordFile(CredentialProvider):
    """A user, "" for the default one, and the password in a file, read for each new connection."""

    def __init__(self, user: str, file: Path, named_by: Setting[str]) -> None:
        self._user, self._file, self._named_by = user, file, named_by

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return what AUTH sends. Raises PasswordFileError."""
        password = password_in(self._file, self._named_by)
        return (self._user, password) if self._user else (password,)


class _StoreConnection(SSLConnection):
    """A TLS connection that accepts the authorities that are given, and not the system's as well (CM-195)."""

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
        if not self.ca_certs:
            found: ssl.SSLSocket = super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call] # nor here
            return found
        context = client_context(self.ca_certs, self.certfile, self.keyfile)
        context.check_hostname, context.verify_mode = self.check_hostname, self.cert_reqs
        return context.wrap_socket(sock, server_hostname=self.host)


def _tls_options(parts: SplitResult, tls: StoreTls) -> dict[str, str]:
    """redis-py's options for the files of store.ssl.*. Raises ValueError when they cannot be used, for a file that the
    URL names as well, and for an address without TLS."""
    if not tls:
        return {}
    if not parts.scheme.startswith("rediss"):
        raise ValueError(
            f"{tls.prefix}.* is set, but connections would not be encrypted; expected a URL with rediss://"
        )
    options = tls.options()
    if twice := sorted(options.keys() & dict(parse_qsl(parts.query)).keys()):
        raise ValueError(
            f"the store URL has the option {twice[0]}, and {tls.prefix}.* names another file; set one of them"
        )
    return options


def _tls_of_sentinels(parts: SplitResult, access: StoreAccess, of_store: Mapping[str, str]) -> dict[str, str] | None:
    """redis-py's options for TLS towards Sentinels; None without TLS. Raises ValueError for settings that cannot be
    used or have no use."""
    given = access.sentinel
    encrypted = parts.scheme.startswith("rediss")
    if not given.encrypted and (given.tls or not encrypted):
        raise ValueError(
            f"{given.tls.prefix}.enable is false, but {'files are set' if given.tls else 'the URL has no TLS at all'}; "
            "expected it only with rediss+sentinel:// and without such files"
        )
    if given.tls:
        return _tls_options(parts._replace(query=""), given.tls)
    if not encrypted or not given.encrypted:
        return None
    options = {**dict(parse_qsl(parts.query)), **of_store}
    return {name: options[name] for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile") if name in options}


def _user(parts: SplitResult, access: StoreAccess) -> str:
    """The store's user, "" for its default one. Raises ValueError when two are named."""
    named = parts.username or ""
    if access.username and named and access.username != named:
        raise ValueError(f"the store URL names the user {named}, but store.username is {access.username}")
    return access.username or named


def _read_only(connection: Any) -> None:
    """Send READONLY, so that a replica of a cluster answers reads; a master ignores it."""
    connection.on_connect()
    connection.send_command("READONLY")
    connection.read_response()
