"""Kafka's command-line tools, unmodified, at a real node: what they print, without times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.integration.kafka_listener.share_members import address_of
from tests.support.node import Cluster, unique
from tools.kafka_transcripts.running import Done, KafkaTools


class Shell:
    """Runs tools at the node."""

    def __init__(self, tools: KafkaTools, address: str) -> None:
        self.tools = tools
        self.address = address

    def run(self, tool: str, words: str, given: str = "") -> Done:
        """Run a tool to its end."""
        return self.tools.run(tool, "--bootstrap-server", self.address, *words.split(), given=given)

    def lines(self, tool: str, words: str, given: str = "") -> list[str]:
        """Return what it wrote, without empty lines and with single blanks; it must end with status 0."""
        done = self.run(tool, words, given)
        assert done.status == 0, done
        return [" ".join(line.split()) for line in done.out.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def shell(tools: KafkaTools, node: Cluster) -> Shell:
    return Shell(tools, address_of(node))


@pytest.fixture(scope="module")
def topic(shell: Shell) -> str:
    """A topic with 20 records in one partition."""
    name = unique("jobs")
    assert shell.lines("topics", f"--create --topic {name} --partitions 1") == [f"Created topic {name}."]
    shell.lines("console-producer", f"--topic {name}", "".join(f"job {number}\n" for number in range(20)))
    return name


@pytest.fixture
def group(shell: Shell, topic: str) -> Iterator[str]:
    """A group that has accepted five of the topic's records, and has no members."""
    name = unique("workers")
    shown = " ".join(f"--formatter-property print.{what}=true" for what in ("offset", "delivery"))
    found = shell.lines(
        "console-share-consumer", f"--topic {topic} --group {name} --max-messages 5 --timeout-ms 60000 {shown}"
    )
    assert found == [f"Offset:{number} Delivery:1 job {number}" for number in range(5)]
    yield name
    shell.run("share-groups", f"--delete --group {name}")


@pytest.mark.rule("KL-57", "KL-58", "KL-62")
def test_topics_are_created_described_changed_and_deleted(shell: Shell) -> None:
    topic = unique("t")
    created = shell.lines("topics", f"--create --topic {topic} --partitions 2 --config retention.ms=3600000")
    assert created == [f"Created topic {topic}."]
    again = shell.run("topics", f"--create --topic {topic}")
    assert (again.status, f"topic '{topic}' exists already" in again.out) == (1, True)
    head, *partitions = shell.lines("topics", f"--describe --topic {topic}")
    assert f"Topic: {topic} TopicId: " in head
    assert "PartitionCount: 2 ReplicationFactor: 1 Configs: retention.ms=3600000" in head
    assert [re.sub(r" Elr:.*", "", line) for line in partitions] == [
        f"Topic: {topic} Partition: {number} Leader: 1 Replicas: 1 Isr: 1" for number in range(2)
    ]
    assert shell.lines("topics", f"--alter --topic {topic} --partitions 3") == []
    assert len(shell.lines("topics", f"--describe --topic {topic}")) == 4
    assert topic in shell.lines("topics", "--list")
    assert shell.lines("topics", f"--delete --topic {topic}") == []
    assert topic not in shell.lines("topics", "--list")


@pytest.mark.rule("KL-60", "KL-64")
def test_configs_of_topics_groups_and_users(shell: Shell, topic: str) -> None:
    for kind, name, config in (
        ("topics", topic, "retention.bytes=7200000"),
        ("groups", unique("g"), "share.auto.offset.reset=latest"),
        ("clients", unique("app"), "producer_byte_rate=100000.0"),
    ):
        at = f"--entity-type {kind} --entity-name {name}"
        assert len(shell.lines("configs", f"--alter {at} --add-config {config}")) == 1
        assert config in " ".join(shell.lines("configs", f"--describe {at}"))
        shell.lines("configs", f"--alter {at} --delete-config {config.partition('=')[0]}")
        assert config not in " ".join(shell.lines("configs", f"--describe {at}"))
    wrong = shell.run("configs", f"--alter --entity-type topics --entity-name {topic} --add-config retention.ms=abc")
    assert (wrong.status, "InvalidConfigurationException" in wrong.errors) == (1, True)


@pytest.mark.rule("KL-63")
def test_access_control_entries_are_added_listed_and_removed(shell: Shell) -> None:
    topic = unique("t")
    entry = "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)"
    at = f"--topic {topic}"
    added = shell.lines("acls", f"--add --allow-principal User:bob --operation Read {at}")
    assert entry in added
    assert entry in shell.lines("acls", f"--list {at}")
    shell.lines("acls", f"--remove --force {at}")
    assert shell.lines("acls", f"--list {at}") == []


@pytest.mark.rule("KL-72", "KL-73", "KL-74")
def test_a_group_is_listed_and_described_with_each_option(shell: Shell, topic: str, group: str) -> None:
    assert group in shell.lines("share-groups", "--list")
    assert f"{group} Empty" in shell.lines("share-groups", "--list --state")
    assert f"{group} Share share" in shell.lines("groups", "--list --share")
    at = f"--describe --group {group}"
    assert shell.lines("share-groups", at) == [
        "GROUP TOPIC PARTITION START-OFFSET LAG",
        f"{group} {topic} 0 5 15",
    ]
    assert shell.lines("share-groups", f"{at} --offsets --verbose")[0].split()[3] == "LEADER-EPOCH"
    head, row = shell.lines("share-groups", f"{at} --state --verbose")
    assert head == "GROUP COORDINATOR (ID) STATE GROUP-EPOCH ASSIGNMENT-EPOCH #MEMBERS"
    assert re.fullmatch(rf"{group} {shell.address} \(1\) Empty \d+ \d+ 0", row)
    empty = shell.run("share-groups", f"{at} --members --verbose")
    assert f"Share group '{group}' has no active members." in empty.errors
    unknown = shell.run("share-groups", "--describe --group nope")
    assert "GroupIdNotFoundException: Group nope not found." in unknown.out


@pytest.mark.rule("KL-71", "KL-72")
def test_a_group_with_a_member(shell: Shell, topic: str) -> None:
    group = unique("w")
    consumer = f"--topic {topic} --group {group} --command-property client.id=one"
    running = shell.tools.start("console-share-consumer", "--bootstrap-server", shell.address, *consumer.split())
    try:
        assert running.line() == "job 0\n"
        assert f"{group} Stable" in shell.lines("share-groups", "--list --state Stable")
        head, row = shell.lines("share-groups", f"--describe --group {group} --members --verbose")
        assert head == "GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS MEMBER-EPOCH ASSIGNMENT"
        assert re.fullmatch(rf"{group} \S{{22}} /127.0.0.1 one 1 \d+ {topic}:0", row)
        _, row = shell.lines("share-groups", f"--describe --group {group} --state")
        assert row == f"{group} {shell.address} (1) Stable 1"
        reset = shell.run("share-groups", f"--reset-offsets --group {group} --topic {topic} --to-latest --execute")
        assert (reset.status, f"Share group '{group}' is not empty." in reset.errors) == (1, True)
        refused = shell.lines("share-groups", f"--delete-offsets --group {group} --topic {topic}")
        assert any(line.startswith(f"{topic} Error: group {group} has 1 members") for line in refused)
        refused = shell.lines("share-groups", f"--delete --group {group}")
        assert any(f"Group '{group}' could not be deleted" in line for line in refused)
        assert any("GroupNotEmptyException" in line for line in refused)
    finally:
        done = running.stop()
    assert (done.status, done.out.splitlines()[:19]) == (143, [f"job {number}" for number in range(1, 20)])


@pytest.mark.rule("KL-73", "KL-75")
def test_offsets_are_reset_and_deleted_and_the_group_is_deleted(shell: Shell, topic: str, group: str) -> None:
    reset = f"--reset-offsets --group {group} --topic {topic}"
    described = f"--describe --group {group}"
    table = ["GROUP TOPIC PARTITION NEW-OFFSET"]
    assert shell.lines("share-groups", f"{reset} --to-latest --dry-run") == [*table, f"{group} {topic} 0 20"]
    assert shell.lines("share-groups", described)[-1] == f"{group} {topic} 0 5 15"
    assert shell.lines("share-groups", f"{reset} --to-latest --execute") == [*table, f"{group} {topic} 0 20"]
    assert shell.lines("share-groups", described)[-1] == f"{group} {topic} 0 20 0"
    when = "--to-datetime 2020-01-01T00:00:00.000"
    assert shell.lines("share-groups", f"{reset} {when} --execute") == [*table, f"{group} {topic} 0 0"]
    assert shell.lines("share-groups", described)[-1] == f"{group} {topic} 0 0 20"
    head, *rows = shell.lines("share-groups", f"--delete-offsets --group {group} --topic {topic} --topic nope")
    assert (head, f"{topic} Successful" in rows, len(rows)) == ("TOPIC STATUS", True, 2)
    assert shell.lines("share-groups", described) == [f"Share group '{group}' has no offset information."]
    deleted = shell.lines("share-groups", f"--delete --group {group}")
    assert deleted == [f"Deletion of requested share groups ('{group}') was successful."]
    assert group not in shell.lines("share-groups", "--list")


def events(lines: list[str]) -> dict[str, int]:
    """Return the records of each kind of event that a verifiable client prints."""
    found: dict[str, int] = {}
    for event in map(json.loads, lines):
        found[event["name"]] = found.get(event["name"], 0) + event.get("count", 1)
    return found


def test_the_verifiable_clients(shell: Shell) -> None:
    topic, group = unique("t"), unique("g")
    shell.lines("topics", f"--create --topic {topic} --partitions 2")
    sent = events(shell.lines("verifiable-producer", f"--topic {topic} --max-messages 50"))
    assert (sent["producer_send_success"], "producer_send_error" in sent) == (50, False)
    words = f"--topic {topic} --group-id {group} --max-messages 50 --offset-reset-strategy earliest"
    lines = shell.lines("verifiable-share-consumer", f"{words} --acknowledgement-mode sync")
    found = events(lines)
    assert (found["records_consumed"], found["offsets_acknowledged"], found["shutdown_complete"]) == (50, 50, 1)
    assert all(json.loads(line).get("success", True) for line in lines)


def test_the_perf_tools(shell: Shell) -> None:
    topic, group = unique("t"), unique("g")
    shell.lines("topics", f"--create --topic {topic} --partitions 2")
    sent = shell.lines("producer-perf-test", f"--topic {topic} --num-records 5000 --record-size 100 --throughput -1")
    assert sent[-1].startswith("5000 records sent, ")
    words = f"--topic {topic} --group {group} --num-records 5000 --timeout 60000"
    head, figures = shell.lines("share-consumer-perf-test", words)
    assert (head.split(", ")[5], figures.split(", ")[5]) == ("data.consumed.in.nMsg", "5000")
