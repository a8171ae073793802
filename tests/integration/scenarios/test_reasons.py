"""Why a job failed, on every screen, through kills of the worker and of the node between the failure and the look."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kip932.failures import REASON_BYTES_MAX
from kip932.ids import TopicPartition
from sharegroups import AcknowledgeType, Admin, AlterConfig, ConfigResource, NewTopic, Producer, ShareConsumer
from sharegroups.cli.main import main
from tests.integration.dead_letters.queues import ENABLE_CONFIG, TOPIC_CONFIG
from tests.support.node import BOUND_S, Cluster, unique

#: A program whose job fails with a text that an operator should not have to look for in a worker's log.
WORKER = """
import sys
from sharegroups import Worker

worker = Worker({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})

def price_of(order):
    raise LookupError(f"no price for {order!r}\\x1b[31m")

@worker.job(sys.argv[3])
def handle(value: bytes) -> None:
    price_of(value.decode())

worker.run()
"""
SAID = "LookupError: no price for 'o-7'"


def tool(cluster: Cluster, *words: str) -> str:
    result = CliRunner().invoke(main, [*words, "--bootstrap-server", cluster.bootstrap])
    assert result.exit_code == 0, result.output
    return result.stdout


def until(found: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + BOUND_S
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def made(cluster: Cluster, topic: str, group: str, letters: str) -> None:
    """Make the topics, set the group's configs, and produce one job."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        errors = admin.create_topics([NewTopic(topic), NewTopic(letters, 1, {ENABLE_CONFIG: "true"})])
        assert not any(errors.values())
        configs = {
            TOPIC_CONFIG: letters,
            "share.delivery.count.limit": "2",
            "share.auto.offset.reset": "earliest",
            "sharegroups.retry.backoff.initial.ms": "3000",
        }
        changes = {ConfigResource.group(group): [AlterConfig(name, value) for name, value in configs.items()]}
        assert not any(admin.incremental_alter_configs(changes).values())
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.produce(topic, "o-7")


@pytest.mark.rule("PL-942", "PL-943", "PL-944", "SC-117", "CL-165", "CT-143")
def test_a_failed_jobs_reason_is_there_after_kills_of_worker_and_node(tmp_path: Path) -> None:
    topic, group, letters = unique("orders"), unique("workers"), unique("dlq.orders")
    program = tmp_path / "program.py"
    program.write_text(WORKER)
    with Cluster() as cluster:
        made(cluster, topic, group, letters)

        def worker() -> subprocess.Popen[bytes]:
            words = [sys.executable, str(program), cluster.bootstrap, group, topic]
            return subprocess.Popen(words, stderr=subprocess.DEVNULL, env=dict(os.environ))

        def explained() -> str:
            words = ("groups", "explain", "--group", group, "--topic", f"{topic}:0", "--offset", "0")
            return CliRunner().invoke(main, [*words, "--bootstrap-server", cluster.bootstrap]).stdout

        first = worker()
        try:
            until(lambda: SAID in explained(), "the reason of the first failure is never explained")
            first.kill()
            cluster.node.kill()
            cluster.start()
            until(lambda: SAID in explained(), "a node that was killed has lost the reason")
        finally:
            first.kill()
            first.wait()
        second = worker()
        listing = ("dlq", "list", "--topic", letters)
        try:
            until(lambda: SAID in tool(cluster, *listing), "the dead letter has no reason")
        finally:
            second.kill()
            second.wait()
        cluster.node.kill()
        cluster.start()
        (letter,) = map(json.loads, tool(cluster, *listing, "--output", "json").splitlines())
        assert letter["reason"].startswith(SAID)
        assert "in price_of" in letter["reason"]
        assert len(letter["reason"].encode()) <= REASON_BYTES_MAX
        shown = tool(cluster, "dlq", "show", "--topic", f"{letters}:0", "--offset", "0")
        assert f"Reason       {SAID}" in shown
        assert "\x1b" not in shown
        assert SAID in tool(cluster, *listing, "--summary")
        fresh = tool(cluster, "dlq", "redrive", "--topic", letters, "--all")
        assert "1" in fresh
        copied = tool(cluster, "topics", "read", f"{topic}:0", "--offset", "1")
        assert "o-7" in copied
        assert "__dlq.errors" not in copied


@pytest.mark.rule("PL-942", "PL-944")
def test_the_newest_reason_of_a_record_counts_and_others_have_none(cluster: Cluster) -> None:
    topic, group = unique("topic"), unique("group")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert not any(admin.create_topics([topic]).values())
        often = {ConfigResource.group(group): [AlterConfig("share.delivery.count.limit", "10")]}
        assert not any(admin.incremental_alter_configs(often).values())
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(4):
                producer.produce(topic, f"v{number}")
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
        with ShareConsumer(settings) as consumer:
            consumer.subscribe([topic])
            given = {1: ["a", "a", "x" * 5_000, ""], 2: ["b", "", "", ""]}  # by delivery count and offset
            again: set[int] = set()
            deadline = time.monotonic() + BOUND_S
            while len(again) < 4:
                assert time.monotonic() < deadline, f"{len(again)} of 4 records came twice"
                for message in consumer.poll(1):
                    offset, count = message.offset(), message.delivery_count()
                    reason = given[count][offset] if count in given else ""
                    consumer.acknowledge(message, AcknowledgeType.RELEASE, reason=reason)
                    if count == 2:
                        again.add(offset)
                assert not any(consumer.commit_sync().values())
            found = admin.explain_record(group, TopicPartition(topic, 0), 0, 3)
            shown = {
                one.first_offset: (one.last_offset, one.reason, one.reason_delivery_count) for one in found.records
            }
        assert shown[0] == (0, "b", 2)
        assert shown[1] == (1, "a", 1)
        last, text, delivery = shown[2]
        assert (last, len((text or "").encode()), delivery) == (2, REASON_BYTES_MAX, 1)
        assert shown[3][0] == 3
        assert not shown[3][1]
