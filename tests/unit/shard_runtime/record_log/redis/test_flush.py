"""The outcome of a flush for each reply of the store, and what the flush sends next (CM-13, CM-19, SR-9). No store: the
tests write the replies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

import pytest

from shard_runtime.record_log.protocol import (
    NOOP_TYPE,
    Appended,
    AppendRefusedError,
    Entry,
    ShardId,
    ShardKind,
    ShardLostError,
    StreamAppend,
    StreamDeletedError,
    StreamId,
)
from shard_runtime.record_log.redis.claimed_shard import ClaimedShard
from shard_runtime.record_log.redis.codec import noop_record, xadd
from shard_runtime.record_log.redis.connection import TOO_SMALL, ErrorReply, Reply, StoreConnection
from shard_runtime.record_log.redis.flush import FlushCall
from shard_runtime.record_log.redis.store_calls import PipelineResult, Verdict
from tests.support.virtual_time import virtual

EPOCH: Final = 4
GROUP: Final = ShardId(ShardKind.GROUP, "3")
LOG: Final = GROUP.streams[0]
CLAIM: Final = Entry(StreamId(EPOCH, 0), "O", b"claim")
HISTORY: Final = "history-1"
CONNECTION: Final = cast("StoreConnection", object())
FENCED: Final = ErrorReply("ERR", f"The ID specified in XADD is {TOO_SMALL} than the target stream top item")
FULL: Final = ErrorReply("OOM", "command not allowed when used memory > 'maxmemory'.")
ABORTED: Final = ErrorReply("EXECABORT", "Transaction discarded because of previous errors.")


def entry(seq: int) -> Entry:
    return Entry(StreamId(EPOCH, seq), "R", b"record %d" % seq)


def noop(seq: int) -> Entry:
    return Entry(StreamId(EPOCH, seq), NOOP_TYPE, noop_record(7))


def stored(*found: Entry) -> list[Reply]:
    """The reply of XRANGE if it has these entries, as the flush wrote them."""
    result: list[Reply] = []
    for each in found:
        words: Sequence[Any] = xadd(LOG, each)[4:]
        result.append([str(each.id).encode(), [word.encode() if isinstance(word, str) else word for word in words]])
    return result


class World:
    """A shard with one flush, and the outcome for its caller."""

    def __init__(self, *entries: Entry, replicas: int = 0) -> None:
        self.held = ClaimedShard(GROUP, 77, EPOCH, {LOG: CLAIM}, lossy=False, whole_under="", checked_on=CONNECTION)
        appends = [StreamAppend(LOG, list(entries or (entry(1), entry(2))))]
        self.flush = FlushCall(self.held, appends, replicas, lambda: 7)
        self.held.flush = self.flush

    def settle(self, *replies: Reply, acked: int = 0, intact: bool = True) -> Verdict:
        return self.flush.settle(list(replies), [], PipelineResult(CONNECTION, acked, HISTORY, intact))

    def executed(self, acked: int = 0, intact: bool = True) -> Verdict:
        """Settle the flush as if everything had been added."""
        added = [b"QUEUED"] * (len(self.flush.commands()) - 2)
        return self.settle(b"OK", *added, [b"4-1"] * len(added), acked=acked, intact=intact)

    def found(self, entries: Sequence[Entry], *noops: Entry) -> ShardLostError | None:
        """Resolve the flush with the result of a read-back."""
        ranges = [stored(*entries)]
        return self.flush.resolve(ranges + ([stored(*noops)] if len(self.flush.read_back()) > 1 else []))

    @property
    def error(self) -> BaseException | None:
        return self.flush.answer.exception() if self.flush.done else None


@pytest.mark.rule("CM-13")
@virtual
async def test_a_flush_is_one_transaction_and_its_answer_frees_the_shards_place() -> None:
    world = World()
    assert world.flush.commands() == [("MULTI",), xadd(LOG, entry(1)), xadd(LOG, entry(2)), ("EXEC",)]
    assert (world.flush.wait, world.flush.unresolved, world.flush.needs_read_back) == (0, False, False)
    assert world.executed() is Verdict.DONE
    assert await world.flush.answer == Appended(StreamId(EPOCH, 2), 0)
    assert (world.held.flush, world.held.last[LOG], world.held.whole_under) == (None, entry(2), HISTORY)
    assert world.settle(FENCED) is Verdict.DONE, "a flush with an outcome must not change it"


@virtual
async def test_an_append_of_nothing_sends_nothing_for_its_stream() -> None:
    held = ClaimedShard(GROUP, 77, EPOCH, {LOG: CLAIM}, lossy=False, whole_under="", checked_on=None)
    call = FlushCall(held, [StreamAppend(LOG, [])], 0, lambda: 7)
    assert call.commands() == [("MULTI",), ("EXEC",)]
    assert call.size == 0


@virtual
async def test_the_size_of_a_flush_is_that_of_its_entries_with_a_little_for_each() -> None:
    one, two = World(Entry(StreamId(EPOCH, 1), "R", b"x" * 100, b"y" * 1_000)), World()
    assert 1_100 < one.flush.size < 1_300
    assert two.flush.size == sum(World(entry(seq)).flush.size for seq in (1, 2))


@pytest.mark.rule("SR-21", "CM-15")
@virtual
async def test_a_flush_on_too_few_replicas_waits_for_them_and_sends_no_entry_again() -> None:
    world = World(replicas=2)
    assert world.executed(acked=1) is Verdict.AGAIN
    assert (world.flush.done, world.flush.unresolved, world.held.tail_checked()) == (False, True, "")
    assert world.flush.commands() == ()
    assert world.settle(acked=1) is Verdict.AGAIN
    assert world.settle(acked=2) is Verdict.DONE
    assert await world.flush.answer == Appended(StreamId(EPOCH, 2), 0)
    assert world.held.tail_checked() == HISTORY


@pytest.mark.rule("CM-19")
@pytest.mark.parametrize("later", [False, True])
@virtual
async def test_what_was_executed_under_another_history_is_read_back(later: bool) -> None:
    world = World(replicas=1)
    if later:
        assert world.executed() is Verdict.AGAIN
        assert world.settle(acked=1, intact=False) is Verdict.RECHECK
    else:
        assert world.executed(acked=1, intact=False) is Verdict.RECHECK
    assert (world.flush.done, world.flush.needs_read_back, world.held.checked_on) == (False, True, None)


@pytest.mark.rule("CM-13")
@virtual
async def test_an_id_that_is_not_above_the_last_one_shows_another_owner() -> None:
    world = World()
    assert world.settle(b"OK", b"QUEUED", b"QUEUED", [FENCED, FENCED]) is Verdict.DONE
    assert isinstance(world.error, ShardLostError)
    assert "another owner has claimed it" in str(world.error)
    assert world.held.lost is world.error
    assert world.held.flush is None


@virtual
async def test_a_stream_that_is_gone_and_an_answer_that_no_owner_expects_lose_the_shard() -> None:
    gone = World()
    assert gone.settle(b"OK", b"QUEUED", b"QUEUED", [b"4-1", None]) is Verdict.DONE
    assert isinstance(gone.error, StreamDeletedError)
    odd = World()
    assert odd.settle(b"OK", b"QUEUED", b"QUEUED", [b"4-1", ErrorReply("WRONGTYPE", "no stream")]) is Verdict.DONE
    assert isinstance(odd.error, ShardLostError)
    assert "which no owner expects" in str(odd.error)


@pytest.mark.parametrize(
    ("cause", "outcome", "verdict", "refused"),
    [
        (FULL, ABORTED, Verdict.DONE, True),
        (FULL, FULL, Verdict.RECHECK, True),
        (ErrorReply("READONLY", "a replica"), ABORTED, Verdict.RECHECK, True),
        (ErrorReply("MOVED", "1 h:1"), ABORTED, Verdict.RECHECK, False),
        (ErrorReply("LOADING", "the data"), ABORTED, Verdict.RECHECK, False),
    ],
)
@virtual
async def test_a_refused_transaction_is_answered_or_sent_elsewhere(
    cause: ErrorReply, outcome: ErrorReply, verdict: Verdict, refused: bool
) -> None:
    world = World()
    assert world.settle(b"OK", cause, b"QUEUED", outcome) is verdict
    assert isinstance(world.error, AppendRefusedError) is refused
    assert (world.held.flush is None, world.held.lost) == (refused, None)
    if refused:
        assert str(cause) in str(world.error), "the first error is the cause"


@pytest.mark.parametrize(
    ("cause", "verdict"), [(FULL, Verdict.LATER), (ErrorReply("READONLY", "a replica"), Verdict.RECHECK)]
)
@virtual
async def test_once_its_outcome_was_unknown_a_refusal_answers_no_caller(cause: ErrorReply, verdict: Verdict) -> None:
    world = World()
    world.flush.lost()
    assert world.found([]) is None
    assert world.settle(b"OK", cause, b"QUEUED", ABORTED) is verdict
    assert (world.flush.done, world.flush.unresolved) == (False, True)


@pytest.mark.rule("SR-9", "CM-13")
@virtual
async def test_a_flush_that_had_not_landed_is_sent_again_with_the_same_ids_and_bytes() -> None:
    world = World()
    before = world.flush.commands()
    world.flush.lost()
    assert (world.flush.needs_read_back, world.held.checked_on) == (True, None)
    assert world.flush.read_back() == [("XRANGE", LOG, "4-1", "4-2")]
    assert world.found([]) is None
    assert (world.flush.needs_read_back, world.flush.commands()) == (False, before)
    assert world.executed() is Verdict.DONE
    assert await world.flush.answer == Appended(StreamId(EPOCH, 2), 0)


@pytest.mark.rule("SR-9", "CM-13")
@virtual
async def test_a_flush_that_had_landed_is_proved_by_a_no_op_behind_it() -> None:
    world = World()
    world.flush.lost()
    assert world.found([entry(1), entry(2)]) is None
    assert world.flush.commands() == (xadd(LOG, noop(3)),)
    assert world.settle(b"4-3") is Verdict.DONE
    assert await world.flush.answer == Appended(StreamId(EPOCH, 3), 1)
    assert world.held.last[LOG] == noop(3)


@pytest.mark.rule("SR-9")
@virtual
async def test_a_no_op_that_was_lost_is_sent_again_or_followed_by_another() -> None:
    world = World()
    world.flush.lost()
    assert world.found([entry(1), entry(2)]) is None
    world.flush.lost()
    assert world.flush.read_back() == [("XRANGE", LOG, "4-1", "4-2"), ("XRANGE", LOG, "4-3", "4-3")]
    assert world.found([entry(1), entry(2)]) is None, "the no-op is not there"
    assert world.flush.commands() == (xadd(LOG, noop(3)),)
    world.flush.lost()
    assert world.found([entry(1), entry(2)], noop(3)) is None, "it is there: only a new one proves the present"
    assert world.flush.commands() == (xadd(LOG, noop(4)),)
    assert world.flush.read_back()[1] == ("XRANGE", LOG, "4-3", "4-4")
    assert world.settle(b"4-4") is Verdict.DONE
    assert await world.flush.answer == Appended(StreamId(EPOCH, 4), 2)


@pytest.mark.rule("SR-9", "CM-19")
@virtual
async def test_a_flush_and_its_no_op_that_a_store_has_lost_are_both_sent_again() -> None:
    world = World()
    world.flush.lost()
    assert world.found([entry(1), entry(2)]) is None
    world.flush.lost()
    assert world.found([]) is None
    assert world.flush.commands() == [
        ("MULTI",), xadd(LOG, entry(1)), xadd(LOG, entry(2)), xadd(LOG, noop(3)), ("EXEC",),
    ]  # fmt: skip
    assert world.executed() is Verdict.DONE
    assert await world.flush.answer == Appended(StreamId(EPOCH, 3), 1)


@pytest.mark.rule("CM-12")
@virtual
async def test_a_tail_counts_as_checked_only_while_nothing_about_it_is_open() -> None:
    world = World()
    world.held.flush = None
    world.held.whole_under = HISTORY
    assert world.held.tail_checked() == HISTORY
    world.held.flush = world.flush
    assert world.held.tail_checked() == HISTORY, "a flush in flight leaves the tail certain"
    world.flush.lost()
    assert world.held.tail_checked() == ""
    world.held.flush, world.held.lossy = None, True
    assert world.held.tail_checked() == ""
    world.held.lossy = False
    first = ShardLostError("first")
    world.held.lose(first)
    world.held.lose(ShardLostError("second"))
    assert (world.held.tail_checked(), world.held.lost) == ("", first)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (FULL, Verdict.LATER),
        (ErrorReply("NOREPLICAS", "too few"), Verdict.LATER),
        (ErrorReply("READONLY", "a replica"), Verdict.RECHECK),
        (ErrorReply("MOVED", "1 h:1"), Verdict.RECHECK),
    ],
)
@virtual
async def test_a_refused_no_op_must_still_follow(error: ErrorReply, verdict: Verdict) -> None:
    world = World()
    world.flush.lost()
    assert world.found([entry(1), entry(2)]) is None
    assert world.settle(error) is verdict
    assert (world.flush.done, world.held.lost) == (False, None)
    assert world.flush.commands() == (xadd(LOG, noop(3)),)


@pytest.mark.rule("SR-9", "CM-13")
@virtual
async def test_an_id_refused_as_old_after_an_unknown_outcome_is_read_back_once_and_not_for_ever() -> None:
    """The first send may take effect while the second is in flight; if it does not, another owner has claimed the
    shard."""
    landed = World()
    landed.flush.lost()
    assert landed.found([]) is None
    assert landed.settle(b"OK", b"QUEUED", b"QUEUED", [FENCED, FENCED]) is Verdict.RECHECK
    assert landed.flush.needs_read_back
    assert landed.found([entry(1), entry(2)]) is None
    assert landed.flush.commands() == (xadd(LOG, noop(3)),)
    assert landed.settle(FENCED) is Verdict.RECHECK, "the no-op may have arrived as well"
    lost = landed.found([entry(1), entry(2)])
    assert lost is not None
    assert "another owner has claimed it" in str(lost)
    claimed = World()
    claimed.flush.lost()
    assert claimed.found([]) is None
    assert claimed.settle(b"OK", b"QUEUED", b"QUEUED", [FENCED, FENCED]) is Verdict.RECHECK
    gone = claimed.found([])
    assert gone is not None
    assert "the flush had not landed" in str(gone)


@virtual
async def test_an_id_refused_as_old_twice_without_a_read_back_between_loses_the_shard() -> None:
    world = World()
    world.flush.lost()
    assert world.found([]) is None
    refused = (b"OK", b"QUEUED", b"QUEUED", [FENCED, FENCED])
    assert world.settle(*refused) is Verdict.RECHECK
    assert world.settle(*refused) is Verdict.DONE
    assert isinstance(world.error, ShardLostError)


@pytest.mark.rule("CM-13")
@pytest.mark.parametrize("there", [[entry(1)], [entry(1), Entry(StreamId(EPOCH, 2), "R", b"other")]])
@virtual
async def test_other_bytes_under_its_ids_lose_the_shard(there: list[Entry]) -> None:
    world = World()
    world.flush.lost()
    error = world.found(there)
    assert error is not None
    assert "other bytes are stored" in str(error)


@virtual
async def test_a_failure_that_comes_after_the_answer_changes_nothing() -> None:
    world = World()
    assert world.executed() is Verdict.DONE
    world.held.flush = later = World().flush
    world.flush.fail(ShardLostError("late"))
    assert world.held.flush is later
    assert world.error is None
    await asyncio.sleep(0)


@pytest.mark.rule("CM-40", "SR-19")
@virtual
async def test_the_no_op_of_a_flush_of_two_streams_goes_behind_what_the_last_of_them_holds() -> None:
    topic = ShardId(ShardKind.TOPIC, "t:0")
    log, ctl = topic.streams
    last = {log: Entry(StreamId(EPOCH, 90), "B", b""), ctl: Entry(StreamId(EPOCH, 8), "P", b"")}
    for appended, expected in (({log: 91}, 9), ({log: 91, ctl: 9}, 10)):
        held = ClaimedShard(topic, 77, EPOCH, dict(last), lossy=False, whole_under="", checked_on=None)
        appends = [StreamAppend(stream, [Entry(StreamId(EPOCH, seq), "B", b"r")]) for stream, seq in appended.items()]
        call = FlushCall(held, appends, 0, lambda: 7)
        call.lost()
        ranges = []
        for append in appends:
            words: Sequence[Any] = xadd(append.stream, append.entries[0])[4:]
            fields = [word.encode() if isinstance(word, str) else word for word in words]
            ranges.append([[str(append.entries[0].id).encode(), fields]])
        assert call.resolve(ranges) is None
        assert call.commands() == (xadd(ctl, noop(expected)),)
