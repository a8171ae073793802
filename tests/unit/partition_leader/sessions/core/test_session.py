"""Share sessions: epochs, partitions, and the partitions that responses include or leave out (§5)."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.ids import TopicIdPartition
from partition_leader.sessions.core import session
from partition_leader.sessions.core.session import Outcome, SessionCache, SessionKey, SessionRequest, next_epoch

P0, P1, P2 = (TopicIdPartition(bytes(16), partition) for partition in range(3))
KEY = SessionKey("G", "M")
IDLE, RECORDS, ERROR, ACKED = Outcome(), Outcome(has_records=True), Outcome(has_error=True), Outcome(False, False, True)


def request(epoch: int, *topics: TopicIdPartition, key: SessionKey = KEY, **changes: Any) -> SessionRequest:
    return SessionRequest(key, epoch, 11, 1, topics)._replace(**changes)


def opened(*topics: TopicIdPartition) -> SessionCache:
    cache = SessionCache(10)
    cache.fetch(request(0, *topics), 11, 0)
    return cache


@pytest.mark.rule("PL-502", "PL-503", "PL-504", "PL-507", "PL-508")
def test_epochs_count_up_and_every_partition_of_the_session_is_fetched() -> None:
    cache = opened(P0, P1)
    assert set(cache.fetch(request(1), 0, 0).fetch) == {P0, P1}
    assert set(cache.fetch(request(2, P2, forgotten=(P0,)), 0, 0).fetch) == {P1, P2}
    assert cache.acknowledge(request(3), 0).fetch == ()
    for wrong in (3, 5, 0x7FFFFFFF, -2):
        with pytest.raises(errors.InvalidShareSessionEpochError):
            cache.fetch(request(wrong), 0, 0)
    assert cache.fetch(request(4), 0, 0).epoch == 4
    assert set(cache.fetch(request(5, P1, forgotten=(P1, P0)), 0, 0).fetch) == {P2}, "in both lists; P0 is not known"


@pytest.mark.rule("V19", "PL-503")
def test_the_epoch_after_the_largest_is_one() -> None:
    assert [next_epoch(e) for e in (0, 1, 2147483647, -1)] == [1, 2, 1, -1]


@pytest.mark.rule("PL-502")
def test_what_needs_a_session_is_refused_without_one() -> None:
    cache = SessionCache(10)
    for epoch in (1, -1):
        with pytest.raises(errors.ShareSessionNotFoundError):
            cache.fetch(request(epoch), 0, 0)
    with pytest.raises(errors.InvalidShareSessionEpochError):
        cache.acknowledge(request(0), 0)
    with pytest.raises(errors.InvalidRequestError):
        cache.fetch(request(0, P0, has_acknowledgements=True), 11, 0)
    assert len(cache) == 0


@pytest.mark.rule("PL-502a")
def test_a_request_of_an_earlier_session_is_not_applied() -> None:
    cache = opened(P0)
    for foreign in (
        request(1, session_id=10),
        request(-1, session_id=10),
        request(1, session_id=None, connection_id=2),
    ):
        with pytest.raises(errors.InvalidShareSessionEpochError):
            cache.fetch(foreign, 0, 0)
    assert cache.fetch(request(1, session_id=None), 0, 0).session_id == 11
    assert cache.fetch(request(2, connection_id=9), 0, 0).session_id == 11, "the id is what counts"


@pytest.mark.rule("PL-502", "12.6", "PL-505", "PL-522")
def test_reopening_releases_what_the_old_session_held() -> None:
    cache = opened(P0, P1)
    old = cache.fetch(request(1), 0, 0)
    step = cache.fetch(request(0, P1, connection_id=2), 12, 0)
    assert step.closed is not None
    assert (step.closed.partitions, step.closed.group_is_empty) == ((P0, P1), False)
    with pytest.raises(errors.InvalidShareSessionEpochError):
        cache.check_current(old)
    cache.check_current(step)
    assert cache.connection_lost(1) == ()
    (lost,) = cache.connection_lost(2)
    assert (lost.partitions, lost.group_is_empty, cache.evictions) == ((P1,), True, 1)


@pytest.mark.rule("PL-522")
def test_the_end_of_a_connection_ends_no_session_that_was_closed_before() -> None:
    cache = SessionCache(10)
    for member in ("M", "N"):
        cache.fetch(request(0, P0, key=SessionKey("G", member)), 11, 0)
    cache.fetch(request(-1), 0, 0)
    (lost,) = cache.connection_lost(1)
    assert (lost.key.member_id, cache.evictions, len(cache)) == ("N", 1, 0)
    assert cache.connection_lost(1) == ()


@pytest.mark.rule("PL-533", "PL-522")
def test_a_session_is_bound_to_the_stream_of_its_newest_request() -> None:
    cache = opened(P0)
    assert cache.acknowledge(request(1, connection_id=2), 0).epoch == 1
    assert cache.connection_lost(1) == ()
    assert cache.fetch(request(2, connection_id=2), 0, 0).fetch == (P0,)
    assert cache.evictions == 0
    (closed,) = cache.connection_lost(2)
    assert (closed.key, closed.partitions, closed.group_is_empty) == (KEY, (P0,), True)


@pytest.mark.rule("PL-533")
def test_a_late_or_refused_request_moves_no_session() -> None:
    cache = opened(P0)
    cache.acknowledge(request(1, connection_id=2), 0)
    for late in (request(1), request(2, session_id=12), request(2, principal="User:other"), request(7)):
        with pytest.raises(errors.KafkaError):
            cache.fetch(late, 0, 0)
    cache.fetch(request(2, connection_id=None), 0, 0)
    assert cache.connection_lost(1) == ()
    assert len(cache.connection_lost(2)) == 1


@pytest.mark.rule("PL-533")
def test_a_request_that_overtakes_another_over_a_new_stream_is_refused_and_moves_nothing() -> None:
    cache = opened(P0)
    with pytest.raises(errors.InvalidShareSessionEpochError):
        cache.acknowledge(request(2, connection_id=2), 0)
    assert cache.fetch(request(1), 0, 0).epoch == 1
    assert cache.connection_lost(2) == ()
    assert len(cache.connection_lost(1)) == 1


@pytest.mark.rule("PL-533", "PL-522")
def test_a_session_whose_stream_ends_before_the_move_arrives_has_ended() -> None:
    cache = opened(P0)
    assert len(cache.connection_lost(1)) == 1
    with pytest.raises(errors.ShareSessionNotFoundError):
        cache.acknowledge(request(1, connection_id=2), 0)


@pytest.mark.rule("PL-505", "CL-30")
def test_an_acknowledgement_may_overtake_a_parked_fetch() -> None:
    cache = opened(P0)
    parked = cache.fetch(request(1), 0, 0)
    cache.acknowledge(request(2), 0)
    cache.check_current(parked)


@pytest.mark.rule("V20", "PL-506", "CM-62")
def test_the_limit_refuses_new_members_and_evicts_no_member() -> None:
    cache = SessionCache(1)
    cache.fetch(request(0, P0), 11, 0)
    with pytest.raises(errors.ShareSessionLimitReachedError):
        cache.fetch(request(0, P0, key=SessionKey("G", "N")), 12, 0)
    assert cache.fetch(request(0, P0), 13, 0).session_id == 13
    assert (len(cache), cache.partition_count) == (1, 1)


@pytest.mark.rule("PL-502", "PL-520", "PL-523")
def test_closing_releases_and_reports_when_the_group_is_gone() -> None:
    cache = opened(P0, P1)
    other = SessionKey("G", "N")
    cache.fetch(request(0, P0, key=other), 20, 0)
    step = cache.fetch(request(-1, P2), 0, 0)
    assert step.is_final
    assert step.fetch == ()
    assert step.closed is not None
    assert (step.closed.partitions, step.closed.group_is_empty) == ((P0, P1), False)
    closed = cache.acknowledge(request(-1, key=other, session_id=20), 0).closed
    assert closed is not None
    assert closed.group_is_empty


@pytest.mark.rule("PL-204", "PL-512")
def test_served_partitions_go_last_and_after_fetches_without_records_the_order_turns() -> None:
    cache = opened(P0, P1, P2)
    first = cache.fetch(request(1), 0, 0)
    assert first.fetch == (P1, P2, P0), "the opening fetch brought nothing"
    cache.report(first, {P1: RECORDS, P2: IDLE, P0: IDLE})
    second = cache.fetch(request(2), 0, 0)
    assert second.fetch == (P0, P2, P1)
    cache.report(second, {P0: ERROR})
    third = cache.fetch(request(3), 0, 0)
    assert third.fetch == (P2, P1, P0), "a partition with an error must not hold up others"
    assert cache.fetch(request(4), 0, 0).fetch == (P1, P0, P2), "the third has no answer yet, and counts"
    cache.report(third, {P2: RECORDS})
    assert cache.fetch(request(5), 0, 0).fetch == (P0, P1, P2)


@pytest.mark.rule("PL-204", "PL-512")
@pytest.mark.parametrize("partitions", [2, 3, 4])
@pytest.mark.parametrize("acknowledgements", [0, 1, 2, 3], ids="{} between two fetches".format)
@pytest.mark.parametrize("served", [1, 2])
def test_no_partition_with_records_waits_for_more_fetches_than_there_are_partitions(
    partitions: int, acknowledgements: int, served: int
) -> None:
    """An acknowledgement also consumes an epoch. An extra one at some point shifts the epochs of all later fetches."""
    topics = [TopicIdPartition(bytes(16), partition) for partition in range(partitions)]
    cache = opened(*topics)
    epoch, waited = 1, dict.fromkeys(topics, 0)
    for number in range(60):
        step = cache.fetch(request(epoch), 0, 0)
        epoch += 1
        cache.report(step, dict.fromkeys(step.fetch[:served], RECORDS))
        waited = {each: 0 if each in step.fetch[:served] else times + 1 for each, times in waited.items()}
        assert max(waited.values()) < partitions
        for _ in range(acknowledgements + (number == 9)):
            cache.acknowledge(request(epoch), 0)
            epoch += 1


@pytest.mark.rule("PL-511", "PL-420", "PL-508")
def test_quiet_partitions_are_left_out_of_later_answers() -> None:
    cache = SessionCache(10)
    step = cache.fetch(request(0, P0, P1), 11, 0)
    assert cache.report(step, {P0: IDLE, P1: ERROR}) == (P0, P1)
    step = cache.fetch(request(1, P2, P0), 0, 0)
    assert set(cache.report(step, {P0: IDLE, P1: IDLE, P2: IDLE})) == {P1, P2}, "healed, and new"
    step = cache.fetch(request(2), 0, 0)
    assert cache.report(step, {P0: IDLE, P1: IDLE, P2: IDLE}) == ()
    step = cache.fetch(request(3, forgotten=(P0,)), 0, 0)
    assert cache.report(step, {P0: ACKED, P1: IDLE}) == (P0,)


@pytest.mark.rule("PL-511")
def test_a_new_partition_that_could_not_be_locked_is_reported_later() -> None:
    cache = opened()
    cache.report(cache.fetch(request(1, P0), 0, 0), {})
    assert cache.report(cache.fetch(request(2), 0, 0), {P0: IDLE}) == (P0,)


@pytest.mark.rule("PL-524")
def test_sessions_without_a_stream_end_when_idle_and_nothing_runs() -> None:
    cache = SessionCache(10)
    step = cache.fetch(request(0, P0, connection_id=None), 11, 0)
    assert cache.expire_idle(90_000, {}, 45_000) == ()
    cache.finished(step, 90_000)
    assert cache.expire_idle(134_999, {}, 45_000) == ()
    assert cache.expire_idle(135_000, {"G": 60_000}, 45_000) == ()
    assert [closed.key for closed in cache.expire_idle(135_000, {}, 45_000)] == [KEY]
    streamed = opened(P0)
    assert streamed.expire_idle(10**9, {}, 45_000) == ()


@pytest.mark.rule("CM-91")
def test_a_session_takes_no_more_partitions_than_one_leader_is_fetched_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SESSION_PARTITIONS_MAX", 2)
    cache = opened(P0, P1)
    assert len(cache.fetch(request(1, P0, P1), 0, 0).fetch) == 2, "named again, not new"
    with pytest.raises(errors.InvalidRequestError, match="would have 3 partitions; at most 2"):
        cache.fetch(request(2, P2), 0, 0)
    assert set(cache.fetch(request(2, P2, forgotten=(P0,)), 0, 0).fetch) == {P1, P2}, "the epoch was not consumed"
