"""The progress of groups on a real cluster: a stopped group, a hung, a busy and one that never fetched, beside the
ledger of the test; then what is left after a restart, a deletion, a move, and without a share coordinator."""

from __future__ import annotations

import contextlib
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kip932.ids import TopicPartition
from sharegroups import AcknowledgeType, Admin, NewTopic, Producer, ShareConsumer
from tests.support.node import BOUND_S, QUICK, Cluster
from tests.support.ports import free_port

#: Rounds come quickly; locks last longer than the test.
SETTINGS: Final = {
    **QUICK,
    "metrics.progress.interval.ms": "300",
    "group.share.auto.offset.reset": "earliest",
    "group.share.record.lock.duration.ms": "60000",
}
RECORDS: Final = 40

Labels = tuple[str, ...]


class Scrape(dict[tuple[str, str, str], float]):
    """The series of progress, by the name without its prefix, group and topic."""


def scraped(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND_S) as answer:
        text = answer.read().decode()
    found = Scrape()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("sharegroups_") and "cause" not in sample.labels:
                name = sample.name.removeprefix("sharegroups_").removeprefix("share_group_")
                found[name, sample.labels.get("group", ""), sample.labels.get("topic", "")] = sample.value
    return found


def until(port: int, expected: dict[tuple[str, str, str], float | None]) -> Scrape:
    """Wait for a scrape with these values; None: no such series."""
    deadline = time.monotonic() + BOUND_S
    while True:
        found = scraped(port)
        wrong = {key: (found.get(key), value) for key, value in expected.items() if found.get(key) != value}
        if not wrong:
            return found
        assert time.monotonic() < deadline, f"(found, expected) of each: {wrong}"
        time.sleep(0.1)


def of(group: str, topic: str = "orders", **values: float | None) -> dict[tuple[str, str, str], float | None]:
    return {(name, group, topic): value for name, value in values.items()}


@contextlib.contextmanager
def consumer(cluster: Cluster, group: str, topic: str = "orders", **options: Any) -> Iterator[ShareConsumer]:
    options = {"share_acquire_mode": "record_limit", "share_acknowledgement_mode": "explicit"} | options
    with ShareConsumer(bootstrap_servers=cluster.bootstrap, group_id=group, **options) as made:
        made.subscribe([topic])
        yield made


def work(
    made: ShareConsumer,
    records: int,
    kind: AcknowledgeType = AcknowledgeType.ACCEPT,
    *,
    rejected: int = 0,
    delay: float | None = None,
) -> int:
    """Acknowledge this many records, the first ones with REJECT; return how many there were."""
    finished = 0
    deadline = time.monotonic() + BOUND_S
    while finished < records:
        assert time.monotonic() < deadline
        for message in made.poll(timeout=1):
            made.acknowledge(message, AcknowledgeType.REJECT if finished < rejected else kind, delay=delay)
            finished += 1
        assert not any(made.commit_sync().values())
    return finished


def taken(made: ShareConsumer, records: int) -> None:
    """Take this many records, and do nothing with them."""
    held = 0
    deadline = time.monotonic() + BOUND_S
    while held < records:
        assert time.monotonic() < deadline
        held += len(list(made.poll(timeout=1)))
    assert held == records


def produce(cluster: Cluster, records: int, partition: int | None = None, topic: str = "orders") -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(records):
            producer.produce(topic, str(number), partition=number % 2 if partition is None else partition)


def described(admin: Admin, group: str) -> int:
    """Return the lag that `groups describe` shows."""
    found: Any = admin.list_share_group_offsets({group: None})[group]
    return sum(offset.lag for offset in found.values())


def whole_row(admin: Admin, group: str, *, partitions: int) -> Any:
    """Wait until each leader reports and the group's only row counts all partitions; return the row."""
    deadline = time.monotonic() + BOUND_S
    while True:
        page = admin.list_share_progress([group])
        if not page.missing and len(page.rows) == 1 and page.rows[0].partitions == partitions:
            return page.rows[0]
        assert time.monotonic() < deadline, page
        time.sleep(0.1)


def left_after_a_restart_and_deletions(cluster: Cluster, port: int, finished: int) -> None:
    """Kill the node, start it again, then delete a group and the topic."""
    cluster.node.kill()
    cluster.start()
    until(port, {
        **of("stopped", lag=RECORDS + 6 - finished, records_finished_total=0, since_finish_seconds=None),
        **of("never", lag=RECORDS + 3),
        **of("hung", lag=RECORDS + 6, records_in_flight=0),
        **of("busy", lag=0),
        ("topic_records_appended_total", "", "orders"): 0,
    })  # fmt: skip
    with Admin(bootstrap_servers=cluster.bootstrap) as again:
        assert again.delete_share_groups(["stopped"]) == {"stopped": None}
        gone = of("stopped", lag=None, records_finished_total=None, records_in_flight=None)
        until(port, {**gone, ("members", "stopped", ""): None, **of("never", lag=RECORDS + 3)})
        assert again.delete_topics(["orders"]) == {"orders": None}
        until(port, {
            **of("never", lag=None, records_in_flight=None), **of("busy", lag=None, records_in_flight=None),
            ("topic_log_records", "", "orders"): None,
        })  # fmt: skip
        assert again.list_share_progress().rows == ()


@pytest.mark.rule("PL-950", "PL-952", "PL-953", "PL-954", "PL-955", "PL-956", "SC-118", "CL-170")
def test_four_groups_beside_a_ledger_through_a_restart_and_deletions() -> None:
    port = free_port()
    with Cluster({**SETTINGS, "metrics.port": str(port)}) as cluster, contextlib.ExitStack() as members:
        admin = members.enter_context(Admin(bootstrap_servers=cluster.bootstrap))
        admin.create_topics([NewTopic("orders", 2)])
        produce(cluster, RECORDS)

        with consumer(cluster, "stopped", max_poll_records=5) as leaves:
            finished = work(leaves, 10, rejected=3)
        hung = members.enter_context(consumer(cluster, "hung", max_poll_records=4))
        taken(hung, 4)
        busy = members.enter_context(consumer(cluster, "busy", max_poll_records=10))
        done = work(busy, RECORDS)
        admin.alter_share_group_offsets("never", {TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 0})

        expected = {
            **of("stopped", lag=RECORDS - finished, records_finished_total=finished, records_in_flight=0),
            **of("hung", lag=RECORDS, records_in_flight=4, records_finished_total=0, since_finish_seconds=None),
            **of("busy", lag=0, records_in_flight=0, records_finished_total=done, oldest_unfinished_seconds=None),
            **of("never", lag=RECORDS - 3, records_in_flight=0, records_finished_total=0),
            ("members", "stopped", ""): 0,
            ("members", "hung", ""): 1,
            ("members", "never", ""): 0,
            ("topic_records_appended_total", "", "orders"): RECORDS,
            ("topic_log_records", "", "orders"): RECORDS,
        }
        found = until(port, expected)
        assert found["oldest_unfinished_seconds", "hung", "orders"] > 0
        assert found["oldest_unfinished_seconds", "never", "orders"] > 0
        assert found["longest_held_seconds", "hung", "orders"] > 0
        assert found["since_finish_seconds", "busy", "orders"] >= 0
        assert found["topic_log_bytes", "", "orders"] > RECORDS
        for group in ("stopped", "hung", "busy", "never"):
            assert described(admin, group) == found["lag", group, "orders"], group

        rows = {row.group: row for row in admin.list_share_progress(topics=["orders"]).rows}
        assert [row.group for row in admin.list_share_progress().rows] == ["hung", "never", "stopped", "busy"]
        assert (rows["stopped"].finished, rows["stopped"].archived, rows["stopped"].fetching) == (finished, 3, 0)
        assert (rows["hung"].in_flight, rows["hung"].fetching, rows["hung"].partitions) == (4, 1, 2)
        assert (
            rows["hung"].longest_member
            == next(
                iter(admin.describe_share_groups(["hung"])["hung"].members)  # type: ignore[union-attr]
            ).member_id
        )
        assert rows["hung"].longest_held_ms > 0

        produce(cluster, 6, partition=1)
        done += work(busy, 6)
        until(port, {
            **of("stopped", lag=RECORDS + 6 - finished), **of("never", lag=RECORDS + 3), **of("hung", lag=RECORDS + 6),
            **of("busy", lag=0, records_finished_total=done),
            ("topic_records_appended_total", "", "orders"): RECORDS + 6,
        })  # fmt: skip

        members.close()
        left_after_a_restart_and_deletions(cluster, port, finished)


@pytest.mark.rule("PL-954", "PL-956", "CL-170")
def test_a_partition_that_moves_is_counted_by_one_leader_and_a_killed_leader_is_named() -> None:
    port, second = free_port(), free_port()
    with (
        Cluster({**SETTINGS, "metrics.port": str(port), "lease.ms": "6000"}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        admin.create_topics([NewTopic("orders", 4)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(RECORDS):
                producer.produce("orders", str(number), partition=number % 4)
        with consumer(cluster, "stopped", max_poll_records=5) as leaves:
            finished = work(leaves, 12)
        until(port, of("stopped", lag=RECORDS - finished))
        cluster._settings["metrics.port"] = str(second)
        cluster.add_leader("second")
        deadline = time.monotonic() + BOUND_S
        while True:
            one, two = (scraped(at).get(("lag", "stopped", "orders"), 0) for at in (port, second))
            if two > 0 and one + two == RECORDS - finished:
                break
            assert time.monotonic() < deadline, (one, two)
            time.sleep(0.1)
        # A partition that is still being moved belongs to no leader for a moment.
        assert whole_row(admin, "stopped", partitions=4).lag == RECORDS - finished
        assert 0 < scraped(port)["records_finished_total", "stopped", "orders"] <= finished
        cluster.kill_leader()
        assert whole_row(admin, "stopped", partitions=4).lag == RECORDS - finished
        until(port, of("stopped", lag=RECORDS - finished, records_finished_total=finished))
