"""`sharegroups dlq` on a real cluster: dead letters are listed, redriven once despite interrupted runs, and purged.

A producer writes the dead letters in the services' format.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kip932.ids import TopicPartition
from sharegroups import Admin, NewTopic, Producer
from sharegroups.admin_values import ReadRecord
from sharegroups.cli.main import main
from tests.support.letters import bare, copy_of
from tests.support.node import Cluster, unique

#: The number of dead letters in each of the two partitions.
LETTERS = 5_000


class Tool:
    """The command line, a cluster, and a topic and its dead-letter queue, each with two partitions."""

    def __init__(self, cluster: Cluster, admin: Admin) -> None:
        self.cluster, self.admin = cluster, admin
        self.topic, self.dlq = unique("jobs"), unique("dlq.jobs")
        queue = NewTopic(self.dlq, 2, {"errors.deadletterqueue.group.enable": "true"})
        assert set(admin.create_topics([NewTopic(self.topic, 2), queue]).values()) == {None}

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["dlq", *words, "--bootstrap-server", self.cluster.bootstrap])

    def done(self, *words: str) -> str:
        result = self(*words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def start(self, *words: str) -> subprocess.Popen[str]:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # an ignored SIGINT would be inherited
        try:
            command = [sys.executable, "-c", "import sharegroups.cli; sharegroups.cli.run()", "dlq", *words]
            return subprocess.Popen(
                [*command, "--bootstrap-server", self.cluster.bootstrap],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def produce(self, topic: str, records: Sequence[Any], partition: int = 0) -> None:
        with Producer(bootstrap_servers=self.cluster.bootstrap) as producer:
            for key, value, headers, timestamp in records:
                producer.produce(topic, value, key, partition, headers=headers, timestamp=timestamp)

    def read(self, topic: str, partition: int = 0, since: int = 0) -> list[ReadRecord]:
        found: list[ReadRecord] = []
        place = TopicPartition(topic, partition)
        while (page := self.admin.read_records(place, since)).records:
            found += page.records
            since = page.next_offset
        return found


@pytest.fixture
def tool(cluster: Cluster) -> Iterator[Tool]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield Tool(cluster, admin)


@pytest.mark.rule("CT-122", "CT-123", "CT-124", "CT-125")
def test_a_letter_goes_back_to_its_topic_as_the_record_that_failed(tool: Tool) -> None:
    tool.produce(tool.topic, [(b"k", b"job %d" % number, (("trace", b"7"),), 5_000) for number in range(3)])
    tool.produce(tool.dlq, [bare(1, tool.topic), copy_of(2, b"k", b"job 2", at_ms=5_000, topic=tool.topic)])
    began_ms = int(time.time() * 1_000) - 60_000
    lines = tool.done("list", "--topic", tool.dlq, "--output", "json", "--since", "1h").splitlines()
    listed = [json.loads(line) for line in lines]
    assert [(one["origin_offset"], one["headers_only"]) for one in listed] == [(1, True), (2, False)]
    assert all(one["stored_ms"] > began_ms for one in listed), "not the timestamp of the record"
    shown = json.loads(tool.done("show", "--topic", f"{tool.dlq}:0", "--offset", "0", "--output", "json"))
    assert (shown["origin_record"]["value"], shown["origin_record"]["headers"]) == ("job 1", [["trace", "7"]])

    for _ in range(2):
        tool.done("redrive", "--topic", tool.dlq, "--all")
    fresh = tool.read(tool.topic, since=3)
    assert [(one.key, one.value, one.timestamp_ms) for one in fresh] == [
        (b"k", b"job 1", 5_000),
        (b"k", b"job 2", 5_000),
    ]
    assert [dict(one.headers).get("trace") for one in fresh] == [b"7", None]


def broken_off(process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    """Signal a redrive after it has sent a page; returns its exit status and the rest of its output."""
    assert process.stdout is not None
    while json.loads(process.stdout.readline())["redriven"] == 0:
        pass
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


@pytest.mark.rule("CT-80", "CT-126", "CT-127")
def test_every_letter_is_redriven_though_runs_are_interrupted_and_killed(tool: Tool) -> None:
    for partition in (0, 1):
        letters = [
            copy_of(number, value=b"v" * 1_000 + b"%d" % number, topic=tool.topic, partition=partition)
            for number in range(LETTERS)
        ]
        tool.produce(tool.dlq, [*letters, *letters[:50]], partition)
    words = ("redrive", "--topic", tool.dlq, "--all", "--output", "json")
    by_int, out = broken_off(tool.start(*words), signal.SIGINT)
    sums = json.loads(out.splitlines()[-1])
    assert (by_int, sums["unconfirmed"]) == (130, 0)
    assert 0 < sums["redriven"] < 2 * LETTERS
    assert broken_off(tool.start(*words), signal.SIGKILL)[0] == -signal.SIGKILL
    assert broken_off(tool.start(*words), signal.SIGTERM)[0] == 143

    last = json.loads(tool.done(*words, "--purge").splitlines()[-1])
    assert last["redriven"] + last["redriven_before"] + last["duplicates"] == 2 * (LETTERS + 50)
    assert last["redriven"] < 2 * LETTERS - sums["redriven"]
    for partition in (0, 1):
        found = Counter(dict(one.headers)["__dlq.redrive.origin.offset"] for one in tool.read(tool.topic, partition))
        assert found == {b"%d" % number: 1 for number in range(LETTERS)}
    assert tool.done("list", "--topic", tool.dlq, "--output", "json") == ""


@pytest.mark.rule("CT-127", "CT-128")
def test_what_cannot_be_redriven_stays_until_it_is_purged(tool: Tool) -> None:
    tool.produce(tool.topic, [(None, b"job", (), 5)] * 2)
    tool.produce(tool.dlq, [bare(0, tool.topic), bare(1, tool.topic), copy_of(7, topic=tool.topic)])
    tool.admin.delete_records({TopicPartition(tool.topic, 0): 1})
    result = tool("redrive", "--topic", tool.dlq, "--all", "--purge")
    assert result.exit_code == 1
    assert f"{tool.dlq}-0 offset 0: not redriven: {tool.topic}-0 does not have offset 0 any more" in result.stderr
    assert [one.value for one in tool.read(tool.topic, since=2)] == [b"job", b"v"]
    assert len(tool.read(tool.dlq)) == 3
    reported = json.loads(
        tool.done("purge", "--topic", f"{tool.dlq}:0", "--before-offset", "1", "--yes", "--output", "json")
    )
    assert (reported["letters"], reported["partitions"][0]["deleted_before"]) == (1, 1)
    assert len(tool.read(tool.dlq, since=1)) == 2
    tool.done("redrive", "--topic", tool.dlq, "--all", "--purge")
    assert tool.admin.list_offsets({TopicPartition(tool.dlq, 0): -2}) == {TopicPartition(tool.dlq, 0): 3}
    assert len(tool.read(tool.topic, since=2)) == 2, "nothing was sent twice"


@pytest.mark.rule("CT-90")
def test_a_cluster_that_does_not_answer_is_reported_soon() -> None:
    with Cluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        tool = Tool(cluster, admin)
        os.kill(cluster.node.pid, signal.SIGSTOP)
        try:
            started = [
                tool.start("list", "--topic", tool.dlq),
                tool.start("show", "--topic", f"{tool.dlq}:0", "--offset", "0"),
                tool.start("redrive", "--group", "g", "--all"),
                tool.start("purge", "--topic", tool.dlq, "--all", "--yes"),
            ]
            reported = [process.communicate(timeout=30) for process in started]
        finally:
            os.kill(cluster.node.pid, signal.SIGCONT)
    for process, (out, errors) in zip(started, reported, strict=True):
        assert (process.returncode, out) == (1, "")
        assert "was not answered within 4 s" in errors
