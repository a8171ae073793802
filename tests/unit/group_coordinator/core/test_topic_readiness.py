"""The cache of a group's topic readiness: computed from the image once, until the group or the image changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from group_coordinator.core.topic_readiness import ReadinessMemo
from tests.support.group_driver import Driver


class Asked:
    """An image that records the topics it was asked for."""

    def __init__(self, image: Any) -> None:
        self._image = image
        self.image = image
        self.names: list[str] = []

    def by_name(self, name: str) -> Any:
        self.names.append(name)
        return self._image.by_name(name)


@pytest.fixture
def driver() -> Driver:
    made = Driver()
    made.create("t", 2)
    made.beat("A", 0, ["t"])
    return made


def test_the_image_is_asked_once_and_again_after_the_group_was_forgotten(driver: Driver) -> None:
    (group,) = driver.shard.groups.values()
    memo, view = ReadinessMemo(), Asked(driver.image)
    first: Any = memo.of(group, view)  # type: ignore[arg-type]  # a part of an image
    assert [topic.name for topic in first.topics.values()] == ["t"]
    assert memo.of(group, view) is first  # type: ignore[arg-type]
    assert view.names == ["t"]
    memo.forget("another")
    assert memo.of(group, view) is first  # type: ignore[arg-type]
    memo.forget(group.group_id)
    memo.forget(group.group_id)
    assert memo.of(group, view) == first  # type: ignore[arg-type]
    assert view.names == ["t", "t"]


def test_another_view_of_the_image_changes_nothing_and_one_of_another_image_is_asked(driver: Driver) -> None:
    """Another image may have the same version if the store lost its tail."""
    (group,) = driver.shard.groups.values()
    memo, view, same, newer = ReadinessMemo(), Asked(driver.image), Asked(driver.image), Asked(driver.image)
    newer.image = replace(driver.image)
    first: Any = memo.of(group, view)  # type: ignore[arg-type]
    assert memo.of(group, same) is first  # type: ignore[arg-type]
    assert memo.of(group, newer) == first  # type: ignore[arg-type]
    assert (view.names, same.names, newer.names) == (["t"], [], ["t"])
