"""`groups reset-offsets` on topics that keep only records some group still needs: it reports where their logs begin."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.ids import RESOURCE_TOPIC
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce
from tests.unit.sharegroups.cli.conftest import sharegroups

RESET = ("groups", "reset-offsets", "--group", "g", "--topic", "t")


@pytest.fixture
def world(fake: FakeCluster) -> FakeCluster:
    """Topic `t` has 5 records in each of its two partitions. Group `g` has finished 2 in each; 3 in partition 1 are
    deleted."""
    for number in (0, 1):
        produce(fake, 5, partition=number)
        consumed(fake, "t", number, 2)
    fake.log("t", 1).first = 3
    fake.configs[RESOURCE_TOPIC, "t"] = {"sharegroups.retention": "consumed"}
    return fake


@pytest.mark.rule("CM-162")
@pytest.mark.parametrize("target", [("--to-earliest",), ("--to-offset", "1")])
def test_the_beginning_that_is_gone_is_reported_before_anything_is_set(
    world: FakeCluster, target: tuple[str, ...]
) -> None:
    result = sharegroups(*RESET, *target, "--dry-run")
    assert result.exit_code == 0
    assert (
        "Note: Topic t has sharegroups.retention=consumed: what every group had finished is deleted. Its log begins at "
        "3 in t-1.\n"
    ) in result.stderr


class _Alterations(list[Any]):
    """Moves the log start of t-0 during an alteration."""

    def __init__(self, fake: FakeCluster) -> None:
        super().__init__()
        self._fake = fake

    def append(self, request: Any) -> None:
        super().append(request)
        self._fake.log("t", 0).first = 4


@pytest.mark.rule("CM-162")
def test_what_went_while_the_group_was_set_is_reported(world: FakeCluster) -> None:
    world.alterations = _Alterations(world)
    result = sharegroups(*RESET, "--to-offset", "3", "--execute")
    assert result.exit_code == 0
    assert "Warn: Meanwhile records that every group had finished were deleted" in result.stderr
    assert "The group begins where the log does: at 4 in t-0.\n" in result.stderr


def test_of_other_topics_and_of_logs_that_are_whole_nothing_is_reported(world: FakeCluster) -> None:
    world.configs.clear()
    assert sharegroups(*RESET, "--to-earliest", "--execute").stderr == ""
    world.configs[RESOURCE_TOPIC, "t"] = {"sharegroups.retention": "consumed"}
    world.log("t", 1).first = 0
    assert sharegroups(*RESET, "--to-earliest", "--execute").stderr == ""


@pytest.mark.rule("CM-163")
def test_describe_says_it_of_a_topic_that_is_named(world: FakeCluster) -> None:
    reported = "Note: Topic t has sharegroups.retention=consumed: what every share group has finished is deleted.\n"
    assert sharegroups("topics", "describe", "t").stderr == reported
    assert sharegroups("topics", "describe").stderr == ""
    world.configs.clear()
    assert sharegroups("topics", "describe", "t").stderr == ""
