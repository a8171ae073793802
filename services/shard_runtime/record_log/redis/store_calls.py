"""Calls for a writer: their commands, the meaning of the replies, and when a reply is valid (CM-12, CM-18).

A call outlives reconnects, so every call here is safe to repeat. For flushes, whose replies need more checks, see
`flush.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Generic, NamedTuple, Protocol, TypeVar

from shard_runtime.clock import Clock
from shard_runtime.record_log.protocol import (
    ClaimAnswer,
    Claimed,
    ClaimRefused,
    ClaimRequest,
    Renewal,
    Renewed,
    ShardId,
    StoreUnavailableError,
    StreamId,
)
from shard_runtime.record_log.redis import lease_commands
from shard_runtime.record_log.redis.claimed_shard import ClaimedShard
from shard_runtime.record_log.redis.connection import REROUTE_CODES, Command, ErrorReply, Reply, StoreConnection
from shard_runtime.record_log.redis.keys import META_CLUSTER_ID, WAKE_CHANNEL

AnswerT = TypeVar("AnswerT")


class Verdict(Enum):
    """A writer's next step with a call once its pipeline has its replies."""

    DONE = auto()
    AGAIN = auto()
    """Keep it for the next pipeline on this connection."""
    LATER = auto()
    """Keep it for a later pipeline, after a pause."""
    RECHECK = auto()
    """Keep it, and check the connection again before anything else is written (CM-19)."""


class PipelineResult(NamedTuple):
    """The result of a pipeline as a whole. `acked`: replicas that acknowledged its WAIT. `intact`: the history read
    after it equals the one its connection was checked with."""

    connection: StoreConnection
    acked: int
    history: str
    intact: bool


class StoreCall(Protocol):
    """One call of a writer's queue. The writer sends `commands` and `after`, then calls `settle` with the replies, or
    `lost` when the connection broke; both are about the commands taken last. It never sends a done call."""

    key: str
    wait: int
    size: int

    @property
    def done(self) -> bool:
        """Answered, or given up by its caller."""
        ...

    @property
    def unresolved(self) -> bool:
        """True while it makes the node unavailable to new work: its outcome is unknown, or too few replicas have it
        (CM-15)."""
        ...

    @property
    def shards(self) -> Sequence[ClaimedShard]:
        """Shards whose tail the writer must have found whole on this connection before it sends the call."""
        ...

    def commands(self) -> Sequence[Command]:
        """The commands to send now; none when only a WAIT is still needed."""
        ...

    def after(self) -> Sequence[Command]:
        """The commands to send after the WAIT."""
        ...

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Judge the replies; answer the caller if they are conclusive. Returns the writer's next step with the call."""
        ...

    def lost(self) -> None:
        """Note that the connection broke before the replies came: the commands' outcome is unknown."""
        ...

    def fail(self, error: Exception) -> None:
        """Give the caller an error, unless the call is done."""
        ...


class AnsweredCall(Generic[AnswerT]):
    """Base of all calls but flushes: the caller waits for a bounded time, and the call may be repeated."""

    wait = 0
    size = 0
    unresolved = False

    def __init__(self, key: str) -> None:
        self.key = key
        self.answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(seen)

    @property
    def done(self) -> bool:
        """Answered, or given up by its caller."""
        return self.answer.done()

    @property
    def shards(self) -> Sequence[ClaimedShard]:
        """Empty: claims and owner reads need no tail check."""
        return ()

    def after(self) -> Sequence[Command]:
        """No commands."""
        return ()

    def lost(self) -> None:
        """Do nothing: the same call is sent again."""

    def fail(self, error: Exception) -> None:
        """Answer with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def succeed(self, answer: AnswerT) -> Verdict:
        """Answer the caller."""
        if not self.answer.done():
            self.answer.set_result(answer)
        return Verdict.DONE

    def refused(self, error: ErrorReply) -> Verdict:
        """Judge an error reply: repeat the call elsewhere or later where that may help, else pass the error to the
        caller."""
        if error.code in REROUTE_CODES or error.code == "READONLY":
            return Verdict.RECHECK
        self.fail(StoreUnavailableError(f"the store refused a call on {self.key}: {error}"))
        return Verdict.DONE


def seen(future: asyncio.Future[AnswerT]) -> None:
    """Retrieve a future's error, so that the event loop does not log it as never retrieved when no caller awaits it."""
    if not future.cancelled():
        future.exception()


class ClaimCall(AnsweredCall[ClaimAnswer]):
    """`claim_v2`, its WAIT, and then a read that checks whether the owner record is still this claim's (CM-12)."""

    def __init__(
        self,
        request: ClaimRequest,
        record: bytes,
        replicas: int,
        clock: Clock,
        hold: Callable[[ClaimRequest, Claimed, bytes, StoreConnection], None],
    ) -> None:
        super().__init__(request.shard.owner_key)
        self.wait = replicas
        self._request = request
        self._record = record
        self._clock = clock
        self._hold = hold
        self._sent_ms = 0

    def commands(self) -> Sequence[Command]:
        """The claim. Its lease runs from the last time it was sent."""
        self._sent_ms = self._clock.now_ms()
        return (lease_commands.claim_command(self._request, self._record),)

    def after(self) -> Sequence[Command]:
        """Read the owner record again."""
        return (lease_commands.owner_query(self._request.shard),)

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Accept a claim only when it is durable, under one history, and still this process's."""
        reply = replies[0]
        if isinstance(reply, ErrorReply):
            if reply.code in REROUTE_CODES or reply.code == "READONLY":
                return Verdict.RECHECK
            return self.succeed(ClaimRefused(str(reply)))
        answer = lease_commands.claim_answer(reply, self._sent_ms)
        return self._settle_claimed(answer, after[0], pipeline) if isinstance(answer, Claimed) else self.succeed(answer)

    def _settle_claimed(self, answer: Claimed, owner: Reply, pipeline: PipelineResult) -> Verdict:
        if not pipeline.intact or answer.history != pipeline.history:
            return Verdict.RECHECK
        if pipeline.acked < self.wait:
            return Verdict.AGAIN  # the repetition writes again, so the next WAIT covers it
        request = self._request
        if not lease_commands.is_owner(owner, request.incarnation, answer.epoch, request.nonce):
            return self.succeed(ClaimRefused("another claim came before this one was durable"))
        if not self.done:
            self._hold(request, answer, self._record, pipeline.connection)
        return self.succeed(answer)


class RenewCall(AnsweredCall[list[Renewed]]):
    """`renew_v1` for leases on one node, with a read of the cluster id (CM-3, CM-19)."""

    def __init__(
        self,
        renewals: Sequence[Renewal],
        held: Sequence[ClaimedShard],
        replicas: int,
        clock: Clock,
        cluster_id: str | None,
    ) -> None:
        super().__init__(renewals[0].shard.owner_key)
        self.wait = replicas
        self._cluster_id = cluster_id
        self._renewals = renewals
        self._held = held
        self._clock = clock
        self._sent_ms = 0

    @property
    def shards(self) -> Sequence[ClaimedShard]:
        """The renewed shards. A renewal lets their owner go on answering, so their tails must have been checked
        (CM-19)."""
        return self._held

    def commands(self) -> Sequence[Command]:
        """The renewal. Leases run from the last time it was sent."""
        self._sent_ms = self._clock.now_ms()
        renewal = lease_commands.renew_command(self._renewals)
        return (renewal,) if self._cluster_id is None else (renewal, ("GET", META_CLUSTER_ID))

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Accept renewals only when they are durable under one history."""
        reply = replies[0]
        if isinstance(reply, ErrorReply):
            return self.refused(reply)
        history = reply[0].decode()
        other_cluster = self._cluster_id is not None and replies[1] != self._cluster_id.encode()
        if other_cluster or not pipeline.intact or history != pipeline.history:
            return Verdict.RECHECK
        if pipeline.acked < self.wait:
            return Verdict.AGAIN
        return self.succeed([Renewed(word == b"1", history, self._sent_ms) for word in reply[2:]])


class ReleaseCall(AnsweredCall[bool]):
    """`release_v1`, and the wake-up of the other nodes (CM-4)."""

    def __init__(self, shard: ShardId, incarnation: int, epoch: int) -> None:
        super().__init__(shard.owner_key)
        self._command = lease_commands.release_command(shard, incarnation, epoch)
        self._shard = shard

    def commands(self) -> Sequence[Command]:
        """Release, then publish."""
        return (self._command, ("PUBLISH", WAKE_CHANNEL, f"released {self._shard.tag}"))

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Answer whether this process owned the shard. No WAIT is needed, since the owner never uses that epoch
        again."""
        if isinstance(replies[0], ErrorReply):
            return self.refused(replies[0])
        return self.succeed(replies[0] == b"1")


class CompactCall(AnsweredCall[bool]):
    """`replay_from_v1`; then XTRIM, only after that is durable and the owner record is still this owner's (CM-18,
    SR-15)."""

    def __init__(self, held: ClaimedShard, stream: str, before: StreamId, trim_to: StreamId, replicas: int) -> None:
        super().__init__(stream)
        self.wait = replicas
        self._held = held
        self._stream = stream
        self._before = before
        self._trim_to = trim_to
        self._trimming = False

    @property
    def shards(self) -> Sequence[ClaimedShard]:
        """The trimmed shard: the trim is right only if the appends confirmed to this owner are still there."""
        return (self._held,)

    def commands(self) -> Sequence[Command]:
        """First the update of the owner record's `replay_from`, then the trim. No commands once the shard is lost:
        entries that the store has lost justify no trim."""
        if self._held.lost is not None:
            self.fail(self._held.lost)
            return ()
        if self._trimming:
            return (("XTRIM", self._stream, "MINID", str(self._trim_to)),)
        held, main = self._held, self._held.streams[0]
        before = self._before if self._stream == main else None
        return (lease_commands.replay_from_command(held.shard, held.incarnation, held.epoch, before),)

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Go on to the trim, or finish."""
        if isinstance(replies[0], ErrorReply):
            return self.refused(replies[0])
        if self._trimming:
            return self.succeed(True)
        if not pipeline.intact:
            return Verdict.RECHECK
        if replies[0] != b"1":
            return self.succeed(False)
        if pipeline.acked < self.wait:
            return Verdict.AGAIN
        self._trimming = True
        self._held.trimmed[self._stream] = max(self._trim_to, self._held.trimmed_below(self._stream))
        return Verdict.AGAIN

    def lost(self) -> None:
        """Start over: after a reconnect another process may own the shard."""
        self._trimming = False


class PlainCall(AnsweredCall[list[Reply]]):
    """Commands that may be repeated unchanged. Without commands it only waits until the connection and `held` are
    checked."""

    def __init__(self, key: str, commands: Sequence[Command], held: Sequence[ClaimedShard] = ()) -> None:
        super().__init__(key)
        self._commands = commands
        self._held = held

    @property
    def shards(self) -> Sequence[ClaimedShard]:
        """Shards that must have been checked on the connection."""
        return self._held

    def commands(self) -> Sequence[Command]:
        """The commands as given."""
        return self._commands

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Answer with the replies."""
        for reply in replies:
            if isinstance(reply, ErrorReply):
                return self.refused(reply)
        if not pipeline.intact:
            return Verdict.RECHECK
        return self.succeed(list(replies))
