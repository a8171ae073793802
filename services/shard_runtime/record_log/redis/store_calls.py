"""Work for a writer: what a call sends, what the replies mean, and when an answer counts (CM-12, CM-18).

A call lives across reconnects: every call here is safe to repeat. Flushes, which have more to judge, are in `flush.py`.
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
    """What a writer does with a call once its pipeline is answered."""

    DONE = auto()
    AGAIN = auto()
    """Keep it for the next pipeline on this connection."""
    LATER = auto()
    """The same, after a pause."""
    RECHECK = auto()
    """Keep it, and let the connection be checked anew before anything else is written (CM-19)."""


class PipelineResult(NamedTuple):
    """What a pipeline showed as a whole. `intact`: the history read after it is that of its connection's check."""

    connection: StoreConnection
    acked: int
    history: str
    intact: bool


class StoreCall(Protocol):
    """One call. `settle` and `lost` tell it of the commands it gave out last; no pipeline takes a done call."""

    key: str
    wait: int
    size: int

    @property
    def done(self) -> bool:
        """Answered, or given up by its caller."""
        ...

    @property
    def unresolved(self) -> bool:
        """It holds back new work: its outcome is unknown, or too few replicas have it (CM-15)."""
        ...

    @property
    def shards(self) -> Sequence[ClaimedShard]:
        """Shards whose tail must have been found whole on this connection before the call is sent."""
        ...

    def commands(self) -> Sequence[Command]:
        """What to send now; nothing when only a WAIT is missing."""
        ...

    def after(self) -> Sequence[Command]:
        """What to send after the WAIT."""
        ...

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Judge the replies."""
        ...

    def lost(self) -> None:
        """The connection broke while the commands were out: their outcome is unknown."""
        ...

    def fail(self, error: Exception) -> None:
        """Answer the caller with an error, unless it is answered already."""
        ...


class AnsweredCall(Generic[AnswerT]):
    """What all calls but flushes share: a caller who waits for a bounded time, and a call that may be repeated."""

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
        """None: claims and reads of owner records rest on no tail."""
        return ()

    def after(self) -> Sequence[Command]:
        """Nothing."""
        return ()

    def lost(self) -> None:
        """Nothing to note: the repetition is the same call."""

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
        """An error reply: another place or time is looked for; anything else is told to the caller."""
        if error.code in REROUTE_CODES or error.code == "READONLY":
            return Verdict.RECHECK
        self.fail(StoreUnavailableError(f"the store refused a call on {self.key}: {error}"))
        return Verdict.DONE


def seen(future: asyncio.Future[AnswerT]) -> None:
    """Look at an error nobody awaits any more, so that the loop does not complain about it."""
    if not future.cancelled():
        future.exception()


class ClaimCall(AnsweredCall[ClaimAnswer]):
    """`claim_v2`, its WAIT, and a look after it whether the record is still this claim's (CM-12)."""

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
        """The claim; its deadline counts from here, also when it is a repetition."""
        self._sent_ms = self._clock.now_ms()
        return (lease_commands.claim_command(self._request, self._record),)

    def after(self) -> Sequence[Command]:
        """The owner record once more."""
        return (lease_commands.owner_query(self._request.shard),)

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Count a claim only when it is durable, under one history, and still ours."""
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
            return Verdict.AGAIN  # the repetition is a write, so the next WAIT means something
        request = self._request
        if not lease_commands.is_owner(owner, request.incarnation, answer.epoch, request.nonce):
            return self.succeed(ClaimRefused("another claim came before this one was durable"))
        if not self.done:
            self._hold(request, answer, self._record, pipeline.connection)
        return self.succeed(answer)


class RenewCall(AnsweredCall[list[Renewed]]):
    """`renew_v1` for leases of one node, and the look at the cluster id that goes with it (CM-3, CM-19)."""

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
        """A renewal keeps serving what is held, so the tails must have been looked at (CM-19)."""
        return self._held

    def commands(self) -> Sequence[Command]:
        """The renewal; deadlines count from here."""
        self._sent_ms = self._clock.now_ms()
        renewal = lease_commands.renew_command(self._renewals)
        return (renewal,) if self._cluster_id is None else (renewal, ("GET", META_CLUSTER_ID))

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Count renewals only when durable under one history."""
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
    """`release_v1` and the wake-up for the others (CM-4)."""

    def __init__(self, shard: ShardId, incarnation: int, epoch: int) -> None:
        super().__init__(shard.owner_key)
        self._command = lease_commands.release_command(shard, incarnation, epoch)
        self._shard = shard

    def commands(self) -> Sequence[Command]:
        """Release, then publish."""
        return (self._command, ("PUBLISH", WAKE_CHANNEL, f"released {self._shard.tag}"))

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Whether it was ours. Not waited for: the owner never serves under that epoch again, whatever the reply."""
        if isinstance(replies[0], ErrorReply):
            return self.refused(replies[0])
        return self.succeed(replies[0] == b"1")


class CompactCall(AnsweredCall[bool]):
    """`replay_from_v1`, and XTRIM only once that is durable and the record was found ours (CM-18, SR-15)."""

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
        """Trimming rests on appends this owner saw confirmed."""
        return (self._held,)

    def commands(self) -> Sequence[Command]:
        """First the record, then the stream."""
        if self._trimming:
            return (("XTRIM", self._stream, "MINID", str(self._trim_to)),)
        held, main = self._held, self._held.shard.streams[0]
        before = self._before if self._stream == main else None
        return (lease_commands.replay_from_command(held.shard, held.incarnation, held.epoch, before),)

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """On to the trim, or done."""
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
        """Begin again: after a reconnect the record may no longer be ours."""
        self._trimming = False


class PlainCall(AnsweredCall[list[Reply]]):
    """Commands that may be repeated as they are. Without any, it waits for a checked connection, and for `held`."""

    def __init__(self, key: str, commands: Sequence[Command], held: Sequence[ClaimedShard] = ()) -> None:
        super().__init__(key)
        self._commands = commands
        self._held = held

    @property
    def shards(self) -> Sequence[ClaimedShard]:
        """Shards that must have been looked at on the connection."""
        return self._held

    def commands(self) -> Sequence[Command]:
        """As given."""
        return self._commands

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Hand the replies over."""
        for reply in replies:
            if isinstance(reply, ErrorReply):
                return self.refused(reply)
        if not pipeline.intact:
            return Verdict.RECHECK
        return self.succeed(list(replies))
