"""docs/reference/kafka-names.md: each row is checked against a node, its settings and a consumer."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from kip932.setting import Setting
from shard_runtime.config.kafka_configs import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from sharegroups import AcknowledgeType
from sharegroups import config as client
from sharegroups.consuming.metrics import ConsumerMetrics
from tests.integration.dead_letters.queues import Queues
from tests.integration.share_node.test_scrapes import scrape
from tests.packaging.metrics_listed import listed
from tests.support.node import BOUND_S, QUICK, Cluster
from tests.support.ports import free_port

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kafka-names.md"
HERE_ALONE: Final = {"records-expired-total"}
#: KIP-932's metrics for the services, each by the part of its name in the KIP's tables; below them, the KIP's configs.
KIP_METRICS: Final = (
    "group-count", "rebalance-rate", "rebalance-count", "num-partitions", "share-acknowledgement-rate",
    "record-acknowledgement-rate", "partition-load-time-avg", "thread-idle-ratio-avg", "write-rate", "write-total",
    "write-latency-avg",
)  # fmt: skip
KIP_CONFIGS: Final = {
    "group.coordinator.rebalance.protocols",
    "share.fetch.purgatory.purge.interval.requests",
    *(
        f"group.share.{name}"
        for name in (
            "delivery.count.limit", "record.lock.duration.ms", "min.record.lock.duration.ms",
            "max.record.lock.duration.ms", "partition.max.record.locks", "session.timeout.ms",
            "min.session.timeout.ms", "max.session.timeout.ms", "heartbeat.interval.ms", "min.heartbeat.interval.ms",
            "max.heartbeat.interval.ms", "max.groups", "max.size", "assignors",
        )
    ),
    *(
        f"share.coordinator.{name}"
        for name in (
            "state.topic.num.partitions", "state.topic.replication.factor", "state.topic.segment.bytes",
            "state.topic.min.isr", "state.topic.compression.codec", "append.linger.ms", "load.buffer.size",
            "snapshot.update.records.per.snapshot", "threads", "write.timeout.ms",
        )
    ),
}  # fmt: skip
#: Settings named like Kafka's that are extensions of this project.
EXTENSIONS: Final = {"group.share.fast.first.assignment", "group.share.auto.offset.reset"}


@cache
def rows(section: str) -> tuple[tuple[str, str, str], ...]:
    """Return the rows of the table below a heading: Kafka's name, the name here, notes."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}")[2].partition("\n## ")[0]
    cells = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines() if line[:1] == "|"
    ]
    assert all(len(row) == 3 for row in cells), section
    return tuple((row[0], row[1].strip("`"), row[2]) for row in cells[2:])


@pytest.fixture(scope="module")
def text() -> str:
    """Return what a node serves once its group `workers` has rejected five records of the topic `orders`."""
    port = free_port()
    with Cluster({**QUICK, "metrics.port": str(port), "metrics.progress.interval.ms": "300"}) as cluster:
        queues = Queues(cluster)
        queues.produce(5)
        with queues.consumer() as consumer:
            queues.settle(consumer, AcknowledgeType.REJECT, 5)
            queues.until_letters(5)
            queues.until_start(5)
            lag = f'sharegroups_share_group_lag{{group="{queues.group}",topic="{queues.topic}"}} 0.0\n'
            deadline = time.monotonic() + BOUND_S
            served = scrape(port)
            while lag not in served:  # the figures of groups are made in rounds
                assert time.monotonic() < deadline, [line for line in served.splitlines() if "group_lag" in line]
                time.sleep(0.1)
                served = scrape(port)
        queues.close()
    return served.replace(queues.topic, "orders").replace(queues.group, "workers")


@pytest.fixture(scope="module")
def scraped(text: str) -> list[Metric]:
    """Return the families of that scrape."""
    return list(text_string_to_metric_families(text))


@pytest.mark.rule("CM-174")
def test_prometheus_finds_nothing_to_remark_in_what_a_node_serves(text: str) -> None:
    assert "_created" not in text
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool: it checks metrics against Prometheus' conventions")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def series(families: list[Metric]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples by name and labels; topics' ids, which differ each time, as three dots."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = sample.labels | ({"topic_id": "…"} if "topic_id" in sample.labels else {})
        found[sample.name, frozenset(labels.items())] = sample.value
    return found


def lines() -> Iterator[str]:
    """Yield the lines of a scrape that the page shows."""
    text = PAGE.read_text(encoding="utf-8").partition("\n### Lines of a scrape")[2].partition("\n## ")[0]
    yield from text.partition("```text\n")[2].partition("```")[0].splitlines()


@pytest.mark.rule("CM-172", "CM-174")
def test_every_metric_of_kafkas_is_served_under_its_name_here_or_has_a_reason(scraped: list[Metric]) -> None:
    served = {family.name + ("_total" if family.type == "counter" else "") for family in scraped}
    table = rows("Metrics of the services")
    assert [here for _, here, _ in table if here not in {*served, "—"}] == []
    assert [kafka for kafka, here, why in table if here == "—" and not why] == []
    reported = " ".join(kafka for kafka, _, _ in table)
    assert [name for name in KIP_METRICS if not re.search(rf"`{name}`", reported)] == []


@pytest.mark.rule("CM-174")
def test_each_of_them_has_a_line_of_a_scrape_which_a_node_serves(scraped: list[Metric]) -> None:
    shown = list(text_string_to_metric_families("\n".join(lines()) + "\n"))
    real, page = series(scraped), series(shown)
    assert [one for one in page if one not in real] == []
    names = {re.sub("_(count|sum|bucket)$", "", name) for name, _ in page}
    assert names == {here for _, here, _ in rows("Metrics of the services")} - {"—"}
    rejected = ("sharegroups_record_acknowledgements_total", frozenset({("ack_type", "reject")}))
    letters = ("sharegroups_share_group_dead_letters_written_total", frozenset({("group", "workers")}))
    lag = ("sharegroups_share_group_lag", frozenset({("group", "workers"), ("topic", "orders")}))
    known = (rejected, letters, lag)
    assert [real[one] for one in known] == [page[one] for one in known] == [5, 5, 0]


@pytest.mark.rule("CM-174")
def test_every_series_of_a_node_is_on_the_page_of_metrics_with_its_labels(scraped: list[Metric]) -> None:
    known = {name: row.labels for row in listed() for name in row.series}
    found = {(sample.name, frozenset(sample.labels)) for family in scraped for sample in family.samples}
    assert len(found) > 60
    assert [(name, labels) for name, labels in found if known.get(name) != labels - {"le"}] == []


@pytest.mark.rule("CM-174")
def test_the_consumers_metrics_are_kafkas_and_the_one_of_ours() -> None:
    table = [(kafka, here) for kafka, here, _ in rows("Metrics of the consumer") if here != "—"]
    made = {(f"`{group}`: `{name}`", name) for group, name in ConsumerMetrics(0.0).snapshot(1.0, 0)}
    assert {row for row in made if row[1] not in HERE_ALONE} == set(table)


@pytest.mark.rule("CM-174")
def test_every_config_of_kafkas_acts_or_can_be_left_at_its_default_or_is_not_there() -> None:
    brokers, groups = rows("Configs of the services"), rows("Configs of groups and topics")
    settings: dict[str, Setting[Any]] = {**BROKER_CONFIGS, **GROUP_CONFIGS, **TOPIC_CONFIGS}
    for kafka, here, why in (*brokers, *groups):
        name = kafka.strip("`")
        setting = settings.get(name)
        if setting is None:
            assert here == "—", f"{name} is not a setting"
            assert why, name
            continue
        fixed = bool(setting.unserved) or len(setting.choices) == 1
        assert here == ("default only" if fixed else name), name
        assert why or not fixed, name
        if found := re.search(r"the default is (\S+) instead of", why):
            assert setting.text(setting.default) == found[1], name
    reported = {kafka.strip("`") for kafka, _, _ in brokers}
    assert KIP_CONFIGS - reported == set()
    assert {
        name for name in BROKER_CONFIGS if name.startswith(("group.share.", "share."))
    } - EXTENSIONS - reported == set()
    assert {kafka.strip("`") for kafka, _, _ in groups} >= {
        name for name in GROUP_CONFIGS if not name.startswith("sharegroups.")
    }


@pytest.mark.rule("CM-174")
def test_every_config_of_kafkas_share_consumer_is_taken_or_refused() -> None:
    taken = {setting.name for setting in client.CONSUMER}
    table = {kafka.strip("`"): here for kafka, here, _ in rows("Configs of the consumer")}
    assert {name for name, here in table.items() if here == name} <= taken
    assert {name for name, here in table.items() if here == "—"} == set(client.REFUSED)
