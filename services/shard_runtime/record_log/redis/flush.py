"""One flush: a MULTI…EXEC of one shard, from its first sending to its commit (CM-13, CM-19, SR-9, SR-19, SR-21).

    NEW ──EXEC──▶ WRITTEN ──WAIT, same history──▶ committed
     │               │
     └──── lost ─────┴──▶ UNKNOWN ──read back──▶ absent: NEW again, the same ids and bytes
                             ▲                └▶ there: NOOP ──XADD──▶ WRITTEN on this connection
                             └─────── lost ───────────┘

A flush whose outcome was ever unknown is never rolled back, and its ids are never reused for other bytes. A flush never
talks to the store: a writer sends its `commands`, `connection_check` sends its `read_back`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

from shard_runtime.record_log.protocol import (
    NOOP_TYPE,
    Appended,
    AppendRefusedError,
    Entry,
    ShardLostError,
    StreamAppend,
    StreamDeletedError,
    StreamId,
)
from shard_runtime.record_log.redis.claimed_shard import ClaimedShard
from shard_runtime.record_log.redis.codec import entries, noop_record, xadd
from shard_runtime.record_log.redis.connection import REROUTE_CODES, TOO_SMALL, Command, ErrorReply, Reply
from shard_runtime.record_log.redis.store_calls import PipelineResult, Verdict, seen

_ENTRY_OVERHEAD: Final = 64


class FlushPhase(Enum):
    """A flush's phase; see the drawing above. WRITTEN: executed, and not yet on enough replicas."""

    NEW = auto()
    UNKNOWN = auto()
    NOOP = auto()
    WRITTEN = auto()


class FlushCall:
    """A flush as the writer's `StoreCall`."""

    def __init__(
        self, held: ClaimedShard, appends: Sequence[StreamAppend], replicas: int, wall_ms: Callable[[], int]
    ) -> None:
        self.key = held.owner_key
        self.wait = replicas
        self.size = sum(len(e.record) + len(e.batch) + _ENTRY_OVERHEAD for append in appends for e in append.entries)
        self.answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(seen)
        self._is_over = False
        self._held = held
        self._appends = [append for append in appends if append.entries]
        self._wall_ms = wall_ms
        self._phase = FlushPhase.NEW
        self._ever_unknown = False
        self._refused_as_old = False
        self._short = False
        self._noops: list[Entry] = []

    # -- for the writer -----------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """True once it is committed, refused, lost or dropped. Cancelling the caller does not end the flush."""
        return self._is_over

    @property
    def unresolved(self) -> bool:
        """True while its outcome is unknown or too few replicas have it: no new work meanwhile (CM-15, SR-21)."""
        return not self.done and (self._ever_unknown or self._short)

    @property
    def needs_read_back(self) -> bool:
        """True while its ids must be read back before anything more is sent for it."""
        return self._phase is FlushPhase.UNKNOWN

    @property
    def shards(self) -> Sequence[ClaimedShard]:
        """The shard it belongs to."""
        return (self._held,)

    def commands(self) -> Sequence[Command]:
        """The whole flush; after a read-back, the no-op that proves it; nothing while only replicas are missing."""
        if self._phase is FlushPhase.WRITTEN:
            return ()
        noop_stream = self._held.streams[-1]
        if self._phase is FlushPhase.NOOP:
            return (xadd(noop_stream, self._noops[-1]),)
        sent: list[Command] = [("MULTI",)]
        for append in self._appends:
            stream = append.stream
            sent += [xadd(stream, entry) for entry in append.entries]
        sent += [xadd(noop_stream, noop) for noop in self._noops]
        sent.append(("EXEC",))
        return sent

    def after(self) -> Sequence[Command]:
        """No commands."""
        return ()

    def fail(self, error: Exception) -> None:
        """Answer the caller with an error, and let the shard take its next flush."""
        if self._held.flush is self:
            self._held.flush = None
        if not self._is_over:
            self._is_over = True
            if not self.answer.done():
                self.answer.set_exception(error)

    def lost(self) -> None:
        """Note that the connection broke: the flush must be read back before anything else is written."""
        self._phase, self._ever_unknown = FlushPhase.UNKNOWN, True
        self._held.checked_on = None

    def settle(self, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Judge the replies by the phase and by whether the outcome was ever unknown (CM-13)."""
        if self.done:
            return Verdict.DONE
        if self._phase is FlushPhase.WRITTEN:
            return self._settle_wait(pipeline)
        results = replies if self._phase is FlushPhase.NOOP else replies[-1]
        if isinstance(results, ErrorReply):  # of EXEC: nothing of the MULTI was executed
            return self._refused(_cause(replies), results)
        error = next((result for result in results if isinstance(result, ErrorReply)), None)
        if error is not None:
            return self._settle_error(error)
        return self._settle_executed(results, pipeline)

    def _settle_executed(self, results: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
        """Judge a flush that was executed. The history read after it shows whether the checked store executed it."""
        if not pipeline.intact:
            self.lost()
            return Verdict.RECHECK
        if any(result is None for result in results):
            return self._lose(StreamDeletedError(f"{self._where}: the stream was deleted"))
        self._phase = FlushPhase.WRITTEN
        return self._settle_wait(pipeline)

    # -- judgements ---------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"shard {self._held.shard.tag}, epoch {self._held.epoch}"

    def _settle_wait(self, pipeline: PipelineResult) -> Verdict:
        if not pipeline.intact:
            self.lost()
            return Verdict.RECHECK
        if pipeline.acked < self.wait:
            self._short = True
            return Verdict.AGAIN
        self._commit(pipeline.history)
        return Verdict.DONE

    def _commit(self, history: str) -> None:
        held = self._held
        for append in self._appends:
            held.last[append.stream] = append.entries[-1]
        noop_stream = held.streams[-1]
        if self._noops:
            held.last[noop_stream] = self._noops[-1]
        held.flush = None
        held.whole_under = history
        if not self._is_over:
            self._is_over = True
            if not self.answer.done():
                self.answer.set_result(Appended(held.last[noop_stream].id, len(self._noops)))

    def _refused(self, cause: ErrorReply, outcome: ErrorReply) -> Verdict:
        """Judge a refused MULTI. If the outcome was never unknown, the ids are free again; otherwise an earlier sending
        may still arrive."""
        if cause.code in REROUTE_CODES:
            return Verdict.RECHECK
        if self._ever_unknown:
            return Verdict.RECHECK if cause.code == "READONLY" else Verdict.LATER
        self.fail(AppendRefusedError(f"{self._where}: the store refused the append: {cause}"))
        return Verdict.RECHECK if cause.code == "READONLY" or outcome.code != "EXECABORT" else Verdict.DONE

    def _settle_error(self, error: ErrorReply) -> Verdict:
        """Judge an error from inside the EXEC, or from a no-op."""
        if self._phase is FlushPhase.NOOP and (error.code in REROUTE_CODES or error.code == "READONLY"):
            return Verdict.RECHECK
        if TOO_SMALL in error.message:
            if self._ever_unknown and not self._refused_as_old:
                self._refused_as_old = True  # an earlier sending may have arrived meanwhile: read back (SR-9)
                self._phase = FlushPhase.UNKNOWN
                return Verdict.RECHECK
            return self._lose(ShardLostError(f"{self._where}: another owner has claimed it: {error}"))
        if self._phase is FlushPhase.NOOP:
            return (
                Verdict.LATER
            )  # refused for a while (OOM, NOREPLICAS…): the flush itself is in the log, so the no-op must follow
        return self._lose(ShardLostError(f"{self._where}: the append was answered {error}, which no owner expects"))

    def _lose(self, error: ShardLostError) -> Verdict:
        self._held.lose(error)
        return Verdict.DONE

    # -- read back (SR-9) ---------------------------------------------------------------------------------------------

    def read_back(self) -> Sequence[Command]:
        """Ranges that show whether the flush, and the no-ops sent after it, are in the log."""
        asked: list[Command] = [
            ("XRANGE", append.stream, str(append.entries[0].id), str(append.entries[-1].id)) for append in self._appends
        ]
        if self._noops:
            stream = self._held.streams[-1]
            asked.append(("XRANGE", stream, str(self._noops[0].id), str(self._noops[-1].id)))
        return asked

    def resolve(self, replies: Sequence[Reply]) -> ShardLostError | None:
        """Decide from the ranges what to send next. Returns an error when the ids carry other bytes or can no longer be
        written."""
        streams = [append.stream for append in self._appends]
        streams += [self._held.streams[-1]] if self._noops else []
        found = [entries(stream, reply) for stream, reply in zip(streams, replies, strict=True)]
        wanted = [list(append.entries) for append in self._appends]
        noops = found.pop() if self._noops else []
        if found == wanted and noops == self._noops[: len(noops)]:
            if len(noops) == len(self._noops):
                self._noops.append(self._next_noop())
            elif self._refused_as_old:
                return ShardLostError(f"{self._where}: another owner has claimed it")
            self._phase, self._refused_as_old = FlushPhase.NOOP, False
            return None
        if any(found) or noops:
            return ShardLostError(f"{self._where}: other bytes are stored under ids of this owner's flush")
        if self._refused_as_old:
            return ShardLostError(f"{self._where}: another owner has claimed it, and the flush had not landed")
        self._phase = FlushPhase.NEW
        return None

    def _next_noop(self) -> Entry:
        """The next no-op. Its id follows the last no-op's, else this flush's last, else the stream's last confirmed."""
        stream = self._held.streams[-1]
        last = self._held.last[stream].id
        for append in self._appends:
            if append.stream == stream:
                last = append.entries[-1].id
        if self._noops:
            last = self._noops[-1].id
        return Entry(StreamId(last.epoch, last.seq + 1), NOOP_TYPE, noop_record(self._wall_ms()))


def _cause(replies: Sequence[Reply]) -> ErrorReply:
    """The cause of a refused MULTI: the first error while its commands were queued, else the error of EXEC itself."""
    for reply in replies:
        if isinstance(reply, ErrorReply):
            return reply
    raise AssertionError("a refused MULTI has an error among its replies")
