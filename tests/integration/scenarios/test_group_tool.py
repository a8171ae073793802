"""`sharegroups groups` changes groups of a real cluster: it sets and deletes offsets, deletes groups, and names what it
refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sharegroups import Admin, NewTopic, Producer
from sharegroups.cli.main import main
from tests.integration.scenarios.clients import World, deliveries, first
from tests.support.node import Cluster, unique

WHOLE: dict[str, Any] = {"share_acquire_mode": "batch_optimized"}
#: Start offset and lag by topic and partition; None if the group has no offset yet.
Offsets = dict[tuple[str, int], tuple[int | None, int | None]]


class Tool:
    """The command line on a cluster, with Kafka's options, and a group's offsets as the admin client reports them."""

    def __init__(self, cluster: Cluster, admin: Admin) -> None:
        self._at = ("--bootstrap-server", cluster.bootstrap)
        self.cluster, self.admin = cluster, admin

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["groups", *self._at, *words])

    def done(self, *words: str) -> list[list[str]]:
        """Return the rows that a command prints; it must succeed and write nothing to standard error."""
        result = self(*words)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return [line.split() for line in result.stdout.splitlines() if line][1:]

    def offsets(self, group: str) -> Offsets:
        found = self.admin.list_share_group_offsets({group: None})[group]
        assert isinstance(found, dict)
        return {
            (topic, number): (entry.start_offset, entry.lag) if entry else (None, None)
            for (topic, number), entry in found.items()
        }

    def topic(self, records: int, partitions: int = 1) -> str:
        name = unique("topic")
        assert self.admin.create_topics([NewTopic(name, partitions)]) == {name: None}
        self.produce(name, records, partitions)
        return name

    def produce(self, name: str, records: int, partitions: int = 1) -> None:
        with Producer(bootstrap_servers=self.cluster.bootstrap) as producer:
            for number in range(partitions):
                for record in range(records):
                    producer.produce(name, str(record), partition=number)

    def group(self, *topics: str) -> str:
        """Create an empty group whose offsets are at the start of these topics."""
        name = unique("group")
        words = [word for topic in topics for word in ("--topic", topic)]
        self.done("--reset-offsets", "--group", name, "--to-earliest", *words, "--execute", "--create")
        return name


@pytest.fixture
def tool(cluster: Cluster) -> Iterator[Tool]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield Tool(cluster, admin)


@pytest.mark.scenario("S-102")
@pytest.mark.rule("CT-17", "CT-23h", "CT-27")
def test_offsets_are_forgotten_topic_by_topic(tool: Tool) -> None:
    t1, t2 = sorted((tool.topic(1), tool.topic(1)))
    group, nowhere = tool.group(t1, t2), unique("unknown")
    delete = ("--delete-offsets", "--group", group, "--topic", t1, "--topic")
    assert tool.done(*delete, t2) == [[t1, "Successful"], [t2, "Successful"]]
    assert tool.offsets(group) == {}

    group = tool.group(t1, t2)
    partly = tool("--delete-offsets", "--group", group, "--topic", t1, "--topic", nowhere)
    assert partly.exit_code == 1
    assert [line.split(maxsplit=1)[1] for line in partly.stdout.splitlines()[2:4]] == [
        "Successful",
        "Error: This is an unknown topic.",
    ]
    assert set(tool.offsets(group)) == {(t2, 0)}
    twice = tool("--delete-offsets", "--group", group, "--topic", t1)
    assert (twice.exit_code, twice.stderr.count("there is nothing to delete")) == (1, 1)

    unknown = tool("--delete-offsets", "--group", nowhere, "--topic", t1, "--topic", t2)
    assert unknown.exit_code == 1
    assert unknown.stderr.startswith(f"Error: Group {nowhere} not found.")
    assert unknown.stdout.count(f"Error: Group {nowhere} not found.") == 2
    two = tool("--delete-offsets", "--group", group, "--group", nowhere, "--topic", t1)
    assert "takes only one [group]" in two.stderr
    for words in (("--group", group), ("--topic", t1)):
        assert tool("--delete-offsets", *words).exit_code == 1


@pytest.mark.scenario("S-103")
@pytest.mark.rule("CT-16", "CT-26")
def test_empty_groups_are_deleted_and_the_others_are_reported(tool: Tool) -> None:
    world, topic = World(tool.cluster), tool.topic(1)
    world.ask("produce", world.topic_id, 1)
    a, b, no_one = tool.group(topic), tool.group(topic), unique("unknown")
    assert tool("--delete", "--group", a, "--group", b).exit_code == 0
    groups = {listing.group_id for listing in tool.admin.list_groups()}
    assert not groups & {a, b}
    a = tool.group(topic)
    with world.consumer() as consumer:
        assert len(first(consumer)) == 1
        result = tool("--delete", "--group", a, "--group", world.group, "--group", no_one)
    assert result.exit_code == 1
    assert result.stdout == f"These share groups were deleted successfully: '{a}'\n"
    assert (
        f"* Group '{world.group}' could not be deleted due to: Share group '{world.group}' is not EMPTY."
        in result.stderr
    )
    assert f"* Group '{no_one}' could not be deleted due to: Group {no_one} not found." in result.stderr
    groups = {listing.group_id for listing in tool.admin.list_groups()}
    assert (a in groups, world.group in groups) == (False, True)
    refused = tool("--delete")
    assert refused.exit_code == 1
    assert "[group] or [all-groups]" in refused.stderr


@pytest.mark.scenario("S-103")
@pytest.mark.rule("CT-16", "CT-26")
def test_all_groups_are_deleted() -> None:
    with Cluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        tool = Tool(cluster, admin)
        topic = tool.topic(1)
        names = sorted((tool.group(topic), tool.group(topic)))
        result = tool("--delete", "--all-groups")
        said = ", ".join(f"'{name}'" for name in names)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == f"Deletion of requested share groups ({said}) was successful.\n"
        assert admin.list_groups().all() == ()
        again = tool("--delete", "--all-groups")
        assert (again.exit_code, again.stdout) == (0, "")
        assert again.stderr == "There is no share group; nothing was deleted.\n"


@pytest.mark.scenario("S-104")
@pytest.mark.rule("CT-12", "CT-23g", "CT-24", "CT-25")
def test_offsets_are_set_to_the_ends_of_logs_and_to_a_time(tool: Tool) -> None:
    one, two = tool.topic(10, partitions=2), tool.topic(10)
    group = tool.group(two)
    reset = ("--reset-offsets", "--group", group, "--execute")
    rows = tool.done(*reset, "--to-earliest", "--topic", one, "--topic", two)
    assert rows == sorted([[group, one, "0", "0"], [group, one, "1", "0"], [group, two, "0", "0"]])
    assert tool.offsets(group) == {(one, 0): (0, 10), (one, 1): (0, 10), (two, 0): (0, 10)}
    tool.done(*reset, "--to-latest", "--topic", f"{one}:1", "--topic", two)
    assert tool.offsets(group) == {(one, 0): (0, 10), (one, 1): (10, 0), (two, 0): (10, 0)}

    time.sleep(0.01)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    time.sleep(0.01)
    tool.produce(two, 3)
    result = tool(*reset, "--to-datetime", now, "--all-topics")
    assert result.exit_code == 0
    assert result.stderr.count("has no record at or after that time. Falling back to latest known offset.") == 2
    assert tool.offsets(group) == {(one, 0): (10, 0), (one, 1): (10, 0), (two, 0): (10, 3)}

    none = tool.topic(4)
    assert tool.done(*reset, "--to-earliest", "--topic", none) == [[group, none, "0", "0"]]
    assert tool.offsets(group)[none, 0] == (0, 4)


@pytest.mark.scenario("S-105")
@pytest.mark.rule("CT-11", "CT-18", "CT-24")
def test_a_dry_run_and_refusals_set_nothing(tool: Tool) -> None:
    world = World(tool.cluster)
    world.ask("produce", world.topic_id, 10)
    with world.consumer(**WHOLE) as consumer:
        assert len(first(consumer)) == 10
        assert set(consumer.commit_sync().values()) == {None}
    at_10 = {(world.topic, 0): (10, 0)}
    reset = ("--reset-offsets", "--group", world.group)
    assert tool.offsets(world.group) == at_10
    assert tool.done("--describe", "--group", world.group)[0][:5] == [world.group, world.topic, "0", "10", "0"]
    assert tool.done(*reset, "--dry-run", "--to-earliest", "--topic", world.topic) == [
        [world.group, world.topic, "0", "0"]
    ]
    for words, said in (
        (("--execute", "--to-earliest"), "[all-topics], [from-file], [topic]"),
        (
            ("--execute", "--topic", world.topic),
            "[from-file], [to-current], [to-datetime], [to-earliest], [to-latest], [to-offset]",
        ),
    ):
        refused = tool(*reset, *words)
        assert refused.exit_code == 1
        assert said in refused.stderr
    with world.consumer(**WHOLE) as consumer:
        world.ask("produce", world.topic_id, 1)
        assert deliveries(first(consumer)) == [(10, 1)]
        for mode in ("--execute", "--dry-run"):
            live = tool(*reset, mode, "--to-earliest", "--topic", world.topic)
            assert (live.exit_code, live.stdout) == (1, "")
            assert f"Share group '{world.group}' is not empty. It has 1 member" in live.stderr
        assert set(consumer.commit_sync().values()) == {None}
    assert tool.offsets(world.group) == {(world.topic, 0): (11, 0)}


@pytest.mark.rule("CT-12", "CT-13", "CT-24", "CT-25")
def test_what_is_set_is_delivered_again_from_there_with_count_1(tool: Tool, tmp_path: Path) -> None:
    world = World(tool.cluster)
    world.ask("produce", world.topic_id, 10)
    with world.consumer(**WHOLE) as consumer:
        assert len(first(consumer)) == 10
        assert set(consumer.commit_sync().values()) == {None}
    reset, file = ("--reset-offsets", "--group", world.group), tmp_path / "plan.csv"
    exported = tool(*reset, "--to-offset", "7", "--topic", world.topic, "--dry-run", "--export").stdout
    assert exported == f"{world.topic},0,7\n"
    file.write_text(f"\ufeff{exported}", encoding="utf-8")
    assert tool.done(*reset, "--from-file", str(file), "--execute") == [[world.group, world.topic, "0", "7"]]
    assert tool.done(*reset, "--to-current", "--all-topics", "--dry-run") == [[world.group, world.topic, "0", "7"]]
    with world.consumer(**WHOLE) as consumer:
        assert deliveries(first(consumer)) == [(7, 1), (8, 1), (9, 1)]
        assert set(consumer.commit_sync().values()) == {None}


def started(cluster: Cluster, *words: str) -> subprocess.Popen[bytes]:
    """Start `sharegroups groups <words>` as a process, with pipes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # an ignored SIGINT would be inherited
    try:
        command = [sys.executable, "-c", "import sharegroups.cli; sharegroups.cli.run()", "groups", *words]
        return subprocess.Popen(
            [*command, "--bootstrap-server", cluster.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_change_is_made_though_its_table_is_not_read_and_what_failed_is_reported(tool: Tool) -> None:
    topic = tool.topic(3)
    group, nowhere = tool.group(topic), unique("unknown")
    process = started(tool.cluster, "delete-offsets", "--group", group, "--topic", topic, "--topic", nowhere)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert process.returncode == 141
    assert errors == f"Error: topic '{nowhere}': This is an unknown topic.\n"
    assert tool.offsets(group) == {}


@pytest.mark.rule("CT-80", "CT-90")
def test_a_cluster_that_does_not_answer_is_reported_soon_and_a_signal_ends_the_wait_at_once() -> None:
    with Cluster() as cluster:
        os.kill(cluster.node.pid, signal.SIGSTOP)
        try:
            by_itself = started(cluster, "delete", "--group", "g")
            others = [started(cluster, "list"), started(cluster, "describe", "--group", "g")]
            time.sleep(1.5)
            for process, number in zip(others, (signal.SIGINT, signal.SIGTERM), strict=True):
                process.send_signal(number)
            reported = [process.communicate(timeout=30) for process in others]
            assert reported == [(b"", b"")] * 2
            by_signal = [process.returncode for process in others]
            assert by_signal[0] in (130, -signal.SIGINT), "not 1, as when the first question has waited for its time"
            assert by_signal[1] in (143, -signal.SIGTERM)
            _, errors = by_itself.communicate(timeout=30)
        finally:
            os.kill(cluster.node.pid, signal.SIGCONT)
        assert by_itself.returncode == 1
        assert b"was not answered within 4 s" in errors
