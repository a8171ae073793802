"""The changes that a transactional id's record may go through, rule by rule."""

from __future__ import annotations

import pytest

from kip932.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from kip932.ids import TopicIdPartition
from transaction_coordinator.core import transaction as core
from transaction_coordinator.core.transaction import (
    EPOCH_MAX,
    Cause,
    Ended,
    Fate,
    Identity,
    State,
    Transaction,
    ended,
    expired,
    fate,
    finished,
    initialised,
    joined,
)

P, Q = TopicIdPartition(b"p" * 16, 0), TopicIdPartition(b"q" * 16, 3)
ID, FRESH = 71, 72
ONE = Identity(ID, 0)
TIMEOUT_MS = 1_000


def begun(known: Transaction | None = None, asked: Identity | None = None) -> Transaction:
    return initialised(known, asked, TIMEOUT_MS, ID if known is None else FRESH)


def ongoing(*partitions: TopicIdPartition, now_ms: int = 0) -> Transaction:
    return joined(begun(), ONE, partitions or (P,), now_ms)


def done(known: Transaction, identity: Identity = ONE) -> Transaction:
    made = finished(known, identity, FRESH)
    assert made is not None
    return made


@pytest.mark.rule("CM-152")
def test_a_new_instance_gets_an_epoch_above_all_others() -> None:
    first = begun()
    assert (first.identity, first.state) == (ONE, State.EMPTY)
    assert begun(first).identity == Identity(ID, 1)
    with pytest.raises(ProducerFencedError, match="epoch 0 is fenced, producer 71, epoch 1 is in force"):
        joined(begun(first), ONE, [P], 0)
    with pytest.raises(ProducerFencedError):
        begun(begun(first), asked=ONE)


@pytest.mark.rule("CM-152")
def test_a_new_instance_aborts_what_is_open_and_waits_for_what_is_decided() -> None:
    aborted = begun(ongoing())
    assert (aborted.state, aborted.cause, aborted.identity) == (State.PREPARE_ABORT, Cause.SUCCESSOR, ONE)
    assert begun(aborted) is aborted
    with pytest.raises(ProducerFencedError):
        begun(aborted, asked=ONE)
    after = done(aborted)
    assert after.identity == Identity(ID, 1)
    with pytest.raises(ProducerFencedError):
        begun(after, asked=ONE)
    assert begun(after).identity == Identity(ID, 2)
    committed = ended(ongoing(), ONE, [P], commit=True)
    assert begun(committed) is committed


@pytest.mark.rule("CM-152")
def test_an_instance_that_goes_on_gets_one_new_epoch_however_often_it_asks() -> None:
    first = begun()
    second = begun(first, asked=ONE)
    assert second.identity == Identity(ID, 1)
    assert begun(second, asked=ONE) is second
    timed_out = done(core.decision(ongoing(), Cause.TIMEOUT, commit=False))
    assert begun(timed_out, asked=ONE) is timed_out
    late = joined(second, second.identity, [P], 5)
    with pytest.raises(ProducerFencedError):  # a request sent before the new epoch was used
        begun(late, asked=ONE)
    with pytest.raises(InvalidProducerIdMappingError):
        begun(None, asked=ONE)


@pytest.mark.rule("CM-152")
def test_behind_the_last_epoch_a_new_producer_id_begins() -> None:
    last = Transaction(Identity(ID, EPOCH_MAX), TIMEOUT_MS)
    assert begun(last).identity == Identity(FRESH, 0)
    assert begun(begun(last, asked=last.identity), asked=last.identity).identity == Identity(FRESH, 0)
    assert EPOCH_MAX == 32_766, "Kafka's clients keep an epoch in 16 bits"
    beyond = last._replace(identity=Identity(ID, 100_000))  # of a build that had no such limit
    assert begun(beyond).identity == Identity(FRESH, 0)


@pytest.mark.rule("CM-153")
def test_partitions_join_once_and_only_the_transaction_that_is_open() -> None:
    known = ongoing(Q, P, now_ms=7)
    assert (known.partitions, known.started_ms, known.state) == ((P, Q), 7, State.ONGOING)
    assert joined(known, ONE, [P], 9) is known
    with pytest.raises(InvalidTxnStateError, match="takes no more records"):
        joined(known, ONE, [P], 7 + TIMEOUT_MS)
    decided = ended(known, ONE, [P], commit=True)
    with pytest.raises(InvalidTxnStateError, match="is being committed"):
        joined(decided, ONE, [P], 9)
    with pytest.raises(InvalidProducerEpochError, match="was committed; the present epoch is 1"):
        joined(done(decided), ONE, [P], 9)
    with pytest.raises(InvalidProducerIdMappingError):
        joined(None, ONE, [P], 9)


@pytest.mark.rule("CM-153", "CM-62")
def test_a_transaction_has_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "PARTITIONS_MAX", 1)
    with pytest.raises(InvalidTxnStateError, match="would have 2 partitions"):
        ongoing(P, Q)


@pytest.mark.rule("CM-154")
@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_stands_and_is_answered_again(commit: bool) -> None:
    decided = ended(ongoing(), ONE, [P], commit=commit)
    assert decided.decided
    assert decided.commits is commit
    assert ended(decided, ONE, [P], commit=commit) is decided
    after = done(decided)
    assert (after.identity, after.state, after.partitions) == (Identity(ID, 1), State.EMPTY, ())
    assert ended(after, ONE, [P], commit=commit) is after
    for known in (decided, after, begun(after)):
        with pytest.raises(InvalidTxnStateError, match="cannot be"):
            ended(known, ONE, [P], commit=not commit)
    assert ended(begun(after), ONE, [], commit=commit).outcome_of(ONE) == Ended(ONE, commit, Cause.PRODUCER)


@pytest.mark.rule("CM-154")
def test_a_commit_of_more_than_the_record_has_decides_nothing() -> None:
    with pytest.raises(InvalidTxnStateError, match="has no record of 1 of its partitions"):
        ended(ongoing(P), ONE, [P, Q], commit=True)
    with pytest.raises(InvalidTxnStateError):
        ended(begun(), ONE, [P], commit=True)
    assert ended(ongoing(P), ONE, [P, Q], commit=False).state is State.PREPARE_ABORT


@pytest.mark.rule("CM-154")
def test_an_end_without_records_moves_the_epoch_on() -> None:
    """A batch with this epoch may still be on its way to a leader; it must not join the next transaction."""
    after = ended(begun(), ONE, [], commit=False)
    assert after.identity == Identity(ID, 1)
    with pytest.raises(InvalidProducerEpochError):
        joined(after, ONE, [P], 0)


@pytest.mark.rule("CM-154")
def test_a_fenced_producer_learns_how_its_transaction_ended() -> None:
    committed = begun(done(ended(ongoing(), ONE, [P], commit=True)))
    assert ended(committed, ONE, [P], commit=True) is committed
    aborted = begun(done(begun(ongoing())))
    with pytest.raises(InvalidTxnStateError, match="aborted since another producer began"):
        ended(aborted, ONE, [P], commit=True)
    forgotten = committed
    for _ in range(core.ENDED_KEPT):
        forgotten = begun(forgotten)
    with pytest.raises(ProducerFencedError):
        ended(forgotten, ONE, [P], commit=True)


@pytest.mark.rule("CM-158")
def test_what_an_operator_aborted_fences_its_producer_and_no_other() -> None:
    aborted = ended(ongoing(P), ONE, [], commit=False, cause=Cause.OPERATOR)
    assert (aborted.state, aborted.cause) == (State.PREPARE_ABORT, Cause.OPERATOR)
    for known in (aborted, done(aborted)):
        with pytest.raises(ProducerFencedError, match="an operator aborted its transaction"):
            ended(known, ONE, [P], commit=True)
        with pytest.raises(ProducerFencedError, match="an operator aborted its transaction"):
            initialised(known, ONE, TIMEOUT_MS, FRESH)
        assert ended(known, ONE, [], commit=False, cause=Cause.OPERATOR) is known
    with pytest.raises(ProducerFencedError, match="an operator aborted its transaction"):
        joined(done(aborted), ONE, [P], 0)
    assert core.following(done(aborted), ONE) is None
    after = begun(done(aborted))
    assert (after.state, after.identity.producer_id) == (State.EMPTY, ID)
    assert joined(after, after.identity, [P], 0).state is State.ONGOING


@pytest.mark.rule("CM-158")
def test_an_operator_aborts_nothing_but_what_is_open_under_the_identity_seen() -> None:
    with pytest.raises(InvalidTxnStateError, match="nothing to abort"):
        ended(begun(), ONE, [], commit=False, cause=Cause.OPERATOR)
    committed = ended(ongoing(P), ONE, [P], commit=True)
    for known in (committed, done(committed), joined(done(committed), Identity(ID, 1), [P], 0)):
        with pytest.raises(InvalidTxnStateError, match="was committed; it cannot be aborted"):
            ended(known, ONE, [], commit=False, cause=Cause.OPERATOR)
    by_producer, at_time_out = ended(ongoing(P), ONE, [], commit=False), expired(ongoing(P), 10**9)
    assert at_time_out is not None
    for known in (by_producer, done(by_producer), at_time_out, done(at_time_out)):
        with pytest.raises(InvalidTxnStateError, match=r"was aborted already.*nothing to abort"):
            ended(known, ONE, [], commit=False, cause=Cause.OPERATOR)
        assert ended(known, ONE, [], commit=False) is known


@pytest.mark.rule("CM-156")
def test_a_transaction_past_its_time_out_is_aborted_and_no_other() -> None:
    known = ongoing(now_ms=50)
    assert expired(known, 49 + TIMEOUT_MS) is known
    aborted = expired(known, 50 + TIMEOUT_MS)
    assert aborted is not None
    assert (aborted.state, aborted.cause) == (State.PREPARE_ABORT, Cause.TIMEOUT)
    assert expired(begun(), 10**9) == begun()
    decided = ended(known, ONE, [P], commit=True)
    assert expired(decided, 10**9) is decided
    with pytest.raises(InvalidTxnStateError, match=r"open for longer than its transaction\.timeout\.ms"):
        ended(done(aborted), ONE, [P], commit=True)


@pytest.mark.rule("CM-155")
def test_the_end_is_noted_once_and_only_of_what_was_decided() -> None:
    known = ongoing()
    assert finished(known, ONE, FRESH) is known
    assert finished(None, ONE, FRESH) is None
    after = done(ended(known, ONE, [P], commit=True))
    assert finished(after, ONE, FRESH) is after
    again = joined(after, after.identity, [P], 3)
    decided = ended(again, after.identity, [P], commit=False)
    assert finished(decided, ONE, FRESH) is decided


@pytest.mark.rule("CM-155")
def test_a_leader_learns_what_becomes_of_what_is_open_in_its_log() -> None:
    known = ongoing()
    assert fate(known, ONE) is Fate.WAITS
    committed, aborted = ended(known, ONE, [P], commit=True), ended(known, ONE, [P], commit=False)
    assert fate(committed, ONE) is Fate.COMMITTED
    assert fate(aborted, ONE) is Fate.ABORTED
    assert fate(begun(done(committed)), ONE) is Fate.COMMITTED
    assert fate(done(aborted), ONE) is Fate.ABORTED
    assert fate(None, ONE) is Fate.ABORTED
    assert fate(begun(), ONE) is Fate.ABORTED  # the store lost a confirmed write
    assert fate(known, Identity(ID, 9)) is Fate.ABORTED
