"""Cycles of dead-letter topics: the topics that dead letters reach, and the shortest path back."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from group_coordinator.core.letter_circles import TOPICS_MAX, Step, reached, return_path


def steps(*edges: tuple[str, str]) -> list[Step]:
    return [Step(topic, f"g-{topic}-{queue}", queue) for topic, queue in edges]


class Edges:
    def __init__(self, *edges: tuple[str, str]) -> None:
        self.steps = steps(*edges)

    def __call__(self, topics: Collection[str]) -> Iterator[Step]:
        return (step for step in self.steps if step.topic in topics)


def test_the_shortest_way_back_is_found() -> None:
    found = reached("a", Edges(("a", "b"), ("b", "c"), ("c", "d"), ("a", "c"), ("d", "a"), ("x", "a")))
    assert list(found) == ["a", "b", "c", "d"]
    assert return_path({"d", "x"}, found) == ("d", tuple(steps(("a", "c"), ("c", "d"))))
    assert return_path({"a", "d"}, found) == ("a", ())
    assert return_path({"x"}, found) is None


def test_a_search_ends_at_a_bound_of_topics() -> None:
    chain = Edges(*((f"t{number}", f"t{number + 1}") for number in range(2 * TOPICS_MAX)))
    assert len(reached("t0", chain)) == TOPICS_MAX
