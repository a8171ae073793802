"""One partition of the buffer: a second group of batches in flight, its outcome, and batches that are queued again
(CL-130 to CL-133)."""

from __future__ import annotations

import pytest

from kip932.errors import MessageTooLargeError, NetworkError, OutOfOrderSequenceNumberError
from kip932.ids import TopicPartition
from sharegroups.producing.core.produce_buffer import ProduceBuffer, SecondRequest
from sharegroups.producing.core.produce_lane import Group, Outcome, ProducerIdentity, Way
from sharegroups.producing.core.unconfirmed_batches import Meaning

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME, NEXT = ProducerIdentity(7, 0), ProducerIdentity(8, 0)
IDS = {"t": Meaning(b"first", 1)}
AGAIN = {"t": Meaning(b"again", 2)}
WAY, OTHER_WAY, REOPENED = (1, 1), (2, 1), (1, 2)
#: Another request is in flight. All batches here were started at the instant at which that request began.
NOW = SecondRequest(0)


def full_buffer(batches: int = 3, identity: ProducerIdentity | None = ME) -> ProduceBuffer[int, None]:
    """T0's leader has stored a batch of this identity; `batches` batches of one record each are waiting, and the last
    one is still open."""
    buffer: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    buffer.follow_bytes = 10
    buffer.append(T0, 0, 10, 0)
    buffer.delivered(buffer.take([T0], identity, 1000, IDS, way=WAY)[0])
    for number in range(batches):
        buffer.append(T0, 1 + number, 10, 0)
    return buffer


def numbers(groups: list[Group[int, None]]) -> list[list[int]]:
    return [[batch.base_sequence for batch in group.batches] for group in groups]


@pytest.mark.rule("CL-130", "CL-132")
def test_full_batches_follow_those_in_flight_and_the_open_one_waits() -> None:
    buffer = full_buffer(7)
    first = buffer.take([T0], ME, 1000, IDS, way=WAY)
    assert buffer.following(0) == [T0]
    second = buffer.take([T0], ME, 1000, IDS, way=WAY, pipelined=NOW)
    assert numbers(first) == [[1, 2, 3]]
    assert numbers(second) == [[4, 5]], "five in all: more the leader would not know again"
    assert buffer.take([T0], ME, 1000, IDS, way=WAY, pipelined=NOW) == [], "no third one"
    assert buffer.settle(first[0], Outcome()) == first
    buffer.delivered(first[0])
    assert numbers(buffer.take([T0], ME, 1000, IDS, way=WAY, pipelined=NOW)) == [[6]], "it follows the second one"


@pytest.mark.rule("CL-131")
@pytest.mark.parametrize(
    ("identity", "meanings", "way"),
    [(None, IDS, WAY), (NEXT, IDS, WAY), (ME, AGAIN, WAY), (ME, IDS, OTHER_WAY), (ME, IDS, REOPENED)],
    ids=["not idempotent", "another identity", "another topic", "another leader", "another stream"],
)
def test_nothing_follows_to_whom_does_not_know_the_producer(
    identity: ProducerIdentity | None, meanings: dict[str, Meaning], way: Way
) -> None:
    buffer = full_buffer()
    buffer.take([T0], ME, 10, IDS, way=WAY)
    assert buffer.take([T0], identity, 1000, meanings, way=way, pipelined=NOW) == []


@pytest.mark.rule("CL-131")
def test_nothing_follows_a_retry_or_a_first_group() -> None:
    buffer = full_buffer()
    (group,) = buffer.take([T0], ME, 10, IDS, way=WAY)
    buffer.retry(group, 0, None)
    buffer.take([T0], ME, 10, IDS, way=WAY)
    assert buffer.take([T0], ME, 1000, IDS, way=WAY, pipelined=NOW) == []
    new: ProduceBuffer[int, None] = ProduceBuffer(10_000, 100, 1)
    new.follow_bytes = 10
    for number in range(3):
        new.append(T0, number, 10, 0)
    new.take([T0], ME, 10, IDS, way=WAY)
    assert new.following(0) == []
    assert new.take([T0], ME, 1000, IDS, way=WAY, pipelined=NOW) == []


@pytest.mark.rule("CL-130")
def test_the_sender_is_woken_when_a_batch_becomes_full() -> None:
    buffer = full_buffer(0)
    assert buffer.append(T0, 1, 10, 0).wakes
    buffer.take([T0], ME, 1000, IDS, way=WAY)
    assert not buffer.append(T0, 2, 10, 0).wakes, "it may be filled while the first group is under way (P-1)"
    assert buffer.append(T0, 3, 10, 0).wakes
    buffer.follow_bytes = None
    buffer.take([T0], ME, 1000, IDS, way=WAY)
    assert not buffer.append(T0, 4, 10, 0).wakes


_LOST = Outcome(None, NetworkError("lost"), 70, IDS["t"])
_REFUSED = Outcome(None, NetworkError("not now"), 50)
_NEVER = Outcome(error=MessageTooLargeError("never"))
_GAP = Outcome(error=OutOfOrderSequenceNumberError("a gap"))


@pytest.mark.rule("CL-133")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("one", "two", "reported"),
    [
        (Outcome("a"), _GAP, (Outcome("a"), _GAP)),
        (_LOST, Outcome("b"), (_LOST, Outcome("b"))),
        (_LOST, _LOST, (_LOST, _LOST)),
        (_REFUSED, _GAP, (_REFUSED, _GAP._replace(delay_ms=50))),
        (_NEVER, _GAP, (_NEVER, _GAP._replace(delay_ms=0))),
        (_NEVER, _LOST, (_NEVER, _LOST._replace(unconfirmed=None))),
        (_REFUSED, _LOST, (_REFUSED._replace(unconfirmed=IDS["t"]), _LOST)),
        (_REFUSED, _NEVER, (_REFUSED, _NEVER)),
    ],
)
def test_two_outcomes_are_reported_in_order_and_what_followed_a_failure_goes_again(
    one: Outcome, two: Outcome, reported: tuple[Outcome, Outcome], turned: bool
) -> None:
    buffer = full_buffer()
    groups = buffer.take([T0], ME, 10, IDS, way=WAY)
    groups += buffer.take([T0], ME, 10, IDS, way=WAY, pipelined=NOW)
    found: list[Group[int, None]] = []
    for group, outcome in list(zip(groups, (one, two), strict=True))[:: -1 if turned else 1]:
        for settled in buffer.settle(group, outcome):
            found.append(settled)
            (buffer.delivered if settled.outcome is not None and settled.outcome.error is None else buffer.failed)(
                settled
            )
    assert found == groups
    assert (groups[0].outcome, groups[1].outcome) == reported


@pytest.mark.rule("CL-133")
def test_two_groups_that_go_again_keep_their_order_and_numbers() -> None:
    buffer = full_buffer()
    first, second = buffer.take([T0], ME, 10, IDS, way=WAY) + buffer.take([T0], ME, 10, IDS, way=WAY, pipelined=NOW)
    buffer.retry(first, 90, IDS["t"])
    buffer.retry(second, 40, IDS["t"])
    assert buffer.next_deadline() == 90
    assert buffer.take([T0], ME, 1000, IDS, way=WAY, pipelined=NOW) == [], "none of them is new"
    assert numbers(buffer.take([T0], ME, 1000, IDS, way=WAY)) == [[1, 2, 3]]


@pytest.mark.rule("CL-132")
def test_what_was_delivered_behind_an_unconfirmed_batch_counts_among_the_five() -> None:
    buffer = full_buffer(9)
    (first,) = buffer.take([T0], ME, 10, IDS, way=WAY)
    (second,) = buffer.take([T0], ME, 1000, IDS, way=WAY, pipelined=NOW)
    assert numbers([first, second]) == [[1], [2, 3, 4]]
    assert buffer.settle(second, Outcome("stored")) == []
    assert buffer.settle(first, _LOST) == [first, second]
    buffer.retry(first, 0, IDS["t"])
    buffer.delivered(second)
    assert numbers(buffer.take([T0], ME, 1000, IDS, way=WAY)) == [[1, 5]], "the leader knows 1 to 5 again"


@pytest.mark.rule("CL-130")
def test_a_second_request_takes_what_waited_when_the_first_one_began_and_has_nothing_in_flight() -> None:
    buffer = full_buffer()
    buffer.take([T0], ME, 10, IDS, way=WAY)
    buffer.append(T1, 0, 10, now_ms=5)
    assert T1 in buffer.following(9)
    assert buffer.take([T1], ME, 1000, IDS, way=WAY, pipelined=SecondRequest(5)) == [], (
        "the next batch may still grow until the first request gets its response"
    )
    assert numbers(buffer.take([T1], ME, 1000, IDS, way=WAY, pipelined=SecondRequest(6))) == [[0]]


@pytest.mark.rule("CL-130")
def test_little_is_not_worth_a_second_request() -> None:
    buffer = full_buffer(3)
    buffer.follow_bytes = 30
    buffer.take([T0], ME, 10, IDS, way=WAY)
    assert buffer.following(0) == [], "a full batch of 10 bytes waits, and an open one"
    assert not buffer.append(T0, 4, 10, 0).wakes
    assert buffer.append(T0, 5, 10, 0).wakes
    assert numbers(buffer.take([T0], ME, 1000, IDS, way=WAY, pipelined=NOW)) == [[2, 3, 4]]


@pytest.mark.rule("CM-43")
def test_a_group_sent_before_the_one_in_front_of_it_was_given_up_is_sent_again_and_skips_the_gap() -> None:
    buffer = full_buffer(7)
    (first,) = buffer.take([T0], ME, 1000, IDS, way=WAY)
    (second,) = buffer.take([T0], ME, 1000, IDS, way=WAY, pipelined=NOW)
    assert buffer.settle(second, Outcome(None, OutOfOrderSequenceNumberError("a gap"))) == []
    assert not buffer.skip_gap(second), "the first may still be sent again"
    assert buffer.settle(first, Outcome(None, MessageTooLargeError("large"))) == [first, second]
    buffer.failed(first)
    assert buffer.skip_gap(second)
    (again,) = buffer.take([T0], ME, 1000, IDS, way=WAY)
    assert again.batches[:2] == second.batches
    assert again.after_given_up
