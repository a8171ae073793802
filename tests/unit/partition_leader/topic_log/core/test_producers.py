"""The producer state of a log: sequences, epochs, undo, bounds."""

from __future__ import annotations

import pytest

from kip932.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError
from partition_leader.topic_log.core.producers import KEPT_BATCHES, ProducerTable

from .batches import sequenced


@pytest.mark.rule("CM-43")
def test_five_batches_are_remembered_and_a_sequence_wraps_to_zero() -> None:
    table = ProducerTable()
    table.forgot = True
    sequence, sent = 2**31 - 4, []
    for number in range(7):
        new = sequenced(sequence, 2)
        assert table.check(new) is None
        table.accept(new.at(number * 2, 0))
        sent.append(new)
        sequence = (sequence + 2) % 2**31
    assert [one.base_sequence for one in sent[:4]] == [2**31 - 4, 2**31 - 2, 0, 2]
    for number, new in list(enumerate(sent))[-KEPT_BATCHES:]:
        repeated = table.check(new)
        assert repeated is not None
        assert repeated.base_offset == number * 2
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(sent[0])


@pytest.mark.rule("CM-43")
def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    table = ProducerTable()
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(sequenced(3))
    table.accept(sequenced(0).at(0, 0))
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(sequenced(1, epoch=1))
    assert table.check(sequenced(0, epoch=1)) is None
    table.accept(sequenced(0, epoch=1).at(1, 0))
    with pytest.raises(InvalidProducerEpochError):
        table.check(sequenced(1, epoch=0))


@pytest.mark.rule("CM-13")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.rule("CM-43")
def test_a_batch_after_batches_given_up_is_the_next_one_and_a_late_attempt_of_theirs_stores_nothing(
    known: bool,
) -> None:
    table = ProducerTable()
    if known:
        table.accept(sequenced(0).at(0, 0))
    late = [sequenced(1, 2), sequenced(3), sequenced(4)]
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(late[1])
    assert table.check(late[1]._replace(after_given_up=True)) is None
    table.accept(late[1].at(1, 0))
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(late[0])
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(late[0]._replace(after_given_up=True))
    repeated = table.check(late[1])
    assert repeated is not None
    assert repeated.base_offset == 1
    assert table.check(late[2]) is None


@pytest.mark.rule("CM-43")
def test_a_gap_of_batches_given_up_may_lie_where_sequences_wrap() -> None:
    table = ProducerTable()
    table.forgot = True
    table.accept(sequenced(2**31 - 2).at(0, 0))
    assert table.check(sequenced(3)._replace(after_given_up=True)) is None
    table.accept(sequenced(3).at(1, 0))
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(sequenced(2**31 - 1)._replace(after_given_up=True))


def test_undo_restores_a_producer_exactly() -> None:
    table = ProducerTable()
    table.accept(sequenced(0).at(0, 5))
    before = dict(table.items())
    tokens = [table.accept(sequenced(1).at(1, 6)), table.accept(sequenced(0, producer=8).at(2, 6))]
    for token in reversed(tokens):
        table.undo(token)
    assert dict(table.items()) == before


@pytest.mark.rule("CM-43", "CM-62")
def test_producers_are_bounded_in_number_and_age() -> None:
    table = ProducerTable(limit=3)
    for number in range(5):
        table.accept(sequenced(0, producer=number).at(number, 100 * number))
    assert table.expire(appended_before_ms=0) == 2
    assert [producer for producer, _ in table.items()] == [2, 3, 4]
    assert table.expire(appended_before_ms=301) == 2
    assert table.check(sequenced(9, producer=0)) is None, "a forgotten producer may go on in mid-sequence"


@pytest.mark.rule("CM-47")
def test_a_snapshot_ahead_of_the_surviving_log_claims_nothing_that_is_lost() -> None:
    whole = ProducerTable()
    for number in range(3):
        whole.accept(sequenced(number).at(number, 0))
    [(producer, state)] = whole.items()
    table = ProducerTable()
    table.restore(producer, state, below=2)
    assert table.check(sequenced(1)) is not None
    assert table.check(sequenced(2)) is None
