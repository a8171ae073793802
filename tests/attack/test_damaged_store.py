"""Bits in a store's append-only file are flipped between a stop and a start: stored data differs from what was written.

The store detects none of this (CM-100). No damaged data is served as valid, each place is reported, and everything that
does not depend on it continues (CM-101…CM-103).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sharegroups import Admin, NewTopic, Producer, ShareConsumer
from tests.attack.append_only_file import AppendOnlyFile, Word
from tests.support.node import QUICK, StartedProcess, up_words
from tests.support.ports import free_port

pytestmark = pytest.mark.attack

#: Far longer than any step takes on a quiet machine.
PATIENCE_S = 60


class Node:
    """`sharegroups up` on a fixed directory and port, so that clients can connect to it even before it is ready."""

    def __init__(self, settings: Mapping[str, str] = QUICK) -> None:
        self._settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="sg-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.process: StartedProcess | None = None

    def start(self, *, ready: bool = True) -> None:
        self.process = StartedProcess(up_words(self.data, self._settings, "--port", str(self.port)), self.folder)
        if ready:
            self.process.first_line()

    def stop(self) -> str:
        """Stop it cleanly; return its standard error."""
        assert self.process is not None
        process, self.process = self.process, None
        process.stop()
        return process.errors

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_lines(self) -> list[dict[str, Any]]:
        assert self.process is not None
        lines = self.process.errors.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def damage_logged(self) -> list[tuple[str, str]]:
        found = [line for line in self.log_lines() if line["event"] == "stored_entry_damaged"]
        return [(line["stream"], line["entry"]) for line in found]

    def state(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "share_node", "state", words[0], "--data", str(self.data), *words[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


def produce(node: Node, topic: str, values: list[str], partition: int = 0) -> None:
    """Produce one batch for each value."""
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for value in values:
            producer.produce(topic, value, partition=partition)
            assert producer.flush(PATIENCE_S) == 0


def consume(node: Node, topic: str, group: str, last: str) -> list[str]:
    """Return the values that a group receives, up to `last`; all are accepted."""
    values: list[str] = []
    until = time.monotonic() + PATIENCE_S
    with ShareConsumer(bootstrap_servers=node.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        while last not in values and time.monotonic() < until:
            values += [message.value().decode() for message in consumer.poll(timeout=1)]
        consumer.commit_sync()
    return values


def until_true(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.1)


def create(node: Node, *topics: str) -> None:
    with Admin({"bootstrap.servers": node.bootstrap}) as admin:
        assert admin.create_topics([NewTopic(topic, 1) for topic in topics]) == dict.fromkeys(topics)


@pytest.mark.rule("CM-101", "CM-102", "CM-103")
def test_a_damaged_batch_is_named_left_out_and_moved_over(node: Node) -> None:
    node.start()
    create(node, "jobs", "others")
    produce(node, "jobs", ["one", "two", "three"])
    produce(node, "others", ["a", "b"])
    node.stop()
    file = AppendOnlyFile(node.data)
    (hit,) = [entry for entry in file.entries(b"{tp:") if b"two" in entry.get(b"b", (b"",))[0]]
    file.flip(hit[b"b"].at + hit[b"b"].data.index(b"two"), bit=1)
    node.start()
    assert consume(node, "jobs", "g", "three") == ["one", "three"]
    assert consume(node, "others", "h", "b") == ["a", "b"]
    produce(node, "jobs", ["four"])
    assert consume(node, "jobs", "g", "four") == ["four"]
    stream, entry = hit[b"key"].data.decode(), hit[b"id"].data.decode()
    assert node.damage_logged() == [(stream, entry)]
    (lost,) = [line for line in node.log_lines() if line["event"] == "records_unreadable"]
    assert (lost["stream"], lost["first_offset"], lost["last_offset"]) == (stream, 1, 1)
    checked = node.state("check")
    assert checked.returncode == 1
    found = [json.loads(line) for line in checked.stdout.splitlines()]
    assert [(one["stream"], one.get("id")) for one in found] == [(stream, entry), (stream, None)]
    assert found[1]["unreadable_offsets"] == [1, 1]


#: One kind of damage per group: log and type of the record, and whether the last such record's key or value is damaged.
DAMAGES = [
    ("sgs", "S", "key"),
    ("sgs", "S", "value"),
    ("sgs", "U", "key"),
    ("sgs", "U", "value"),
    *(("gc", kind, "value") for kind in ("10", "11", "12", "13", "14", "15")),
    ("gc", "11", "key"),
]


class Damage:
    """A flipped bit in a record about one group."""

    def __init__(self, file: AppendOnlyFile, log: str, kind: str, where: str) -> None:
        self.log = log
        self.group = named(log, kind, where)
        of_log = file.entries(b"{" + log.encode())
        of_group = [entry for entry in of_log if self.group.encode() in entry[b"r"].data]
        hit = [entry for entry in of_group if entry[b"t"].data == kind.encode()][-1]
        record = hit[b"r"]
        file.flip(record.at + (record.data.index(self.group.encode()) if where == "key" else len(record.data) - 1))
        self.stream, self.entry = hit[b"key"].data.decode(), hit[b"id"].data.decode()
        self.shard = self.stream.partition(":")[2].partition("}")[0]


def named(log: str, kind: str, where: str) -> str:
    """Return the name of the damaged group."""
    return f"hurt-{log}-{kind}-{where}"


@pytest.mark.rule("CM-101", "CM-106", "CM-107", "CM-109", "SC-113", "SC-114", "GC-158")
def test_a_damaged_entry_holds_up_its_share_partition_or_group_alone(node: Node) -> None:
    node.start()
    groups = [named(*each) for each in DAMAGES]
    others = [f"whole-{number}" for number in range(4)]
    create(node, "jobs")
    produce(node, "jobs", ["0", "1", "2"])
    assert consumed(node, [*groups, *others], "2") == {group: ["0", "1", "2"] for group in (*groups, *others)}
    node.stop()
    file = AppendOnlyFile(node.data)
    damages = [Damage(file, *each) for each in DAMAGES]
    node.start()
    until_true(lambda: len(quarantined(node)) >= len(damages), "every damaged entry is in quarantine")
    produce(node, "jobs", ["3"])
    # Nothing that was accepted returns, and nothing is lost.
    assert consumed(node, others, "3") == {group: ["3"] for group in others}
    printed = sorted((line["stream"], line["entry"], line["key"].partition(":")[0]) for line in quarantined(node))
    assert printed == sorted((each.stream, each.entry, each.group) for each in damages)
    assert not polled(node, groups, 4)
    assert checked(node) == {(each.stream, each.entry) for each in damages}
    shown = node.state("repair", "--choose", "skip", "--dry-run").stderr
    assert [each.group for each in damages if f"Would skip entry {each.entry} of {each.stream}" not in shown] == []
    assert not polled(node, groups, 1)
    one = damages[0]  # only its shard at first
    repair(node, "--kind", one.log, "--shard", one.shard)
    mended = [each for each in damages if each.stream == one.stream]
    left = [each for each in damages if each.stream != one.stream]
    again = consumed(node, [each.group for each in mended], "3")  # without a restart
    assert not polled(node, [each.group for each in left], 1)
    assert checked(node) == {(each.stream, each.entry) for each in left}
    for log in ("sgs", "gc"):
        repair(node, "--kind", log)
    again |= consumed(node, [each.group for each in left], "3")
    assert sorted(again) == sorted(groups)
    assert all("3" in values for values in again.values()), again
    # A lost entry of the group log brings no accepted record back.
    assert [each.group for each in damages if each.log == "gc" and again[each.group] != ["3"]] == []
    assert checked(node) == set()


def repair(node: Node, *words: str) -> None:
    done = node.state("repair", "--choose", "skip", "--execute", *words)
    assert done.returncode == 0, done.stderr


def checked(node: Node) -> set[tuple[str, str]]:
    """Return stream and id of each damaged entry that needs a decision."""
    done = node.state("check")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    waiting = {(one["stream"], one["id"]) for one in found if not one["skipped"]}
    assert done.returncode == bool(waiting), done.stderr
    return waiting


def consumed(node: Node, groups: Sequence[str], last: str) -> dict[str, list[str]]:
    """Return the values that each of these groups receives, up to `last`; all groups consume at the same time."""
    with ThreadPoolExecutor(len(groups)) as pool:
        return dict(zip(groups, pool.map(lambda group: consume(node, "jobs", group, last), groups), strict=True))


def polled(node: Node, groups: Sequence[str], seconds: int) -> list[str]:
    """Return all values that these groups receive within a time."""

    def of_group(group: str) -> list[str]:
        values: list[str] = []
        with ShareConsumer(bootstrap_servers=node.bootstrap, group_id=group) as consumer:
            consumer.subscribe(["jobs"])
            for _ in range(seconds):
                values += [message.value().decode() for message in consumer.poll(timeout=1)]
        return values

    with ThreadPoolExecutor(len(groups)) as pool:
        return [value for values in pool.map(of_group, groups) for value in values]


def quarantined(node: Node) -> list[dict[str, Any]]:
    return [line for line in node.log_lines() if line["event"] == "damaged_entry_quarantined"]


@pytest.mark.rule("CM-101", "CM-102", "CM-103")
@pytest.mark.parametrize("kind", ["gc"])
@pytest.mark.parametrize("how", ["moved"])
def test_a_shard_with_a_damaged_entry_is_left_out_until_an_operator_says_go_on(node: Node, kind: str, how: str) -> None:
    """`moved`: the flipped bit is in the key, so the entry is in another stream and missing from its own."""
    node.start()
    groups = [f"group-{number}" for number in range(6)]  # over the four shards of each kind
    create(node, "jobs")
    produce(node, "jobs", [str(number) for number in range(3)])
    for group in groups:
        assert consume(node, "jobs", group, "2") == ["0", "1", "2"]
    node.stop()
    file = AppendOnlyFile(node.data)
    entries = [entry for entry in file.entries(b"{" + kind.encode()) if entry[b"t"].data not in b"CN"]
    hit = next(entry for entry in entries if groups[0].encode() in entry[b"r"].data)
    key = hit[b"key"]
    stream, entry = key.data.decode(), hit[b"id"].data.decode()
    shard = stream.partition(":")[2].partition("}")[0]
    homes = {group: group_shard(entries, group) for group in groups}
    if how == "changed":
        file.flip(hit[b"r"].at + hit[b"r"].data.index(groups[0].encode()))
    else:
        file.flip(key.at + key.data.index(b"}") - 1)  # swaps 0 and 1, or 2 and 3
    # The other stream refuses a moved entry if it already has a higher id; then only the hole in the original stream
    # remains.
    possible = {shard} if how == "changed" else {shard, str(int(shard) ^ 1)}
    node.start(ready=False)
    until_true(lambda: bool(shards_logged(node)), "a shard is named")
    checked = node.state("check")
    assert checked.returncode == 1
    found = [json.loads(line) for line in checked.stdout.splitlines()]
    assert {one["stream"].partition(":")[0] for one in found} == {"{" + kind}
    touched = {one["stream"].partition(":")[2].partition("}")[0] for one in found}
    assert touched <= possible
    until_true(lambda: shards_logged(node) == touched, f"the shards {touched} are named, and no other")
    healthy = [group for group in groups if homes[group] not in touched]
    produce(node, "jobs", ["3"])
    for group in healthy[:2]:
        assert consume(node, "jobs", group, "3") == ["3"]
    for one in found:
        number = one["stream"].partition(":")[2].partition("}")[0]
        done = node.state("skip", "--kind", kind, "--shard", number, "--entry", one["id"])
        assert done.returncode == 0, done.stderr
    if how == "changed":
        assert [(one["stream"], one["id"]) for one in found] == [(stream, entry)]
    assert node.state("check").returncode == 0  # settled damage is no longer reported
    assert "3" in consume(node, "jobs", groups[0], "3")


def shards_logged(node: Node) -> set[str]:
    """Return the numbers of the shards whose load failed because of a damaged entry."""
    found = set()
    for line in node.log_lines():
        if line["event"] == "shard_dropped" and "is not served before that is settled" in line["cause"]:
            found.add(line["shard"].partition(":")[2].rstrip("}"))
    return found


def group_shard(entries: list[dict[bytes, Word]], group: str) -> str:
    """Return the shard of a group, or of its share of the topic's only partition."""
    (stream,) = {entry[b"key"].data.decode() for entry in entries if group.encode() in entry[b"r"].data}
    return stream.partition(":")[2].partition("}")[0]


@pytest.mark.rule("CM-101", "CM-102", "CM-103")
def test_a_damaged_metadata_entry_is_reported_in_one_line_and_may_be_skipped(node: Node) -> None:
    node.start()
    create(node, "jobs")
    create(node, "others")  # a separate metadata change
    produce(node, "jobs", ["one"])
    node.stop()
    file = AppendOnlyFile(node.data)
    hit = next(entry for entry in file.entries(b"{meta}:log") if b"others" in entry[b"r"].data)
    file.flip(hit[b"r"].at + hit[b"r"].data.index(b"others"))
    entry = hit[b"id"].data.decode()
    node.start(ready=False)
    assert node.process is not None
    assert node.process.ended() == 1
    (printed,) = [line for line in node.process.errors.splitlines() if line.startswith("Error: ")]
    assert f"entry {entry} of {{meta}}:log" in printed
    assert "Traceback" not in node.process.errors
    assert node.state("check").returncode == 1  # the store is not running: the command starts it for itself
    assert node.state("skip", "--kind", "meta", "--entry", entry).returncode == 0
    node.start()
    assert consume(node, "jobs", "g", "one") == ["one"]
    create(node, "others")  # the change is lost, as was reported


def test_a_file_that_the_store_cannot_read_is_reported_with_what_to_do(node: Node) -> None:
    node.start()
    create(node, "jobs")
    produce(node, "jobs", ["one", "two"])
    node.stop()
    file = AppendOnlyFile(node.data)
    before = file.path.read_bytes()
    hit = next(entry for entry in file.entries(b"{tp:") if b"one" in entry.get(b"b", (b"",))[0])
    file.flip(hit[b"key"].at - 3, bit=4)  # a digit of its length
    assert file.path.read_bytes() != before
    node.start(ready=False)
    assert node.process is not None
    assert node.process.ended() == 1
    (printed,) = [line for line in node.process.errors.splitlines() if line.startswith("Error: ")]
    assert "Bad file format" in printed
    assert str(node.data / "store") in printed
    assert "valkey-check-aof" in printed
