"""What `topics describe` shows of sizes, retention and the store, and what it says when it cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kip932.errors import ClusterAuthorizationFailedError, KafkaError, KafkaStorageError, NetworkError
from kip932.ids import RESOURCE_TOPIC, TopicPartition
from sharegroups.admin_values import LogDirDescription, PartitionDescription, ReplicaInfo, TopicDescription
from sharegroups.cli import topic_sizes
from sharegroups.cli.topic_sizes import Retention, TopicSizes, held, print_stores, sizes_of
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups

NOW = 1_000_000_000
HOUR = 3_600_000


def info(size: int = 0, records: int = 0, oldest_ms: int | None = None, estimate: bool = False) -> ReplicaInfo:
    return ReplicaInfo(size, 0, False, records, oldest_ms, estimate)


def store(used: int | None, limit: int | None, **replicas: ReplicaInfo) -> LogDirDescription:
    left = None if limit is None or used is None else max(limit - used, 0)
    places = {TopicPartition(name[:-1], int(name[-1])): each for name, each in replicas.items()}
    return LogDirDescription(None, places, limit, left, used)


def topic(name: str, *leaders: int) -> TopicDescription:
    parts = tuple(PartitionDescription(number, leader, 1) for number, leader in enumerate(leaders))
    return TopicDescription(name, b"i" * 16, parts)


class Nodes:
    """An admin client with these answers of nodes, and no configs."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers
        self.asked: Any = None

    def describe_log_dirs(self, node_ids: Any, topics: Any) -> Any:
        self.asked = (node_ids, topics)
        if isinstance(self.answers, KafkaError):
            raise self.answers
        return self.answers

    def describe_configs(self, resources: Any) -> Any:
        return {}


def found(answers: Any, *topics: TopicDescription, named: bool = True) -> TopicSizes:
    admin: Any = Nodes(answers)
    return sizes_of(admin, topics, named)


@pytest.mark.rule("CT-150")
def test_numbers_say_what_is_an_estimate_what_is_missing_and_what_is_not_known() -> None:
    assert held([info()], NOW) == ("0", "0 B", "-")
    assert held([info(2_048, 5, NOW - HOUR)], NOW)[:2] == ("5", "2.0 KiB")
    assert held([info(2_048, 5, NOW - HOUR)], NOW)[2].endswith(" (1 h 0 min)")
    assert held([info(1, 1, NOW), None], NOW)[:2] == ("1+", "1 B+")
    assert held([info(1, 1, NOW), None], NOW)[2].endswith(" or more)"), "an older one may be where nothing is known"
    assert held([info(1, 1, NOW), info(1, 1, None, True)], NOW)[1:] == ("~2 B", held([info(1, 1, NOW), None], NOW)[2])
    assert held([None, None], NOW) == ("-", "-", "-")
    assert held([info(1, 1, NOW + HOUR)], NOW)[2].endswith(" (0.0 s)"), "a clock that is behind makes no age"


@pytest.mark.rule("CT-150")
@pytest.mark.parametrize(
    ("retention", "text"),
    [
        (Retention(604_800_000, None, False), "7 d"),
        (Retention(None, 1 << 30, False), "1.0 GiB a partition"),
        (Retention(5_400_000, 1 << 20, False), "90 min or 1.0 MiB a partition"),
        (Retention(None, None, False), "no limit"),
        (Retention(1_500, None, True), "consumed; 1.5 s"),
        (Retention(0, None, False), "0.0 s"),
    ],
)
def test_the_retention_in_force_is_one_text(retention: Retention, text: str) -> None:
    assert retention.text() == text


@pytest.mark.rule("CT-150")
def test_the_answers_of_all_leaders_are_put_together_and_only_leaders_are_asked() -> None:
    first, second = store(5, 10, a0=info(1), b0=info(9)), store(6, 10, a1=info(2))
    admin: Any = Nodes({1: {"s:1": first}, 2: {"s:1": second, "s:2": store(1, None, a2=info(3))}})
    sizes = sizes_of(admin, [topic("a", 1, 2, 2, -1)], named=True)
    assert admin.asked == ([1, 2], ["a"])
    assert {place.partition: each.size for place, each in sizes.logs.items()} == {0: 1, 1: 2, 2: 3}
    assert sizes.stores_of(topic("a", 1, 2, 2)) == ["s:1", "s:2"]
    assert not sizes.unknown
    assert sizes_of(admin, [topic("a", 1)], named=False).logs.keys() == sizes.logs.keys()
    assert admin.asked == ([1], None)


@pytest.mark.rule("CT-150")
def test_topics_without_any_leader_ask_no_node() -> None:
    admin: Any = Nodes({})
    assert not sizes_of(admin, [topic("a", -1)], named=True).unknown
    assert admin.asked is None


@pytest.mark.rule("CT-150")
def test_each_cause_is_said_once_with_the_nodes_that_it_is_about() -> None:
    refused = ClusterAuthorizationFailedError("not allowed")
    every = found({1: refused, 2: refused}, topic("a", 1, 2))
    assert every.unknown == ["Sizes are not known. not allowed"]
    silent = found({1: {"s:1": store(5, 10, a0=info(1))}, 2: NetworkError("gone")}, topic("a", 1, 2))
    assert silent.unknown == ["Sizes of what node 2 leads are not known. gone"]
    assert len(silent.logs) == 1
    none = found(NetworkError("no node answered"), topic("a", 1))
    assert none.unknown == ["Sizes are not known. no node answered"]
    unread = LogDirDescription(KafkaStorageError("down"), {}, 10, 5, 5)
    assert found({1: {"s:1": unread}}, topic("a", 1)).unknown == [
        "Node 1 cannot read the store s:1 now, so sizes there are estimates. down"
    ]


@pytest.mark.rule("CT-150")
def test_a_node_that_does_not_know_the_stores_memory_does_not_hide_what_another_knows() -> None:
    sizes = found(
        {1: {"s:1": store(None, None)}, 2: {"s:1": store(5, 10)}, 3: {"s:1": store(None, None)}}, topic("a", 1, 2, 3)
    )
    assert sizes.stores["s:1"].used_bytes == 5


@pytest.mark.rule("CT-150")
def test_store_nodes_come_with_the_fullest_first_and_their_sum(capsys: pytest.CaptureFixture[str]) -> None:
    print_stores(TopicSizes(stores={"a": store(1 << 30, None), "b": store(9 << 20, 10 << 20), "c": store(1, 1 << 20)}))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert [line[0] for line in lines] == ["STORE", "b", "c", "a", "(all)"]
    assert lines[1] == ["b", "9.0", "MiB", "10", "MiB", "1.0", "MiB", "(90%", "used)"]
    assert "none what the machine has" in " ".join(lines[3])
    assert "none what the machine has" in " ".join(lines[4]), "one of them has no limit"
    print_stores(TopicSizes(stores={"b": store(9 << 20, 10 << 20), "c": store(1 << 20, 10 << 20)}))
    assert "(all) 10 MiB 20 MiB 10 MiB (50% used)" in " ".join(capsys.readouterr().out.split())
    print_stores(TopicSizes(stores={"b": store(None, None)}))
    assert not capsys.readouterr().out


@pytest.mark.rule("CT-150", "CT-84")
def test_the_command_shows_topics_partitions_and_the_store(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_sizes, "now_ms", lambda: 1_000 + HOUR)
    fake.configs[RESOURCE_TOPIC, "t"] = {"retention.ms": "86400000", "sharegroups.retention": "consumed"}
    fake.log("t", 1).append(b"x" * 3_000, 7)
    fake.store_memory = (80 << 20, 100 << 20)
    said = sharegroups("topics", "describe", "t")
    assert said.exit_code == 0, said.stderr
    topics, first, second, memory = (
        line.split() for line in said.stdout.splitlines() if line.startswith(("t ", "store "))
    )
    assert topics[2:5] == ["2", "7", "2.9"]
    assert " ".join(topics[5:]) == "KiB 1970-01-01T00:00:01Z (1 h 0 min) consumed; 1 d"
    assert first[1:] == ["0", "0", "1", "0", "0", "B", "-"]
    assert second[4:7] == ["7", "2.9", "KiB"]
    assert memory == ["store", "80", "MiB", "100", "MiB", "20", "MiB", "(80%", "used)"]
    assert "Topic t has sharegroups.retention=consumed" in said.stderr


@pytest.mark.rule("CT-150")
def test_json_has_numbers_and_null_for_what_is_not_known(fake: FakeCluster) -> None:
    fake.log("t").append(b"xyz", 2)
    (one,) = json.loads(sharegroups("topics", "describe", "t", "--output", "json").stdout)
    assert (one["records"], one["bytes"], one["oldest_append_time_ms"]) == (2, 3, 1_000)
    assert (one["retention_ms"], one["retention_bytes"], one["retention_consumed"]) == (604_800_000, None, False)
    assert one["stores"] == [{"store": "store", "used_bytes": 1 << 20, "limit_bytes": None, "left_bytes": None}]
    assert [part["records"] for part in one["partitions"]] == [2, 0]
    fake.denied.add("DESCRIBE on cluster 'kafka-cluster'")
    said = sharegroups("topics", "describe", "t", "nope", "--output", "json")
    unknown = {each["topic"]: each for each in json.loads(said.stdout)}
    assert [unknown["t"][name] for name in ("records", "bytes", "oldest_append_time_ms")] == [None, None, None]
    assert unknown["t"]["stores"] == []
    assert unknown["nope"]["records"] is None
    assert said.exit_code == 1, "one of them does not exist"


@pytest.mark.rule("CT-150")
def test_without_the_right_topics_are_described_and_what_is_missing_is_said(fake: FakeCluster) -> None:
    fake.denied.add("DESCRIBE on cluster 'kafka-cluster'")
    said = sharegroups("topics", "describe", "t")
    assert said.exit_code == 0
    assert said.stderr.startswith("Warning: Sizes are not known. User:alice has no right to DESCRIBE on cluster")
    rows = [line.split() for line in said.stdout.splitlines() if line.startswith("t ")]
    assert rows[0][2:] == ["2", "-", "-", "-", "7", "d"]
    assert rows[1][4:] == ["-", "-", "-"]
    assert "STORE" not in said.stdout
