"""A share-state log is replayed as if its entries were read one by one, however it was written, paged or damaged."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kip932.entry_checksum import damage
from kip932.failures import merge_failures
from kip932.ids import SharePartitionKey
from kip932.state_batches import CAUSE_ACK, NO_STATS, StateBatch, WriteStats, combine
from shard_runtime.record_log.protocol import CLAIM_TYPE, NOOP_TYPE, Entry, ShardId, ShardKind, StreamId
from shard_runtime.record_log.redis.codec import entries
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareTombstone, ShareUpdate
from share_coordinator.core.shard import ShareStateShard
from share_coordinator.core.share_state import ShareState, after_snapshot, after_update
from tests.properties.test_failures import FAILURES, model, ranges
from tests.support.damaged_logs import Raw, StoredLog, flipped
from tests.support.share_state import COLD_MS, TOPIC, Metadata

KEYS = [SharePartitionKey("g" * size, TOPIC, number) for size in (1, 130) for number in (0, 300)]
SHARD = ShardId(ShardKind.SHARE_STATE, "3")
_EPOCH = st.integers(0, 3)


@st.composite
def _batch(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 30))
    return StateBatch(first, first + draw(st.integers(0, 8)), draw(st.sampled_from([0, 2, 3, 4])), draw(_EPOCH))


_BATCHES = st.lists(_batch(), max_size=4).map(tuple)
_COUNT = st.one_of(st.none(), st.integers(0, 3))
_STATS = st.one_of(
    st.just(NO_STATS),
    st.tuples(_COUNT, _COUNT).map(lambda counts: WriteStats(CAUSE_ACK, n_limit=counts[0], n_reject=counts[1])),
)
_UPDATE = st.builds(
    ShareUpdate,
    st.sampled_from(KEYS), _EPOCH, st.integers(-1, 3), _EPOCH, st.integers(-1, 30), st.integers(-1, 9), _BATCHES,
    _STATS, FAILURES.map(tuple),
)  # fmt: skip
_SNAPSHOT = st.builds(
    ShareSnapshot,
    st.sampled_from(KEYS), _EPOCH, _EPOCH, _EPOCH, _EPOCH, st.integers(-1, 30), st.integers(-1, 9), _EPOCH, _EPOCH,
    _BATCHES.map(lambda batches: tuple(combine((), batches))), _EPOCH, _EPOCH, _EPOCH, _STATS, _EPOCH, _EPOCH,
    FAILURES.map(lambda failures: merge_failures((), failures)),
)  # fmt: skip
_RECORDS = st.lists(
    st.one_of(_UPDATE, _UPDATE, _SNAPSHOT, st.builds(ShareTombstone, st.sampled_from(KEYS))), max_size=20
)


def plainly(state: ShareState | None, record: ShareUpdate) -> ShareState:
    """Apply SC-56, SC-41, SC-42 and SC-117 literally."""
    pair = record.leader_epoch, record.generation
    limit, reject = record.stats.n_limit or 0, record.stats.n_reject or 0
    if state is None:
        batches = tuple(combine((), record.batches, record.start_offset))
        return ShareState(
            record.snapshot_epoch, 0, *pair, record.start_offset, record.delivery_complete_count, batches, 0, 0, pair,
            -1, 1, limit, reject, tuple(ranges(model(record.failures, record.start_offset))),
        )  # fmt: skip
    start, count = state.start_offset, state.delivery_complete_count
    if record.start_offset == start:
        count = max(count, record.delivery_complete_count)
    elif record.start_offset > start:
        start, count = record.start_offset, record.delivery_complete_count
    leader = (state.leader_epoch, state.generation) if record.leader_epoch == -1 else pair
    return state._replace(
        leader_epoch=leader[0],
        generation=leader[1],
        start_offset=start,
        delivery_complete_count=count,
        batches=tuple(combine(state.batches, record.batches, start)),
        fence=max(state.fence, pair),
        updates=state.updates + 1,
        archived_by_limit=state.archived_by_limit + limit,
        archived_by_reject=state.archived_by_reject + reject,
        failures=tuple(ranges(model([*state.failures, *record.failures], start))),
    )


@pytest.mark.rule("SC-41", "SC-42", "SC-56", "SC-117")
@given(st.one_of(st.none(), _SNAPSHOT), st.lists(_UPDATE, min_size=1, max_size=8))
def test_updates_change_a_state_as_the_rules_say(snapshot: ShareSnapshot | None, updates: list[ShareUpdate]) -> None:
    state = None if snapshot is None else after_snapshot(snapshot)
    expected = state
    for update in updates:
        state, expected = after_update(state, update), plainly(expected, update)
        assert state == expected
        assert type(state) is ShareState


@given(_RECORDS)
def test_every_record_is_decoded_as_it_was_written(records: list[ShareRecord]) -> None:
    codec = ShareStateCodec()
    for record in records:
        found = codec.decode(*codec.encode(record, 1))
        assert found == record
        assert type(found) is type(record)
        if not isinstance(found, ShareTombstone) and found is not None:
            assert all(type(batch) is StateBatch for batch in found.batches)


def _log(records: list[ShareRecord], claims: set[int]) -> StoredLog:
    log = StoredLog(SHARD, ShareStateCodec())
    log.claim()
    for number, record in enumerate(records):
        if number in claims:
            log.claim()
        log.append([record])
    return log


@st.composite
def _logs(draw: st.DrawFn) -> tuple[StoredLog, list[Raw]]:
    """Draw a log of several owners, as written and as it might be found: with changed bytes and missing entries."""
    log = _log(draw(_RECORDS), draw(st.sets(st.integers(0, 19))))
    raw = [(raw_id, list(fields)) for raw_id, fields in log.raw]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(raw) - 1))
        if draw(st.booleans()) and len(raw) > 1:
            del raw[at]
        else:
            field = draw(st.sampled_from([1, 3, 5]))
            place = draw(st.integers(0, len(raw[at][1][field]) - 1))
            raw[at][1][field] = flipped(raw[at][1][field], place, draw(st.integers(1, 255)))
    return log, raw


@pytest.mark.rule("CM-107", "SC-79", "SC-113")
@given(_logs(), st.integers(1, 7))
def test_a_log_is_replayed_entry_by_entry_whatever_its_pages_and_damage(
    case: tuple[StoredLog, list[Raw]], page: int
) -> None:
    log, raw = case
    shard, whole, plain = (ShareStateShard(Metadata(), 3, COLD_MS) for _ in range(3))
    with capture_logs():
        result, tenure = log.replay(shard, raw, page_entries=page)
        assert log.replay(whole, raw)[0] == result
    assert shard.quarantined() == whole.quarantined()
    codec, unknown = ShareStateCodec(), 0
    found = entries(log.stream, raw)
    for entry in found:
        if not entry.damage and entry.kind not in {CLAIM_TYPE, NOOP_TYPE}:
            record = codec.decode(entry.kind, entry.record)
            unknown += record is None
            if record is not None:
                plain.replay(record)
    assert [shard.state(key) for key in KEYS] == [plain.state(key) for key in KEYS]
    assert shard.counts == plain.counts
    assert (result.entries, result.unknown, tenure.positions.entries) == (len(found), unknown, len(found))
    damaged = [str(entry.id) for entry in found if entry.damage and entry.kind not in {CLAIM_TYPE, NOOP_TYPE}]
    assert result.quarantined >= len(damaged) - sum(1 for at in damaged if at.endswith("-0"))


@pytest.mark.rule("CM-100", "CM-101")
@pytest.mark.parametrize("order", [*permutations(range(4))])
@pytest.mark.parametrize("kept", [2, 3, 4])
def test_the_fields_of_an_entry_are_read_in_any_order_and_number(order: tuple[int, ...], kept: int) -> None:
    log = _log([ShareTombstone(KEYS[0])], set())
    raw_id, stored = log.raw[1]
    pairs: list[Any] = [(stored[2 * at], stored[2 * at + 1]) for at in order][:kept]
    named = dict(pairs)
    kind, record = (named.get(name, b"") for name in (b"t", b"r"))
    at = StreamId(*map(int, raw_id.split(b"-")))
    # Without a checksum, only the fields that older entries had are trusted (CM-100).
    found = None if named.keys() == {b"t", b"r"} else named.get(b"c", b"")
    wrong = damage(log.stream, at, kind.decode(), record, batch=b"", found=found)
    whose = named.get(b"k", b"") if wrong else b""
    assert entries(log.stream, [(raw_id, [part for pair in pairs for part in pair])]) == [
        Entry(at, kind.decode(), record, b"", wrong, whose)
    ]
