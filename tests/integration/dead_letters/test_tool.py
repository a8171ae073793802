"""`sharegroups dlq` on dead letters that the services wrote: a failing job goes to the queue, back, and to the queue
again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sharegroups.cli.main import main
from tests.support.node import Cluster, unique

from .queues import ACCEPT, COPY_CONFIG, ENABLE_CONFIG, REJECT, RELEASE, Queues, said

REJECTED = "Offset rejected by client."


class Tool:
    """The command line, for the dead letters of one group."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def __call__(self, *words: str) -> str:
        where = ("--group", self._queues.group, "--bootstrap-server", self._queues.cluster.bootstrap)
        result = CliRunner().invoke(main, ["dlq", *words, *where])
        assert result.exit_code == 0, result.output
        return result.stdout

    def groups(self, *words: str) -> Result:
        """Run a command about the group itself."""
        where = ("--group", self._queues.group, "--bootstrap-server", self._queues.cluster.bootstrap)
        result = CliRunner().invoke(main, ["groups", *words, *where])
        assert result.exit_code == 0, result.output
        return result

    def letters(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("list", "--output", "json", *words).splitlines()]


@pytest.mark.rule("CT-120", "CT-121", "CT-123", "CT-125", "CT-126", "CT-127")
@pytest.mark.parametrize("copies", [True, False], ids=["copies", "headers only"])
def test_a_job_that_fails_goes_to_the_queue_and_back_as_often_as_it_is_sent(queues: Queues, copies: bool) -> None:
    queues.configure(**{COPY_CONFIG: str(copies).lower()})
    tool = Tool(queues)
    queues.produce(2)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 2)
        queues.until_letters(2)
        first = tool.letters()
        assert [(one["origin_offset"], one["cause"], one["delivery_count"]) for one in first] == [
            (0, REJECTED, 1),
            (1, REJECTED, 1),
        ]
        assert [(one["headers_only"], one["garbled"], one["duplicate"]) for one in first] == [
            (not copies, None, False)
        ] * 2
        assert [one["redrives"] for one in first] == ([0, 0] if copies else [None, None])

        for _ in range(2):
            tool("redrive", "--all")
        again = queues.settle(consumer, REJECT, 2)
        assert [(one.key(), one.value(), one.offset(), one.timestamp()[1]) for one in again] == [
            (b"k0", b"v0", 2, 1_600_000_000_000),
            (b"k1", b"v1", 3, 1_600_000_000_001),
        ]
        said = dict(again[1].headers())
        assert (said["trace"], said["__dlq.redrive.origin.offset"], said["__dlq.redrive.count"]) == (b"1", b"1", b"1")
        assert not any(name.startswith("__dlq.errors.") for name in said)

        queues.until_letters(4)
        assert [one["redrives"] for one in tool.letters()][2:] == ([1, 1] if copies else [None, None])
        tool("redrive", "--all", "--purge")
        last = queues.settle(consumer, ACCEPT, 2)
        assert [dict(one.headers())["__dlq.redrive.count"] for one in last] == [b"2", b"2"]
    assert tool.letters() == []


@pytest.mark.rule("CT-122", "CT-123")
def test_letters_are_distinguished_by_their_cause(queues: Queues) -> None:
    queues.configure(**{"share.delivery.count.limit": "2"})
    queues.produce(3)
    with queues.consumer() as consumer:
        queues.work(
            consumer,
            lambda message: REJECT if message.offset() == 1 else RELEASE,
            lambda: len(queues.letters()) >= 3,
        )
    tool = Tool(queues)
    assert [one["origin_offset"] for one in tool.letters("--cause", "rejected")] == [1]
    assert sorted(one["origin_offset"] for one in tool.letters("--cause", "threshold")) == [0, 2]
    (limit, rejected) = json.loads(tool("list", "--summary", "--output", "json"))
    assert (limit["letters"], rejected["letters"], rejected["cause"]) == (2, 1, REJECTED)


@pytest.mark.rule("PL-919", "CT-24a")
def test_letters_that_wait_go_with_the_offsets_of_their_group_and_the_tools_say_so(node: Cluster) -> None:
    """One topic's offsets are reset, another's are deleted, a third topic is deleted, and finally the group is
    deleted."""
    queues = Queues(node, dlq=unique("dlq.later"))
    others = [Queues(node, dlq=queues.dlq) for _ in range(3)]
    tool = Tool(queues)
    try:
        for other in others:
            other.group = queues.group
        for each in (queues, *others):
            each.produce(2)
            with each.consumer() as consumer:
                each.settle(consumer, REJECT, 2)
            assert each.offsets(backlog=True).dead_letters == 2
        reset = tool.groups("reset-offsets", "--topic", queues.topic, "--to-offset", "1", "--execute")
        assert f"2 dead letters wait to be written, of {queues.topic}:0." in reset.stderr
        forgotten = tool.groups("delete-offsets", "--topic", others[0].topic)
        assert f"2 dead letters wait to be written, of {others[0].topic}:0." in forgotten.stderr
        assert queues.admin.delete_topics([others[1].topic]) == {others[1].topic: None}
        queues.create(queues.dlq, 1, **{ENABLE_CONFIG: "true"})
        with queues.consumer() as consumer:
            again = queues.settle(consumer, ACCEPT, 1)
        assert [(one.offset(), one.delivery_count()) for one in again] == [(1, 1)]
        assert {said(letter)["topic"] for letter in queues.until_letters(2)} == {others[2].topic}
        queues.until_start(2)
    finally:
        for each in (queues, *others):
            each.close()
