"""`sharegroups topics alter`: partitions and configs together, all or nothing."""

from __future__ import annotations

import pytest

from kip932.ids import RESOURCE_TOPIC
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

CONFIGS = RESOURCE_TOPIC, "t"


@pytest.mark.rule("CT-91", "CT-93")
def test_the_transcript(fake: FakeCluster) -> None:
    check(
        "topics-alter",
        [
            "topics alter t --partitions 3",
            "topics alter t --config retention.ms=60000 --config retention.bytes=1000000",
            "topics alter t --config retention.ms=70000 --delete-config retention.bytes --partitions 4",
            "configs describe --topic t",
            "topics alter t --delete-config retention.bytes",
            "topics alter t --delete-config retention.bites",
            "topics alter t --config retention.ms=80000 --partitions 1",
            "topics alter t --config retention.ms=soon --partitions 5",
            "topics alter t",
            "topics alter nope --config retention.ms=1000",
            "topics alter t --partitions 6 --output json",
        ],
    )
    assert fake.configs[CONFIGS] == {"retention.ms": "70000"}
    assert fake.topics["t"][1] == 6


def test_a_topic_that_is_not_there_is_reported_with_the_name_that_may_have_been_meant(fake: FakeCluster) -> None:
    fake.add_topic("orders", 1)
    result = sharegroups("topics", "describe", "order", "zzz", "t")
    assert result.exit_code == 1
    reported = {line.split(":")[1].strip(): line for line in result.stderr.splitlines()}
    assert reported["order"].endswith("Did you mean 'orders'?")
    assert ".." not in reported["order"]
    assert "Did you mean" not in reported["zzz"]
    assert sum(line.startswith("t ") for line in result.stdout.splitlines()) == 3, "the others are described"


@pytest.mark.rule("CT-93")
@pytest.mark.parametrize("wrong", [("--partitions", "2"), ("--config", "retention.ms=x"), ("--delete-config", "x")])
def test_nothing_is_done_when_a_part_is_refused(fake: FakeCluster, wrong: tuple[str, str]) -> None:
    good = [("--partitions", "3"), ("--config", "retention.bytes=1000000")]
    words = [word for pair in [*good, wrong] if pair[0] != wrong[0] or pair is wrong for word in pair]
    result = sharegroups("topics", "alter", "t", *words)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert fake.topics["t"][1] == 2
    assert not fake.configs.get(CONFIGS)


@pytest.mark.rule("CT-142")
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("topics list", "topic"),
        ("topics describe", "topic"),
        ("groups list", "share group"),
        ("groups list --state empty", "share group with the state empty"),
    ],
)
def test_a_list_of_nothing_says_so_and_not_whether_there_is_something_that_may_not_be_seen(
    fake: FakeCluster, words: str, what: str
) -> None:
    fake.topics.clear()
    fake.groups.clear()
    said = sharegroups(*words.split())
    text = f"There is no {what} here, or none that this user may see (DESCRIBE).\n"
    assert (said.exit_code, said.stderr) == (0, text)
