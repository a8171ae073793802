"""Compares a page and gauges for groups at a standstill with a ledger of produced and accepted records.

Services and store are real. The ledger counts, independently of the pipeline, what was confirmed to producers and
consumers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from share_metrics.ingest import job
from share_metrics.ingest.job import Cluster, Exposition, Ingested, Job, collected, run
from share_metrics.ingest.log_samples import sample, samples
from share_metrics.ingest.writing import KINDS, Source, stored
from share_metrics.reader import Store
from share_metrics.report import Known, Logs, Report, collect, render, totals
from sharegroups import Admin, AlterConfig, ConfigResource, NewTopic, Producer, ShareConsumer, TopicPartition
from tests.support import node

TOPICS = ("orders", "deleted")
#: The records produced after the stopped groups' last ones: more than they had consumed.
FURTHER = 5_000
BOUND_S = 60
SETTINGS = {"share.auto.offset.reset": "earliest"}


class Ledger:
    """The records produced to topics of one partition, and those that groups have accepted."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.produced: Counter[str] = Counter()
        self.finished: Counter[tuple[str, str]] = Counter()

    def produce(self, topic: str, count: int) -> None:
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(count):
                producer.produce(topic, str(number))
            assert producer.flush(BOUND_S) == 0
        self.produced[topic] += count

    def consume(self, consumer: ShareConsumer, group: str, topic: str, count: int) -> None:
        """Accept `count` records."""
        left = count
        deadline = time.monotonic() + BOUND_S
        while left and time.monotonic() < deadline:
            left -= len(consumer.poll(1))
            assert not [error for error in consumer.commit_sync().values() if error is not None]
        assert left == 0
        self.finished[group, topic] += count

    def lag(self, group: str, topic: str) -> int:
        return self.produced[topic] - self.finished[group, topic]


class Scene:
    """A cluster with one group for every kind of standstill and one that works; and their ledger."""

    GROUPS = ("stopped", "hung", "busy", "orphan")

    def __init__(self, held: ExitStack) -> None:
        self.began = datetime.now(UTC)
        self.cluster = held.enter_context(node.Cluster(node.QUICK))
        bootstrap = self.cluster.bootstrap
        self.ledger = Ledger(bootstrap)
        admin = held.enter_context(Admin(bootstrap_servers=bootstrap))
        admin.create_topics([NewTopic(name) for name in TOPICS])
        change = [AlterConfig(name, value) for name, value in SETTINGS.items()]
        failed = admin.incremental_alter_configs({ConfigResource.group(group): change for group in self.GROUPS})
        assert not any(failed.values())
        for topic in TOPICS:
            self.ledger.produce(topic, 100)
        for group, topic in (("stopped", "orders"), ("orphan", "deleted")):
            with self.consumer(group, topic) as consumer:
                self.ledger.consume(consumer, group, topic, 100)
        hung = held.enter_context(self.consumer("hung", "orders"))  # it heartbeats, but no longer polls
        self.ledger.consume(hung, "hung", "orders", 100)
        assert not any(admin.alter_share_group_offsets("never", {TopicPartition("orders", 0): 40}).values())
        self.ledger.finished["never", "orders"] = 40  # the records before its start
        for topic in TOPICS:
            self.ledger.produce(topic, FURTHER)
        time.sleep(2)  # leaves one-second windows in which the groups have lag and finish nothing, before "busy" works
        with self.consumer("busy", "orders") as consumer:
            self.ledger.consume(consumer, "busy", "orders", 100 + FURTHER)
        assert not any(admin.delete_topics(["deleted"]).values())
        self.source = Source(self.cluster.store_url)

    def consumer(self, group: str, topic: str) -> ShareConsumer:
        consumer = ShareConsumer(bootstrap_servers=self.cluster.bootstrap, group_id=group)
        consumer.subscribe([topic])
        return consumer

    def ingest(self, data: Path, source: Source | None = None) -> tuple[Ingested, list[str], str]:
        """Ingest everything that is stored; returns the result, the log lines, and the gauges."""
        reported: list[str] = []
        out = data.with_suffix(".prom")
        found = run(Job(source or self.source, data), Exposition(textfile=out), Cluster("local[1]"), reported.append)
        return found, reported, out.read_text()


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with ExitStack() as held:
        yield Scene(held)


@pytest.fixture(scope="module")
def data(spark: SparkSession, scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("lag") / "data"
    scene.ingest(data)
    return data


def gauges(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Return the series of a gauge, by group or by group and topic."""
    return {
        tuple(sample.labels[label] for label in ("group", "topic") if label in sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"sharegroups_ingest_share_group_{name}"
    }


def lags(found: Report) -> dict[tuple[str, str], int | None]:
    return {(group, rest.removesuffix("-0")): line.lag for line in found.partitions
            for group, _, rest in [line.name.partition(" · ")] if not line.gone}  # fmt: skip


def expected(scene: Scene) -> dict[tuple[str, str], int]:
    return {(group, "orders"): scene.ledger.lag(group, "orders") for group in ("stopped", "hung", "busy", "never")}


@pytest.mark.rule("PM-18", "PM-42", "PM-61", "PM-37")
def test_a_page_shows_what_came_behind_groups_that_stand_still(spark: SparkSession, scene: Scene, data: Path) -> None:
    assert expected(scene) == {
        ("stopped", "orders"): FURTHER, ("hung", "orders"): FURTHER, ("busy", "orders"): 0,
        ("never", "orders"): 60 + FURTHER,
    }  # fmt: skip
    found = collected(data, (scene.began, None), 1, False, Cluster("local[1]"), print)
    assert lags(found) == expected(scene)
    assert [line.name.partition(" ")[0] for line in found.partitions if line.gone] == ["orphan"]
    assert found.light == "amber", "those without members stand still at once"
    abandoned = {row["group_id"] for row in found.stalls if row["kind"] == "abandoned"}
    assert abandoned == {"stopped", "never"}
    page = render(found)
    assert f"<td>{FURTHER:,}</td>" in page
    assert "<b>15,060</b> records of lag" in page
    assert "unknown</b>" not in page


@pytest.mark.rule("PM-42", "PM-61")
def test_six_minutes_later_a_group_that_hangs_is_found(spark: SparkSession, scene: Scene, data: Path) -> None:
    """The test does not wait for six minutes: the logs are sampled again with a later time, for which the page is
    made."""
    later = datetime.now(UTC) + timedelta(minutes=6)
    with Store(scene.cluster.store_url) as store:
        sample(store, data, later)
    states, groups = (stored(spark, data, kind) for kind in KINDS)
    begin, end = later - timedelta(hours=1), later + timedelta(seconds=1)
    found = collect(states, groups, begin, end, logs=Logs(samples(spark, data)), known=Known(later))
    assert lags(found) == expected(scene)
    assert found.light == "amber"
    kinds = {(row["group_id"], row["kind"]) for row in found.stalls}
    assert kinds == {("hung", "stalled"), ("stopped", "abandoned"), ("never", "abandoned")}
    assert totals(found)["lag_unknown"] == 0


@pytest.mark.rule("PM-38", "PM-42")
def test_gauges_are_those_of_the_ledger(spark: SparkSession, scene: Scene, data: Path) -> None:
    text = data.with_suffix(".prom").read_text()
    assert gauges(text, "lag") == expected(scene)
    assert gauges(text, "lag_unknown") == dict.fromkeys(expected(scene), 0)
    assert gauges(text, "members") == {("stopped",): 0, ("hung",): 1, ("busy",): 0, ("never",): 0, ("orphan",): 0}


@pytest.mark.rule("PM-18", "PM-38", "PM-42", "PM-37")
def test_where_the_store_refuses_the_sampling_lag_is_unknown_and_never_0(
    spark: SparkSession, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's user may read the coordinators' streams but no topic log. Watermarks from writes are too old by
    then."""
    with redis.Redis(unix_socket_path=scene.cluster.store_socket) as client:
        client.execute_command(
            "ACL", "SETUSER", "half", "on", "nopass", "+@read", "+@connection", "+eval_ro",
            *(f"%R~{keys}" for keys in ("{sgs:*", "{gc:*", "sgs:*", "gc:*", "{meta}*")),
        )  # fmt: skip
    monkeypatch.setattr(job, "current_for_s", lambda _: 0.0)
    path = scene.cluster.store_socket
    source = Source(f"unix://half@{path}", reader_name="")
    found, reported, text = scene.ingest(tmp_path / "data", source)
    assert found.lost == 0
    (refused,) = [words for words in reported if "where logs end was not sampled" in words]
    assert "No permissions" in refused or "NOPERM" in refused
    assert gauges(text, "lag") == {}, "each has finished all that its last write knew of"
    assert gauges(text, "lag_unknown") == dict.fromkeys(expected(scene), 1)
    states, groups = (stored(spark, tmp_path / "data", kind) for kind in KINDS)
    later = datetime.now(UTC) + timedelta(minutes=6)
    page = collect(states, groups, scene.began, later, logs=Logs(samples(spark, tmp_path / "data")), known=Known(later))
    assert lags(page) == dict.fromkeys(expected(scene))
    assert page.light == "amber"
    html = render(page)
    assert html.count("<td>unknown</td>") == 2 * len(expected(scene)), "of each group, and of each share-partition"
    assert "The lag of 4 share-partitions is unknown" in html
