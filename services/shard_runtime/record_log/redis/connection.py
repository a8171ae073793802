"""The interface of a store: connections that take commands and return replies, and a map from keys to nodes.

Nothing here retries, pools or judges. `resp` and `topology` implement it for real stores; tests have a twin in memory.
The same writer and logs use both, and they alone judge replies (CM-13, CM-19).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from shard_runtime.record_log.store_usage import MAKE_ROOM, MORE_MEMORY

Arg = str | bytes | int
Command = tuple[Arg, ...]
Reply = Any
"""bytes, int, None, a list of replies, or an ErrorReply. It is Any because the code that evaluates a reply parses
it."""


class ConnectionLostError(Exception):
    """The connection broke or did not answer in time. The store may or may not have executed what was sent: the caller
    reads back, or repeats what is safe to repeat."""


class StoreLoadingError(ConnectionLostError):
    """The store answers that it is loading its data; until that is done it serves nothing else: keep trying."""


class StoreAccessError(ConnectionLostError):
    """The store refuses the credentials, or requires some that were not given: do not try again with the same ones."""


class SentinelAccessError(StoreAccessError):
    """A Sentinel refuses the credentials of store.sentinel.*, or requires some that were not given (CM-230)."""


class HandshakeError(ConnectionLostError):
    """The certificates, or the use of TLS, of both sides do not fit; the message says what to correct (CM-231)."""


class NoMasterError(ConnectionLostError):
    """No Sentinel of those in the URL names a master for the service (CM-230)."""


class MasterLostError(ConnectionLostError):
    """The master that a Sentinel names cannot be reached; the message names both (CM-230)."""


_DISK: Final = (
    "[the file system of the store's data cannot be written: `CONFIG GET dir` names the directory, with `sharegroups "
    "up` it is store in the data directory. Make room there; the store recovers by itself]"
)
_FULL: Final = (  # CM-212
    "[the store has reached its memory limit (maxmemory; `sharegroups topics describe` shows it) and takes no write, "
    f"not even a deletion. First {MORE_MEMORY}. Then {MAKE_ROOM}]"
)
_RIGHTS: Final = "[give the store's user this right; docs/howto/deploy.md has the rules of each user]"


class ErrorReply(NamedTuple):
    """An error that the store returned, as a value: the other replies of its pipeline are still valid."""

    code: str
    message: str

    def __str__(self) -> str:
        said = f"{self.code} {self.message}".strip()
        if self.code == "MISCONF" or "No space left on device" in self.message:
            return f"{said} {_DISK}"
        if self.code == "OOM":
            return f"{said} {_FULL}"
        return f"{said} {_RIGHTS}" if self.is_missing_right else said

    @property
    def is_missing_right(self) -> bool:
        """True when the user of the store may not do this. A function replies with ERR then, EXEC with EXECABORT."""
        return "NOPERM" in (self.code, *self.message.split()) or "ACL failure in script" in self.message


UNAVAILABLE_CODES: Final = frozenset({"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"})
"""Codes of a node that serves nothing for a while: it loads its data, a script keeps it busy, its link to a master or
to the cluster is down, a slot is moving. Nothing was executed: repeat later (CM-182)."""
REROUTE_CODES: Final = UNAVAILABLE_CODES | {"MOVED", "ASK", "NOSCRIPT"}
"""Codes that mean: not on this node, or not now. Nothing was executed: `refresh` the key's node and repeat (CM-19)."""


def is_unavailable(reply: Reply) -> bool:
    """Return whether a reply says that the node serves nothing for a while (CM-182)."""
    return isinstance(reply, ErrorReply) and reply.code in UNAVAILABLE_CODES


TOO_SMALL: Final = "equal or smaller"
"""Part of the message of an XADD that the store refused because its id is not above the stream's last one. This is the
fence (CM-13)."""


class StoreConnection(Protocol):
    """One connection. The store runs commands in the order sent; at most one `run` may be outstanding. After
    ConnectionLostError it is closed: open another."""

    async def run(self, commands: Sequence[Command], timeout_ms: int) -> list[Reply]:
        """Send all commands in one write and read one reply for each. Raises ConnectionLostError, and closes itself."""
        ...

    async def message(self) -> list[Reply]:
        """Wait for the next message pushed to a subscribed connection. Raises ConnectionLostError."""
        ...

    async def close(self) -> None:
        """Close it; safe to repeat."""
        ...


class Store(Protocol):
    """A store's nodes. A node's name is its master's address, or one fixed word where there is only one master."""

    @property
    def clustered(self) -> bool:
        """True when keys are spread over nodes, so that a command may touch one hash tag only."""
        ...

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes that hold keys, as of the last `refresh`; empty before a cluster's first one."""
        ...

    def node_of(self, key: str) -> str | None:
        """The node that holds a key, as of the last `refresh`; None before a cluster's first one: call `refresh`."""
        ...

    async def refresh(self) -> None:
        """Find out which node holds which keys now. Raises ConnectionLostError when no node answers: try again
        later."""
        ...

    async def connect(self, node: str) -> StoreConnection:
        """Open a connection to a node. Raises ConnectionLostError, with a human-readable message."""
        ...


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How this process uses its store. Times in milliseconds."""

    cluster_id: str | None = None
    """The cluster this process belongs to. A store with another cluster id, or none, is never written to (CM-20)."""
    replicas: int = 0
    """Replicas per master, as configured (not as connected)."""
    min_insync_replicas: int = 1
    """Copies, the master's included, that a flush needs to be committed (SR-19)."""
    wait_ms: int = 1_000
    """How long one WAIT may block the write connection."""
    reply_ms: int = 5_000
    """How long, in addition to its WAIT, a pipeline may take before its connection is given up as lost."""
    call_ms: int = 2_000
    """How long a claim, renewal, release, compaction or read may take, including its repetitions."""
    backoff_ms: int = 50
    backoff_max_ms: int = 2_000
    turn_bytes: int = 16 * 1024 * 1024
    """A pipeline that carries this many bytes takes no further flush."""
    turn_jobs: int = 1_024
    """A pipeline carries at most this many flushes and calls."""

    @property
    def claim_replicas(self) -> int:
        """Replicas a claim or renewal must reach to count (CM-12)."""
        return max((self.replicas + 1) // 2, self.append_replicas)

    @property
    def append_replicas(self) -> int:
        """Replicas a flush must reach to be committed (SR-19)."""
        return self.min_insync_replicas - 1


class Replication(NamedTuple):
    """A node's role and history, from INFO replication: judging a reply requires them."""

    role: str
    history: str


def parse_replication(reply: Reply) -> Replication:
    """Parse role and history from an INFO replication reply; both are empty for an error reply, and so equal no
    expected value."""
    if isinstance(reply, str):
        reply = reply.encode()
    if not isinstance(reply, bytes):
        return Replication("", "")
    return Replication(_field(reply, b"role:"), _field(reply, b"master_replid:"))


def connected_replicas(reply: Reply) -> int | None:
    """The number of connected replicas in an INFO replication reply; None when it has none."""
    if isinstance(reply, str):
        reply = reply.encode()
    found = _field(reply, b"connected_slaves:") if isinstance(reply, bytes) else ""
    return int(found) if found.isdigit() else None


def _field(info: bytes, name: bytes) -> str:
    start = info.find(name)
    if start < 0:
        return ""
    end = info.find(b"\r\n", start)
    return info[start + len(name) : end if end >= 0 else None].decode()


INFO_REPLICATION: Final[Command] = ("INFO", "replication")
