"""The protocol of durable logs with fenced ownership; `redis/` implements it, over real stores and over `memory/`.

A shard is one or more streams and an owner record under one hash tag (CM-10, CM-12). The owner chooses entry ids
`<epoch>-<seq>`. The store refuses an id that is not above the stream's last one: that is the fence (SR-4…SR-9, CM-13).

An owner's order of calls: `claim`; on Claimed replay with `read`; then `append`, and `renew` before each deadline; at
the end `release`. After any ShardLostError: `drop` the shard, `claim` again, replay. A call that failed with
StoreUnavailableError is safe to repeat. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from shard_runtime.record_log.settlements import Settlement

CLAIM_TYPE: Final = "C"
NOOP_TYPE: Final = "N"


class StreamId(NamedTuple):
    """An entry's id: the owner's epoch, and a sequence inside it (in a topic log: the next offset, CM-40)."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"


STREAM_START: Final = StreamId(0, 0)


class Entry(NamedTuple):
    """One stream entry: `kind` is field `t`, `record` field `r`, `batch` field `b` (empty except in a topic log).

    `damage`: the fault that the checksum revealed in an entry that was read; "" for an intact entry. The reader must
    not use any field of a damaged entry (CM-101), except a key that its `key_proof` proves (CM-106). Only a damaged
    entry of a coordinator's log has a `key_proof`.
    """

    id: StreamId
    kind: str
    record: bytes
    batch: bytes = b""
    damage: str = ""
    key_proof: bytes = b""


class ShardKind(StrEnum):
    """The three kinds of shard (CM-10)."""

    GROUP = "gc"
    SHARE_STATE = "sgs"
    TOPIC = "tp"


class ShardId(NamedTuple):
    """A shard's name. `name` is `7` for group and share-state shards, `<topic id text>:<partition>` for topic logs.

    It is a tuple because ownership looks up tens of thousands of shards in each tick: hash and equality run in C.
    """

    kind: ShardKind
    name: str

    @property
    def tag(self) -> str:
        """The hash tag in all keys of the shard, braces included: `{gc:7}`."""
        return "{" + f"{self.kind.value}:{self.name}" + "}"

    @property
    def owner_key(self) -> str:
        """The key of the owner record."""
        return f"{self.tag}:owner"

    @property
    def readers_key(self) -> str:
        """The key of the hash in which readers of the main log note how far they have read (SR-29)."""
        return f"{self.tag}:readers"

    @property
    def skip_key(self) -> str:
        """The key of the hash that notes which damaged entries an operator has settled (CM-103, CM-114)."""
        return f"{self.tag}:skip"

    @property
    def streams(self) -> tuple[str, ...]:
        """Keys of the shard's streams, the main log first; a topic log has a control log beside it (CM-40)."""
        log = f"{self.tag}:log"
        return (log, f"{self.tag}:ctl") if self.kind is ShardKind.TOPIC else (log,)


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The content of an owner key (CM-12)."""

    node_id: int
    incarnation: int
    address: str
    epoch: int
    expires_ms: int
    released: bool
    lease_history: str
    tail_history: str
    replay_from: StreamId


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """One attempt to own a shard (`claim_v2`, CM-12). After a lost reply, repeat the request with the same nonce.

    `whole`: former histories of the store that are known to have ended with everything on disk. A tail that was whole
    under one of them is still whole (CM-104).
    """

    shard: ShardId
    node_id: int
    incarnation: int
    address: str
    nonce: str
    lease_ms: int
    floor: int
    seen_history: str
    dead: frozenset[int] = frozenset()
    whole: tuple[str, ...] = ()
    waited: bool = False
    lossless: bool = False
    durable: bool = True
    cont_epoch: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The caller owns the shard and the claim is durable: replay now. The lease runs from `sent_ms`, the time on the
    deadline clock when the claim was sent (CM-3)."""

    epoch: int
    lossy: bool
    replay_from: StreamId
    previous: OwnerRecord | None
    history: str
    sent_ms: int


@dataclass(frozen=True, slots=True)
class OwnedElsewhere:
    """Another process owns the shard for at least `remaining_ms` more: claim again after that, or when woken."""

    owner: OwnerRecord
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class HistoryChanged:
    """The store's history is not the one in the request: claim again with `history`."""

    history: str


@dataclass(frozen=True, slots=True)
class WaitHistory:
    """The caller must first see the current history for one whole lease by its own clock, then claim with `waited` set
    (CM-12)."""

    history: str


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """The claim failed: its nonce was released, the epochs are exhausted, it is not durable, or another claim came
    during the WAIT. Try again with a new nonce."""

    reason: str


ClaimAnswer = Claimed | OwnedElsewhere | HistoryChanged | WaitHistory | ClaimRefused


class Renewal(NamedTuple):
    """A request to keep a lease. `tail_ok`: the history under which the owner's tail was found whole or repaired
    (CM-12)."""

    shard: ShardId
    incarnation: int
    epoch: int
    lease_ms: int
    tail_ok: str = ""


class Renewed(NamedTuple):
    """The reply to one lease renewal, which is durable by then. When `ok` is false, ownership is lost or
    `RecordLog.lost` is set: stop answering and drop the shard."""

    ok: bool
    history: str
    sent_ms: int


class Appended(NamedTuple):
    """The ids that a flush used. `tip`: the last id in `shard.streams[-1]`; continue there at `tip.seq + 1`.

    `noops`: entries of type N written after a flush whose outcome had to be read back; `tip` includes them (CM-19).
    They are in the log of a group or share-state shard, and in the control log of a topic (CM-40).
    """

    tip: StreamId
    noops: int


@dataclass(frozen=True, slots=True)
class StreamAppend:
    """Entries for one stream of a shard."""

    stream: str
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class StreamTip:
    """`stream_tip_v1`: the last id ever given, entries ever added, entries stored now, the first id stored now."""

    last: StreamId
    entries_added: int
    length: int
    first: StreamId


@dataclass(frozen=True, slots=True)
class ReaderNotes:
    """Readers' notes for a stream: reader name → the note's raw bytes, and the store's clock at the read, in ms."""

    values: Mapping[str, bytes]
    now_ms: int


class LogError(Exception):
    """A call to the store failed; the subclasses define what the caller must do next."""


class AppendRefusedError(LogError):
    """The store refused these ids when they were first sent. Nothing was written, and the caller may use the ids again
    (CM-13)."""


class ShardLostError(LogError):
    """Another owner has claimed the shard, or the store gave a reply that no owner should get: `drop` it, claim it,
    replay."""


class StreamDeletedError(ShardLostError):
    """The shard's stream was deleted: drop the shard. Do not claim it again once its topic is known to be deleted."""


class TailLostError(ShardLostError):
    """The store lost entries confirmed to this owner (a fail-over or a restart): claim again (CM-19, CM-47)."""


class DamagedEntryError(LogError):
    """A stored entry differs from what was written; the reader must not continue past it. The message names the stream
    and the entry. An operator restores the store or lets replays skip the entry (CM-103)."""


class StoreUnavailableError(LogError):
    """The store cannot be reached, or is not a master of this cluster: repeat the call later."""


class NameTakenError(LogError):
    """Another incarnation holds this node's name: a living process, or a dead one whose entry has not lapsed (CM-1).
    Wait for the entry to lapse, or choose another name."""


class RecordLog(Protocol):
    """The logs and owner records of one store, as one process sees them.

    One connection per store node carries all writes in order, without retries by the library. One pipeline (MULTIs,
    functions, then WAIT) is in flight at a time (CM-19); calls that arrive meanwhile form the next pipeline (P-9).
    """

    @property
    def available(self) -> bool:
        """True while `available_for` holds on every store node in use (CM-15)."""
        ...

    def available_for(self, shard: ShardId) -> bool:
        """Return whether the caller may accept new work for a shard: its node's master is checked and no flush is
        unresolved there. While False, refuse new work with a retriable error (CM-15)."""
        ...

    @property
    def history(self) -> str:
        """The store's history (`master_replid`), last seen on the checked connection; "" before the first (CM-11a)."""
        ...

    def history_of(self, shard: ShardId) -> str:
        """The history of the store node that holds a shard: each node of a Redis Cluster has its own."""
        ...

    def tail_checked(self, shard: ShardId) -> str:
        """The history to send as `Renewal.tail_ok`; "" when the caller must not send one.

        It is the history under which the owner's last id was found in the store, with no flush unresolved. After a
        lossy claim it is "" until the host has repaired the tail and confirmed that with a `tail_ok` of its own (CM-12,
        CM-47).
        """
        ...

    def lost(self, shard: ShardId) -> ShardLostError | None:
        """Why this process may no longer use a shard it claimed; None while it may. If there is a reason, drop the
        shard and claim it again (CM-19)."""
        ...

    async def claim(self, request: ClaimRequest) -> ClaimAnswer:
        """Try to own a shard. On Claimed the claim entry is durable in every stream of the shard; then replay.

        The other replies say when to try again. Raises StoreUnavailableError when no reply came in time; repeat the
        same request, with the same nonce.
        """
        ...

    async def renew(self, renewals: Sequence[Renewal]) -> list[Renewed | None]:
        """Renew many leases in one call; return the replies in the same order. A reply is None when no durable one
        came: the lease's deadline stays as it is, and the caller renews again."""
        ...

    async def release(self, shard: ShardId, incarnation: int, epoch: int) -> bool:
        """Give a shard up and wake the other nodes (CM-4). Returns False when this process did not own it. In either
        case the caller must not use the epoch again."""
        ...

    async def append(self, shard: ShardId, epoch: int, appends: Sequence[StreamAppend]) -> Appended:
        """Append as ONE atomic flush (MULTI…EXEC, NOMKSTREAM); return once it is committed (SR-19, CM-19).

        At most one flush per shard may be outstanding. While the store is unreachable this call waits, then reads back
        to learn the outcome (SR-9, CM-15). So put a time-out on *answering* a client, never on this call.
        Raises AppendRefusedError (nothing was written: fail the callers, go on with the same ids); ShardLostError
        (fenced, or an unexpected reply), StreamDeletedError or TailLostError: drop the shard, then do as the class
        says.
        """
        ...

    async def read(self, stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
        """Up to `count` entries with id > `after` and ≤ `through` (None: to the end), in order; an empty page when no
        more are stored. The caller must check each entry's `damage`. Raises LogError; after StoreUnavailableError, read
        again."""
        ...

    async def index(self, stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
        """Like `read`, but without the batches (`log_index_v3`)."""
        ...

    async def read_back(self, stream: str, before: StreamId, count: int) -> list[Entry]:
        """Up to `count` entries with id < `before`, newest first, without batches."""
        ...

    async def tip(self, stream: str) -> StreamTip | None:
        """The stream's last id and length; None when the stream does not exist (`stream_tip_v1`)."""
        ...

    async def readers(self, shard: ShardId) -> ReaderNotes:
        """The notes of a shard's readers on how far they have read its main log, one page at most (SR-29). Raises
        LogError."""
        ...

    async def skipped(self, shard: ShardId) -> Mapping[StreamId, Settlement]:
        """Damaged entries of the main log that an operator settled (CM-103, CM-114). Raises LogError."""
        ...

    async def compact(
        self,
        shard: ShardId,
        incarnation: int,
        epoch: int,
        stream: str,
        before: StreamId,
        *,
        keep_from: StreamId | None = None,
    ) -> bool:
        """Set `replay_from` to `before` (main log only), then trim `stream` below it (CM-18). Returns False when this
        process no longer owns the shard and nothing was trimmed.

        The trim keeps entries from `keep_from` on for readers, though no claim replays them (SR-29).
        """
        ...

    async def delete_streams(self, shard: ShardId) -> None:
        """Remove a deleted topic's streams and owner record (CM-21)."""
        ...

    async def drop(self, shard: ShardId) -> None:
        """Forget a shard in this process and fail its unanswered flush; nothing is sent to the store. Call this before
        claiming a lost shard again."""
        ...

    async def close(self) -> None:
        """Close every connection and end every task; unanswered calls fail with StoreUnavailableError."""
        ...
