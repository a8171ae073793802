"""Commands name the topic that was probably meant by a name that does not exist."""

from __future__ import annotations

import pytest

from kip932.errors import UnknownTopicOrPartitionError
from sharegroups.admin import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups

MEANT = "Did you mean 'orders'?"


@pytest.mark.rule("CT-172")
@pytest.mark.parametrize(
    "words",
    [
        ("produce", "ordres", "--property", "max.block.ms=300"),
        ("consume", "ordres", "--group", "g", "--timeout-ms", "1"),
        ("consume", "ordres", "--group", "g", "--timeout-ms", "5000"),
    ],
)
def test_the_nearest_topic_comes_before_the_advice_to_create_one(fake: FakeCluster, words: tuple[str, ...]) -> None:
    fake.add_topic("orders", 1)
    result = sharegroups(*words, stdin="a\n")
    assert result.exit_code == 1
    assert f"Warning: topic 'ordres' does not exist in the cluster at node0:9000. {MEANT} Create it" in result.stderr
    assert result.stderr.count("Warning: topic 'ordres' does not exist") == 1


@pytest.mark.rule("CT-172")
def test_topics_delete_names_the_nearest_topic(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.add_topic("orders", 1)
    outcomes = {"ordres": UnknownTopicOrPartitionError(), "zzz": UnknownTopicOrPartitionError(), "t": None}
    monkeypatch.setattr(Admin, "delete_topics", lambda _admin, _names: outcomes)
    result = sharegroups("topics", "delete", "ordres", "zzz", "t")
    assert (result.exit_code, result.stdout) == (1, "Deleted topic t.\n"), result.stderr
    first, second = result.stderr.splitlines()
    assert first.startswith("Error: ordres: UNKNOWN_TOPIC_OR_PARTITION: ")
    assert first.endswith(MEANT)
    assert "Did you mean" not in second
