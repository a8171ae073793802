"""Durable logs with fenced ownership, as the hosts see them; `redis/` and `memory/` implement this protocol.

A shard is one or more streams and an owner record under one hash tag (CM-10, CM-12). Entry ids are `<epoch>-<seq>`,
chosen by the owner, and an id not above a stream's last one is refused: that is the fence (SR-4…SR-9, CM-13).
Nothing here decides; everything here is safe to repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

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
    """One stream entry: `kind` is field `t`, `record` field `r`, `batch` field `b` (topic log only; else empty).

    `damage` says what is wrong with an entry that was read back, by its checksum; "" when nothing is. Of a damaged one
    nothing may be believed (CM-101).
    """

    id: StreamId
    kind: str
    record: bytes
    batch: bytes = b""
    damage: str = ""


class ShardKind(StrEnum):
    """The three kinds of shard (CM-10)."""

    GROUP = "gc"
    SHARE_STATE = "sgs"
    TOPIC = "tp"


class ShardId(NamedTuple):
    """A shard's name. `name` is `7` for group and share-state shards, `<topic id text>:<partition>` for topic logs.

    A tuple, for ownership looks shards up by the ten thousand in each tick: its hash and equality run in C.
    """

    kind: ShardKind
    name: str

    @property
    def tag(self) -> str:
        """The hash tag all keys of the shard carry, braces included: `{gc:7}`."""
        return "{" + f"{self.kind.value}:{self.name}" + "}"

    @property
    def owner_key(self) -> str:
        """The key of the owner record."""
        return f"{self.tag}:owner"

    @property
    def readers_key(self) -> str:
        """The key of the hash in which readers of the main log note how far they are (SR-29)."""
        return f"{self.tag}:readers"

    @property
    def skip_key(self) -> str:
        """The key of the hash of damaged entries that an operator told replays to go on without (CM-103)."""
        return f"{self.tag}:skip"

    @property
    def streams(self) -> tuple[str, ...]:
        """Keys of the shard's streams, the main log first; a topic log has a control log beside it (CM-40)."""
        log = f"{self.tag}:log"
        return (log, f"{self.tag}:ctl") if self.kind is ShardKind.TOPIC else (log,)


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """What an owner key holds (CM-12)."""

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
    """One attempt to own a shard (`claim_v2`, CM-12). A retry after a lost reply repeats it with the same nonce.

    `whole`: former histories of the store that are known to have ended with everything on disk: a tail that was whole
    under one of them is whole now (CM-104).
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
    """The shard is ours and the claim is durable. `sent_ms` is the deadline clock when the claim was sent (CM-3)."""

    epoch: int
    lossy: bool
    replay_from: StreamId
    previous: OwnerRecord | None
    history: str
    sent_ms: int


@dataclass(frozen=True, slots=True)
class OwnedElsewhere:
    """Somebody else owns the shard for `remaining_ms` more at least."""

    owner: OwnerRecord
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class HistoryChanged:
    """The store's history is not the one the caller had seen; look again with this one."""

    history: str


@dataclass(frozen=True, slots=True)
class WaitHistory:
    """The caller must first have seen the present history for one lease by its own clock (CM-12 `waited`)."""

    history: str


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """The claim cannot be: released nonce, epochs exhausted, not durable, or no longer ours after WAIT."""

    reason: str


ClaimAnswer = Claimed | OwnedElsewhere | HistoryChanged | WaitHistory | ClaimRefused


class Renewal(NamedTuple):
    """Keep a lease. `tail_ok`: the own tail was found whole, or made so, under the present history (CM-12)."""

    shard: ShardId
    incarnation: int
    epoch: int
    lease_ms: int
    tail_ok: str = ""


class Renewed(NamedTuple):
    """One renewal's answer, durable. `ok` false: the record is no longer ours, or `RecordLog.lost` says why else."""

    ok: bool
    history: str
    sent_ms: int


class Appended(NamedTuple):
    """What a flush used up. `tip` is the last id given in `shard.streams[-1]`; it goes on at `tip.seq + 1`.

    `noops` entries of type N, written behind a flush whose outcome had to be read back, are counted in it (CM-19). They
    lie in the log of a group or share-state shard and in the control log of a topic (CM-40).
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
    """`stream_tip_v1`: the last id ever given, entries ever added, entries held, the first id held."""

    last: StreamId
    entries_added: int
    length: int
    first: StreamId


@dataclass(frozen=True, slots=True)
class ReaderNotes:
    """What readers noted beside a stream, by their names, just as it lies there; the store's clock when it was read."""

    values: Mapping[str, bytes]
    now_ms: int


class LogError(Exception):
    """An append or a read did not do what was asked."""


class AppendRefusedError(LogError):
    """The store definitely refused the first sending of these ids; nothing landed, the ids are free (CM-13)."""


class ShardLostError(LogError):
    """Another owner has claimed, or the store answered what no owner should see: drop the shard, claim, replay."""


class StreamDeletedError(ShardLostError):
    """The shard's stream was deleted (its topic is gone)."""


class TailLostError(ShardLostError):
    """The store lost entries this owner had seen confirmed (a fail-over or a restart): claim again (CM-19, CM-47)."""


class DamagedEntryError(LogError):
    """What is stored is not what was written, and nothing may be built on it; the message names stream and entry."""


class StoreUnavailableError(LogError):
    """The store cannot be reached, or does not answer as a master of this cluster."""


class NameTakenError(LogError):
    """Another incarnation holds this node's name: a living process, or a dead one whose entry has not lapsed (CM-1)."""


class RecordLog(Protocol):
    """The logs and owner records of one store, as one process sees them.

    One connection per store node carries all writes, without library retry, in order, with one pipeline of MULTIs and
    functions plus WAIT in flight on it (CM-19); what arrives meanwhile forms the next pipeline (P-9).
    """

    @property
    def available(self) -> bool:
        """Whether new work may be taken on every store node in use: see `available_for` (CM-15)."""
        ...

    def available_for(self, shard: ShardId) -> bool:
        """Whether new work may be taken for a shard: its node's master is checked, nothing is unresolved."""
        ...

    @property
    def history(self) -> str:
        """The store's history (`master_replid`) as last seen on the checked connection (CM-11a); "" before."""
        ...

    def history_of(self, shard: ShardId) -> str:
        """The history of the store node that holds a shard: nodes of a Redis Cluster have one each."""
        ...

    def tail_checked(self, shard: ShardId) -> str:
        """The history to send as `Renewal.tail_ok`, or "".

        It is the one under which the owner's last id was found whole, nothing unresolved; never while a lossy claim
        still awaits its repair, which the host confirms by a `tail_ok` of its own (CM-12, CM-47).
        """
        ...

    def lost(self, shard: ShardId) -> ShardLostError | None:
        """Why a shard claimed here may not be used any more (TailLostError: claim again, CM-19); None while it may."""
        ...

    async def claim(self, request: ClaimRequest) -> ClaimAnswer:
        """Try to own a shard. The claim entry is in every stream when this answers Claimed, and durable.

        Raises StoreUnavailableError when no answer came in time: repeat the same request, with the same nonce.
        """
        ...

    async def renew(self, renewals: Sequence[Renewal]) -> list[Renewed | None]:
        """Renew many leases in one call, answers in order; None where no durable answer came: the deadline stays."""
        ...

    async def release(self, shard: ShardId, incarnation: int, epoch: int) -> bool:
        """Give a shard up and wake the others (CM-4). False: it was not ours."""
        ...

    async def append(self, shard: ShardId, epoch: int, appends: Sequence[StreamAppend]) -> Appended:
        """Append as ONE atomic flush (MULTI…EXEC, NOMKSTREAM), and return once it is committed (SR-19, CM-19).

        At most one flush per shard may be outstanding. While the store is away this waits and resolves the outcome
        by reading back (SR-9, CM-15): callers put their own time-out on *answering*, not on this.
        Raises AppendRefusedError (nothing landed), ShardLostError (fenced or unexpected), StreamDeletedError,
        TailLostError.
        """
        ...

    async def read(self, stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
        """Up to `count` entries with id > `after` and ≤ `through` (None: to the end), in order."""
        ...

    async def index(self, stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
        """As `read`, without the batches (`log_index_v2`)."""
        ...

    async def read_back(self, stream: str, before: StreamId, count: int) -> list[Entry]:
        """Up to `count` entries with id < `before`, newest first, without batches."""
        ...

    async def tip(self, stream: str) -> StreamTip | None:
        """Where the stream stands; None when it does not exist (`stream_tip_v1`)."""
        ...

    async def readers(self, shard: ShardId) -> ReaderNotes:
        """How far readers of a shard's main log say they are (SR-29); of very many some. Raises LogError."""
        ...

    async def skipped(self, shard: ShardId) -> frozenset[StreamId]:
        """Damaged entries of the main log that an operator told replays to go on without (CM-103). Raises LogError."""
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
        """`replay_from` := `before` (main log), then trim `stream` below it (CM-18). False: not ours any more.

        With `keep_from` the trim stops there: history that readers may still want, but no claim replays (SR-29).
        """
        ...

    async def delete_streams(self, shard: ShardId) -> None:
        """Remove a deleted topic's streams and owner record (CM-21)."""
        ...

    async def drop(self, shard: ShardId) -> None:
        """Forget what this process holds of a shard (its unanswered flush included); nothing is sent."""
        ...

    async def close(self) -> None:
        """Close every connection and end every task; what is unanswered fails with StoreUnavailableError."""
        ...
