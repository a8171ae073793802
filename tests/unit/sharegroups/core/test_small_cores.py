"""The small pure parts of the client: delays, the fetch session, selected records, the produce buffer."""

from __future__ import annotations

import pytest

from kip932.ids import TopicIdPartition, TopicPartition
from sharegroups.core.backoff import Backoff
from sharegroups.core.fetch_session import CHANGES_MAX, FetchSession
from sharegroups.core.produce_buffer import BATCHES_IN_FLIGHT, ProduceBuffer, ProducerIdentity
from sharegroups.core.record_batch import Acquired, Extent, Slice, restrict, select
from sharegroups.core.unconfirmed_batches import Meaning

A, B = TopicIdPartition(b"a" * 16, 0), TopicIdPartition(b"b" * 16, 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME, NEXT = ProducerIdentity(7, 0), ProducerIdentity(8, 0)
IDS = {"t": Meaning(b"first", 1)}
AGAIN = {"t": Meaning(b"again", 2)}


@pytest.mark.rule("CL-14")
def test_delays_double_up_to_the_cap_and_start_over_after_a_success() -> None:
    backoff = Backoff(100, 1000, lambda: 0.5)
    assert [backoff.next_ms() for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]
    backoff.reset()
    assert backoff.next_ms() == 100
    assert Backoff(100, 1000, lambda: 0.0).next_ms() == 80


@pytest.mark.rule("PL-250", "CL-22")
def test_only_acquired_parts_of_batches_are_selected() -> None:
    extents = [Extent(0, 10), Extent(10, 10), Extent(20, 10)]
    selection = select([Acquired(5, 12, 1), Acquired(25, 26, 3)], extents)
    assert selection.slices == [Slice(0, 5, 10, 1), Slice(1, 0, 3, 1), Slice(2, 5, 7, 3)]
    assert (selection.gaps, selection.records) == ([], 10)


@pytest.mark.rule("CL-23", "PL-232", "PL-804")
def test_acquired_offsets_without_a_record_are_gaps() -> None:
    extents = [Extent(0, 3), Extent(3, 1, is_control=True), Extent(8, 2)]
    selection = select([Acquired(1, 11, 1)], extents)
    assert selection.slices == [Slice(0, 1, 3, 1), Slice(2, 0, 2, 1)]
    assert selection.gaps == [(3, 7), (10, 11)]
    assert select([Acquired(0, 4, 1)], []).gaps == [(0, 4)]


def test_touching_ranges_with_different_counts_become_one_range() -> None:
    selection = select([Acquired(0, 1, 2), Acquired(2, 3, 1)], [Extent(0, 4)])
    assert selection.ranges == [(0, 3)]
    assert selection.slices == [Slice(0, 0, 2, 2), Slice(0, 2, 4, 1)]


@pytest.mark.rule("CL-27")
def test_slices_are_restricted_to_what_was_renewed() -> None:
    assert restrict([Slice(0, 0, 10, 1)], [Extent(100, 10)], [(102, 103), (109, 120)]) == [
        Slice(0, 2, 4, 1),
        Slice(0, 9, 10, 1),
    ]


@pytest.mark.rule("CL-30", "PL-503")
def test_the_first_step_opens_with_everything_and_later_ones_tell_what_changed() -> None:
    session = FetchSession()
    first = session.fetch_step({A: "a"})
    assert (first.epoch, first.added, first.forgotten) == (0, [A], [])
    assert not session.is_established
    session.opened(first.generation, 55)
    second = session.fetch_step({B: "b"})
    assert (second.epoch, second.session_id, second.added, second.forgotten) == (1, 55, [B], [A])
    assert session.acknowledge_step().epoch == 2
    session._epoch = 2**31 - 1
    assert session.acknowledge_step().epoch == 2**31 - 1
    assert session.acknowledge_step().epoch == 1


@pytest.mark.rule("CL-30", "CM-62")
def test_very_many_partitions_are_added_and_forgotten_by_several_requests() -> None:
    session = FetchSession()
    many = {TopicIdPartition(b"a" * 16, number): "a" for number in range(CHANGES_MAX + 5)}
    first, second = session.fetch_step(many), session.fetch_step(many)
    assert (len(first.added), len(second.added)) == (CHANGES_MAX, 5)
    assert session.known == tuple(many)
    assert session.fetch_step(many).added == []
    moves = [session.fetch_step({B: "b"}) for _ in range(3)]
    assert [(len(step.forgotten), step.added) for step in moves] == [(CHANGES_MAX, []), (5, [B]), (0, [])]
    assert session.known == (B,)


@pytest.mark.rule("CL-31", "PL-502a")
def test_a_lost_session_starts_over_and_old_news_does_not_disturb_it() -> None:
    session = FetchSession()
    old = session.fetch_step({A: "a"})
    assert session.lost(old.generation)
    new = session.fetch_step({A: "a"})
    assert (new.epoch, new.added) == (0, [A])
    session.opened(old.generation, 1)
    assert not session.is_established
    session.opened(new.generation, 2)
    assert not session.lost(old.generation)
    assert session.close_step()[:2] == (-1, 2)


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
    (anew,) = buffer.take([T0], ME, 1000, AGAIN)
    assert [b.base_sequence for b in anew.batches] == [0, 1]
    buffer.retry(anew, 0, None)
    (back,) = buffer.take([T0], ME, 1000, IDS)  # stale metadata named the former topic once more
    assert [b.base_sequence for b in back.batches] == [2, 3]
    buffer.retry(back, 0, None)
    (anew,) = buffer.take([T0], ME, 1000, AGAIN)
    assert [b.base_sequence for b in anew.batches] == [0, 1]


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
    assert buffer.append(T0, 0, 20, now_ms=5).was_idle
    assert not buffer.has_room(6)
    assert buffer.expired(5) == []
    (group,) = buffer.expired(6)
    assert [b.records for b in group.batches] == [[0]]
    assert buffer.has_room(25)
