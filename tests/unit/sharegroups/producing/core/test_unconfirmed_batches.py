"""Which responses leave a batch in doubt, and what happens to such a batch (CM-43)."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.errors import KafkaError, error_class
from kip932.ids import TopicPartition
from sharegroups.producing.core.produce_buffer import ProduceBuffer
from sharegroups.producing.core.produce_lane import NO_IDENTITY, Group, ProducerIdentity
from sharegroups.producing.core.unconfirmed_batches import Action, Meaning, created_again, next_action, nothing_written

T0 = TopicPartition("t", 0)
ME, NEXT = ProducerIdentity(7, 0), ProducerIdentity(8, 0)
FORMER, PRESENT = Meaning(b"former", 4), Meaning(b"present", 9)


@pytest.mark.rule("CM-43")
def test_only_answers_given_before_the_write_or_in_place_of_it_say_that_nothing_was_written() -> None:
    codes = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KafkaError)}
    reported = {code for code in codes if nothing_written(error_class(code)("as the leader says"))}
    assert reported == {2, 10, 15, 19, 21, 29, 42, 45, 46, 47, 48, 49, 51, 56, 76, 87, 90, 100}
    assert not {3, 5, 6, 7, 13, 20, -1} & reported


@pytest.mark.rule("CM-43")
def test_the_course_of_a_batch_is_judged_by_ids_and_by_the_version_of_the_metadata() -> None:
    assert next_action(None, PRESENT) is Action.SEND
    assert next_action(FORMER, FORMER) is Action.SEND
    assert next_action(FORMER, Meaning(FORMER.topic_id, 2)) is Action.SEND, (
        "a node that is behind knows the topic already"
    )
    assert next_action(FORMER, PRESENT) is Action.FAIL
    assert next_action(PRESENT, FORMER) is Action.WAIT, "a node that is behind names the former topic"
    assert next_action(FORMER, Meaning(b"other", FORMER.version)) is Action.WAIT, "a version that says nothing, as 0"


@pytest.mark.rule("CM-43")
def test_the_error_names_the_topic_and_what_to_do() -> None:
    error = created_again("orders")
    assert error.code == 100
    assert "'orders' was deleted and created again" in error.message
    assert "Send it again" in error.message


def buffer_with(count: int, memory_bytes: int = 10_000) -> ProduceBuffer[int, None]:
    made: ProduceBuffer[int, None] = ProduceBuffer(memory_bytes, 10, 1)
    for number in range(count):
        made.append(T0, number, 10, number)
    return made


def take(
    buffer: ProduceBuffer[int, None],
    meaning: Meaning,
    identity: ProducerIdentity | None = ME,
    budget_bytes: int = 1000,
) -> list[Group[int, None]]:
    return buffer.take([T0], identity, budget_bytes, {"t": meaning})


def values(groups: list[Group[int, None]]) -> list[int]:
    return [value for group in groups for batch in group.batches for value in batch.records]


@pytest.mark.rule("CM-43")
def test_only_batches_in_doubt_fail_and_their_memory_is_free_again() -> None:
    buffer = buffer_with(4)
    (doubtful,) = take(buffer, FORMER, budget_bytes=20)
    buffer.retry(doubtful, 900, FORMER)
    assert buffer.take_outdated(lambda _: FORMER) == ([], False)
    assert take(buffer, PRESENT) == []
    gone, waits = buffer.take_outdated(lambda _: PRESENT)
    assert (values(gone), waits) == ([0, 1], False)
    assert (buffer.used_bytes, buffer.records) == (20, 2)
    assert buffer.take_outdated(lambda _: PRESENT) == ([], False), "once"
    assert buffer.ready(0) == [T0], "those behind need not wait for their back-off"
    (behind,) = take(buffer, PRESENT)
    assert [(batch.records, batch.base_sequence) for batch in behind.batches] == [([2], 0), ([3], 1)]
    buffer.delivered(behind)
    assert (buffer.used_bytes, buffer.records) == (0, 0)


@pytest.mark.rule("CM-43")
def test_a_batch_in_flight_is_not_judged_before_its_outcome() -> None:
    buffer = buffer_with(1)
    buffer.retry(take(buffer, FORMER)[0], 0, FORMER)
    (again,) = take(buffer, FORMER)
    assert buffer.take_outdated(lambda _: PRESENT) == ([], False)
    buffer.retry(again, 0, None)
    assert values(buffer.take_outdated(lambda _: PRESENT)[0]) == [0], "a refusal says nothing of the attempt before"


@pytest.mark.rule("CM-43")
def test_a_delivered_batch_is_in_doubt_no_more() -> None:
    buffer = buffer_with(6)
    buffer.retry(take(buffer, FORMER)[0], 0, FORMER)
    (again,) = take(buffer, FORMER)
    buffer.delivered(again)
    assert buffer.take_outdated(lambda _: PRESENT) == ([], False)
    assert [(b.records, b.base_sequence) for b in take(buffer, PRESENT)[0].batches] == [([5], 0)]


@pytest.mark.rule("CM-43")
def test_while_metadata_are_behind_or_the_name_is_unknown_a_batch_in_doubt_waits() -> None:
    buffer = buffer_with(1)
    buffer.retry(take(buffer, PRESENT)[0], 0, PRESENT)
    assert buffer.take_outdated(lambda _: FORMER) == ([], True)
    assert take(buffer, FORMER) == []
    assert buffer.take_outdated(lambda _: None) == ([], False)
    assert [batch.base_sequence for batch in take(buffer, PRESENT)[0].batches] == [0]


@pytest.mark.rule("CM-43")
def test_a_batch_in_doubt_takes_no_more_records_though_it_has_no_identity() -> None:
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 10)
    buffer.append(T0, 0, 10, 0)
    buffer.retry(take(buffer, FORMER, None)[0], 0, FORMER)
    assert not buffer.extend(T0, 1, 10)
    buffer.append(T0, 1, 10, 0)
    (group,) = take(buffer, FORMER, None)
    assert [(batch.records, batch.identity, batch.base_sequence) for batch in group.batches] == [
        ([0], NO_IDENTITY, -1),
        ([1], None, -1),
    ]
    buffer.retry(group, 0, None)
    assert values(buffer.take_outdated(lambda _: PRESENT)[0]) == [0]


@pytest.mark.rule("CM-43")
def test_what_was_refused_is_numbered_again_under_a_new_identity_and_what_is_in_doubt_is_not() -> None:
    buffer = buffer_with(3)
    buffer.retry(take(buffer, FORMER)[0], 0, None)
    buffer.retry(take(buffer, FORMER, budget_bytes=10)[0], 0, FORMER)
    buffer.forget_sequences()
    (doubtful,) = take(buffer, FORMER, NEXT)
    assert [(batch.identity, batch.base_sequence) for batch in doubtful.batches] == [(ME, 0)]
    buffer.delivered(doubtful)
    (others,) = take(buffer, FORMER, NEXT)
    assert [(batch.identity, batch.base_sequence) for batch in others.batches] == [(NEXT, 0), (NEXT, 1)]


@pytest.mark.rule("CM-43")
def test_what_was_in_flight_when_the_identity_changed_and_is_refused_does_not_stand_behind_a_gap() -> None:
    """Its first batch times out. Before the fix, the next one, which was never appended, kept its sequence and failed
    with error 45 because of the gap."""
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    buffer.append(T0, 0, 10, now_ms=0)
    buffer.append(T0, 1, 10, now_ms=5)
    (group,) = buffer.take([T0], ME, 1000, {"t": PRESENT})
    buffer.forget_sequences()  # because another partition failed
    buffer.retry(group, 0, None)
    (gone,) = buffer.expired(older_than_ms=5)
    assert [batch.records for batch in gone.batches] == [[0]]
    (group,) = buffer.take([T0], NEXT, 1000, {"t": PRESENT})
    assert [(batch.identity, batch.base_sequence) for batch in group.batches] == [(NEXT, 0)]
