"""Five RELEASEs in a row archive a record: the log, the metrics and `groups describe` show it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sharegroups import AcknowledgeType, Admin, NewTopic, Producer, ShareConsumer
from tests.integration.share_node.test_scrapes import scrape, series
from tests.support.node import BOUND_S, QUICK, Cluster
from tests.support.ports import free_port

GROUP = "workers\x1b[31m"
DELIVERIES = 5
ARCHIVED = "sharegroups_share_group_records_archived_total"


def consumed(cluster: Cluster) -> None:
    """Release record 0 until it is archived, reject 1 and 2, accept the others."""
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "group_id": GROUP}
    # Whole batches, so that records 1 and 2 are rejected together, in one log line.
    options |= {"share_acknowledgement_mode": "explicit", "share_acquire_mode": "batch_optimized"}
    with ShareConsumer(**options) as consumer:
        consumer.subscribe(["orders"])
        released = finished = 0
        for _ in range(BOUND_S):
            for message in consumer.poll(timeout=1):
                if message.offset() == 0:
                    released += 1
                    consumer.acknowledge(message, AcknowledgeType.RELEASE)
                else:
                    finished += 1
                    reject = message.offset() <= 2
                    consumer.acknowledge(message, AcknowledgeType.REJECT if reject else AcknowledgeType.ACCEPT)
            consumer.commit_sync()
            if (released, finished) == (DELIVERIES, 5):
                return
    raise AssertionError(f"released {released} times, {finished} finished")


def described(cluster: Cluster) -> dict[str, Any]:
    command = str(Path(sys.executable).with_name("sharegroups"))
    words = ["groups", "describe", "--group", GROUP, "--bootstrap-server", cluster.bootstrap]
    table = subprocess.run([command, *words], capture_output=True, text=True, timeout=BOUND_S, check=True).stdout
    header, row = (line.split() for line in table.split("\n")[1:3])
    assert header[-1] == "ARCHIVED"
    asked = [command, *words, "--output", "json"]
    (group,) = json.loads(subprocess.run(asked, capture_output=True, timeout=BOUND_S, check=True).stdout)
    (offset,) = group["offsets"]
    assert int(row[-1]) == offset["archived_by_limit"] + offset["archived_by_reject"]
    found: dict[str, Any] = offset
    return found


def until_counted(port: int, expected: dict[str, int]) -> None:
    """Wait until the metrics count this many archived records of the group, by cause."""
    deadline = time.monotonic() + BOUND_S
    while True:
        shown = series(scrape(port))
        of = {"group": GROUP, "topic": "orders", "destination": "none"}
        found = {cause: shown.get((ARCHIVED, frozenset((of | {"cause": cause}).items()))) for cause in expected}
        if found == expected:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


@pytest.mark.rule("PL-810", "PL-811")
def test_an_archived_record_is_logged_counted_and_described_also_after_a_restart() -> None:
    port = free_port()
    settings = {**QUICK, "metrics.port": str(port), "metrics.progress.interval.ms": "300"}
    with Cluster(settings) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("orders")])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(6):
                producer.produce("orders", str(number))
        consumed(cluster)
        errors = cluster.node.errors
        lines = [json.loads(line) for line in errors.splitlines() if "records_archived" in line]
        by_cause = {line["cause"]: line for line in lines}
        assert by_cause.keys() == {"delivery_limit", "rejected"}
        limit, rejected = by_cause["delivery_limit"], by_cause["rejected"]
        assert (limit["offsets"], limit["records"], limit["delivery_count"]) == ("0", 1, DELIVERIES)
        assert (limit["group"], limit["topic"], limit["partition"]) == (GROUP, "orders", 0)
        assert limit["level"] == "warning"
        assert (rejected["offsets"], rejected["records"], rejected["delivery_count"]) == ("1-2", 2, 1)
        assert "\x1b" not in errors
        until_counted(port, {"delivery_limit": 1, "rejected": 2})
        before = described(cluster)
        assert (before["archived_by_limit"], before["archived_by_reject"], before["lag"]) == (1, 2, 0)
        cluster.node.kill()
        cluster.start()
        after = described(cluster)
        assert (after["archived_by_limit"], after["archived_by_reject"]) == (1, 2)
