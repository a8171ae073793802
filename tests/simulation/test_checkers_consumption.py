"""Tests the checker of consumed retention: bad histories are found, and the most similar good ones pass."""

from __future__ import annotations

import pytest

from kip932.ids import TopicIdPartition
from tests.simulation.checkers.consumption import OnlyConsumed
from tests.simulation.history import Administered
from tests.simulation.inside import Starts, asked_epochs
from tests.simulation.leader_events import Consumed
from tests.simulation.made import TOPIC, Made, found

#: A group, and its state epoch when the leader asked.
ASKED = (("g", 2),)


def moved(now: tuple[tuple[str, int, int], ...], asked: tuple[tuple[str, int], ...] = ASKED, to: int = 10) -> Made:
    made = Made()
    made.add(Consumed, 1, TOPIC, 0, to, asked, now)
    return made


@pytest.mark.rule("INV-1")
@pytest.mark.parametrize(
    ("now", "asked"),
    [
        pytest.param((("g", 2, 9),), ASKED, id="not finished"),
        pytest.param((("g", 2, -1),), ASKED, id="not begun"),
        pytest.param((("f", 3, 50), ("g", 2, 9)), (("f", 3), *ASKED), id="the slower of two"),
        pytest.param((("g", -1, -1),), (("g", -1),), id="state for other partitions alone"),
    ],
)
def test_what_a_known_group_has_not_finished_must_stay(
    now: tuple[tuple[str, int, int], ...], asked: tuple[tuple[str, int], ...]
) -> None:
    assert found(OnlyConsumed(), moved(now, asked)) == ["INV-1"]


@pytest.mark.parametrize(
    ("now", "asked"),
    [
        pytest.param((("g", 2, 10),), ASKED, id="finished"),
        pytest.param((("g", 3, 5),), ASKED, id="reset meanwhile"),
        pytest.param((("g", 2, 5),), (), id="made meanwhile"),
        pytest.param((("g", 2, 5),), (("g", -1),), id="its state was initialised meanwhile"),
        pytest.param((), ASKED, id="deleted meanwhile"),
    ],
)
def test_what_is_finished_or_came_about_meanwhile_may_go(
    now: tuple[tuple[str, int, int], ...], asked: tuple[tuple[str, int], ...]
) -> None:
    assert not found(OnlyConsumed(), moved(now, asked))


def test_of_a_topic_that_is_being_deleted_nothing_is_promised() -> None:
    made = moved((("g", 2, 9),))
    made.add(Administered, "DeleteTopics", "t", TOPIC, "", 0)
    assert not found(OnlyConsumed(), made)


@pytest.mark.parametrize(
    ("now", "settled", "known"),
    [
        pytest.param({"g": {0: (2, 0)}}, True, (("g", -1),), id="known by other partitions, and not here"),
        pytest.param({"g": {0: (2, 0)}}, False, (), id="what is unconfirmed may have been its state here"),
        pytest.param({}, True, (), id="it was deleted since"),
        pytest.param({"g": {0: (3, 0)}}, True, (), id="it was deleted and made again since"),
        pytest.param({"g": {1: (2, 0)}}, True, (), id="what is there now was made since"),
    ],
)
def test_a_group_was_without_state_only_where_the_leader_cannot_know_otherwise(
    now: Starts, settled: bool, known: tuple[tuple[str, int], ...]
) -> None:
    partition = TopicIdPartition(bytes(16), 2)
    assert asked_epochs(partition, {"g": {0: (2, 0)}}, now, lambda key: settled and key.partition == 2) == known


def test_the_state_that_a_group_had_is_known_whatever_came_since() -> None:
    partition = TopicIdPartition(bytes(16), 2)
    assert asked_epochs(partition, {"g": {2: (4, 7)}}, {}, lambda key: False) == (("g", 4),)
