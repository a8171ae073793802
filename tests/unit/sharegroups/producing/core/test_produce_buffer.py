"""The produce buffer: sequences, retries, topics created again, bounds."""

from __future__ import annotations

import pytest

from kip932.ids import TopicPartition
from sharegroups.producing.core.produce_buffer import ProduceBuffer
from sharegroups.producing.core.produce_lane import BATCHES_IN_FLIGHT, ProducerIdentity
from sharegroups.producing.core.unconfirmed_batches import Meaning

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME, NEXT = ProducerIdentity(7, 0), ProducerIdentity(8, 0)
IDS = {"t": Meaning(b"first", 1)}
AGAIN = {"t": Meaning(b"again", 2)}


@pytest.mark.rule("CM-43")
def test_sequences_run_per_partition_and_a_retry_keeps_its_own() -> None:
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 2)
    for number in range(5):
        buffer.append(T0, number, 10, 0)
    (group,) = buffer.take([T0], ME, 1000, IDS)
    assert [(b.base_sequence, b.records) for b in group.batches] == [(0, [0, 1]), (2, [2, 3]), (4, [4])]
    buffer.append(T0, 5, 10, 0)
    assert buffer.ready(0) == []  # one group in flight per partition
    buffer.retry(group, 50, None)
    assert buffer.ready(49) == []
    assert buffer.next_deadline() == 50
    (again,) = buffer.take([T0], ME, 1000, IDS)
    assert [b.base_sequence for b in again.batches] == [0, 2, 4, 5]
    buffer.delivered(again)
    assert (buffer.used_bytes, buffer.records) == (0, 0)


@pytest.mark.rule("CM-43", "CM-21")
def test_a_topic_created_again_counts_from_zero_and_a_batch_keeps_its_number_wherever_it_goes_again() -> None:
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    for number in range(3):
        buffer.append(T0, number, 10, 0)
    (group,) = buffer.take([T0], ME, 20, IDS)
    buffer.delivered(group)
    (refused,) = buffer.take([T0], ME, 1000, IDS)
    assert [b.base_sequence for b in refused.batches] == [2]
    buffer.retry(refused, 0, None)
    buffer.append(T0, 3, 10, 0)
    (renumbered,) = buffer.take([T0], ME, 1000, AGAIN)
    assert [b.base_sequence for b in renumbered.batches] == [0, 1]
    buffer.retry(renumbered, 0, None)
    (back,) = buffer.take([T0], ME, 1000, IDS)  # outdated metadata named the former topic once more
    assert [b.base_sequence for b in back.batches] == [2, 3]
    buffer.retry(back, 0, None)
    (renumbered,) = buffer.take([T0], ME, 1000, AGAIN)
    assert [b.base_sequence for b in renumbered.batches] == [0, 1]


@pytest.mark.rule("CL-14")
def test_what_waits_for_a_back_off_may_be_sent_at_once_when_the_cluster_is_back() -> None:
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 2)
    buffer.append(T0, 1, 10, 0)
    buffer.retry(buffer.take([T0], ME, 1000, IDS)[0], 900, None)
    assert buffer.ready(100) == []
    buffer.hurry()
    assert buffer.ready(100) == [T0]


@pytest.mark.rule("CM-43")
def test_a_new_identity_counts_from_zero_and_never_mixes_with_the_old_one() -> None:
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    buffer.append(T0, 0, 10, 0)
    (group,) = buffer.take([T0], ME, 1000, IDS)
    buffer.append(T0, 1, 10, 0)
    buffer.retry(group, 0, IDS["t"])
    buffer.forget_sequences()
    (old,) = buffer.take([T0], NEXT, 1000, IDS)
    assert [(b.identity, b.base_sequence) for b in old.batches] == [(ME, 0)]
    buffer.delivered(old)
    (new,) = buffer.take([T0], NEXT, 1000, IDS)
    assert [(b.identity, b.base_sequence) for b in new.batches] == [(NEXT, 0)]


# Of CM-43 the next two tests cover (k) in the buffer. That the producer asks for it, and what a leader responds, is in
# tests/properties/test_two_requests.py.
def given_up_first(batches: int) -> ProduceBuffer[int, None]:
    """A buffer whose batches are unconfirmed, and whose first batch has then been given up."""
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    for number in range(batches):
        buffer.append(T0, number, 10, 0)
    buffer.retry(buffer.take([T0], ME, 1000, IDS)[0], 0, IDS["t"])
    buffer.separate(buffer.take([T0], ME, 1000, IDS)[0])
    buffer.failed(buffer.take([T0], ME, 1000, IDS)[0])
    buffer.forget_sequences()
    return buffer


@pytest.mark.rule("CM-43")
def test_what_follows_a_batch_that_was_given_up_keeps_its_number_and_says_so_until_it_is_confirmed() -> None:
    buffer = given_up_first(3)
    (second,) = buffer.take([T0], NEXT, 1000, IDS)
    assert [(b.identity, b.base_sequence, b.records) for b in second.batches] == [(ME, 1, [1])]
    assert second.after_given_up
    assert not buffer.skip_gap(second), "the leader has been asked to skip it already"
    buffer.retry(second, 0, IDS["t"])
    (second,) = buffer.take([T0], NEXT, 1000, IDS)
    assert second.after_given_up
    buffer.delivered(second)
    (third,) = buffer.take([T0], NEXT, 1000, IDS)
    assert [(b.identity, b.base_sequence, b.records) for b in third.batches] == [(ME, 2, [2])]
    assert not third.after_given_up
    assert not buffer.skip_gap(third)
    buffer.delivered(third)
    assert (buffer.used_bytes, buffer.records) == (0, 0)


@pytest.mark.rule("CM-43")
def test_a_batch_of_no_producer_follows_no_gap() -> None:
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    for number in range(2):
        buffer.append(T0, number, 10, 0)
    buffer.retry(buffer.take([T0], None, 1000, IDS)[0], 0, IDS["t"])
    buffer.separate(buffer.take([T0], None, 1000, IDS)[0])
    buffer.failed(buffer.take([T0], None, 1000, IDS)[0])
    assert not buffer.take([T0], None, 1000, IDS)[0].after_given_up


def test_a_request_takes_at_most_five_batches_of_a_partition_and_keeps_to_its_budget() -> None:
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    for number in range(8):
        buffer.append(T0, number, 10, 0)
    buffer.append(T1, 0, 10, 0)
    groups = buffer.take([T0, T1], None, 50, IDS)
    assert [(g.partition, len(g.batches)) for g in groups] == [(T0, BATCHES_IN_FLIGHT)]
    assert groups[0].batches[0].base_sequence == -1
    assert [g.partition for g in buffer.take([T0, T1], None, 50, IDS)] == [T1]


def test_old_batches_expire_and_room_is_bounded() -> None:
    buffer: ProduceBuffer[int, None] = ProduceBuffer(25, 100, 10)
    assert buffer.has_room(99)
    assert buffer.append(T0, 0, 20, now_ms=5).wakes
    assert not buffer.has_room(6)
    assert buffer.expired(5) == []
    (group,) = buffer.expired(6)
    assert [b.records for b in group.batches] == [[0]]
    assert buffer.has_room(25)


def test_a_group_has_five_batches_at_most() -> None:
    """A leader remembers a producer's last five batches (CM-43), so it would not recognise a retry of more."""
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    for number in range(7):
        buffer.append(T0, number, 10, 0)
    (group,) = buffer.take([T0], ME, 10_000, IDS)
    assert [batch.base_sequence for batch in group.batches] == [0, 1, 2, 3, 4]
    buffer.delivered(group)
    (rest,) = buffer.take([T0], ME, 10_000, IDS)
    assert [batch.base_sequence for batch in rest.batches] == [5, 6]


@pytest.mark.rule("CL-142")
def test_what_is_taken_back_and_what_stays() -> None:
    buffer: ProduceBuffer[int, object] = ProduceBuffer(10_000, 100, 3)
    watchers = {name: object() for name in "abcde"}

    def taken_back(name: str, renumbers: bool = True) -> object:
        return buffer.take_back("t", watchers[name], lambda _: 10, renumbers=renumbers)

    for number, name in enumerate("abc"):
        buffer.append(T0, number, 10, 0, watchers[name])
    assert taken_back("b", renumbers=False) is True, "no request has carried it"
    assert (buffer.records, buffer.used_bytes) == (2, 20)
    (group,) = buffer.take([T0], ME, 1000, IDS)
    assert taken_back("a") is False, "it is in flight"
    buffer.retry(group, 0, None)
    assert taken_back("a") is False, "it has a sequence, and is not alone in its batch"
    (again,) = buffer.take([T0], ME, 1000, IDS)
    assert [(batch.base_sequence, batch.records, batch.watchers) for batch in again.batches] == [
        (0, [0, 2], [(0, watchers["a"]), (1, watchers["c"])])
    ]
    buffer.delivered(again)
    buffer.append(T0, 3, 10, 0, watchers["d"])
    buffer.retry(buffer.take([T0], ME, 1000, IDS)[0], 0, None)
    assert taken_back("d", renumbers=False) is False, "in a transaction"
    assert taken_back("d") == ME, "whose sequences have a gap now"
    assert (buffer.records, buffer.used_bytes) == (0, 0)
    buffer.append(T0, 4, 10, 0, watchers["e"])
    buffer.retry(buffer.take([T0], NEXT, 1000, IDS)[0], 0, IDS["t"])
    assert taken_back("e") is False, "it may be stored"
    assert buffer.records == 1


@pytest.mark.rule("CL-143")
def test_what_waits_for_some_topics_is_taken_out_but_not_behind_what_is_in_flight() -> None:
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    other = TopicPartition("u", 0)
    for partition in (T0, T0, T1, other):
        buffer.append(partition, 1, 10, 0)
    (flying,) = buffer.take([T0], ME, 10, IDS)
    taken = buffer.take_topics({"t"})
    assert [(group.partition, len(group.batches)) for group in taken] == [(T1, 1)]
    assert (buffer.records, buffer.used_bytes) == (3, 30)
    buffer.failed(flying)
    assert [group.partition for group in buffer.take_topics({"t"})] == [T0]
    assert buffer.take_topics({"t"}) == []
    assert (buffer.records, buffer.ready(0)) == (1, [other])
