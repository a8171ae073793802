"""`sharegroups dlq purge`: shows what will be deleted, asks, deletes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner

from kip932.ids import RESOURCE_TOPIC
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import copy_of, store
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

from .conftest import DLQ


def starts(fake: FakeCluster) -> tuple[int, int]:
    return fake.log(DLQ, 0).first, fake.log(DLQ, 1).first


def purge(*words: str, topic: str = DLQ, status: int = 0, stdin: str | None = None) -> Any:
    result = sharegroups("dlq", "purge", "--topic", topic, *words, stdin=stdin)
    assert result.exit_code == status, result.output
    return result


@pytest.mark.rule("CT-120", "CT-128")
def test_the_transcript(letters: FakeCluster) -> None:
    check(
        "dlq-purge",
        [
            f"dlq purge --topic {DLQ} --all --dry-run",
            f"dlq purge --topic {DLQ}:1 --before-offset 1 --dry-run --output json",
            f"dlq purge --topic {DLQ}:0 --before-offset 2 --yes",
            f"dlq purge --topic {DLQ} --older-than 36500d --yes",
            f"dlq purge --topic {DLQ} --all --yes --output json",
            f"dlq purge --topic {DLQ} --all --yes",
            f"dlq purge --topic {DLQ}:0 --before-offset 4 --yes",
            "dlq purge --topic orders --all --yes",
            f"dlq purge --topic {DLQ} --all",
            f"dlq purge --topic {DLQ} --before-offset 3 --yes",
            f"dlq purge --topic {DLQ} --yes",
            f"dlq purge --topic {DLQ} --all --older-than 2h --yes",
            f"dlq purge --topic {DLQ} --older-than 2 --yes",
        ],
    )
    assert starts(letters) == (3, 3)


@pytest.mark.rule("CT-128")
def test_what_is_older_goes_up_to_the_first_that_is_not(queue: FakeCluster) -> None:
    now_ms = int(time.time() * 1_000)
    for partition, ages_s in ((0, (9_000, 8_000, 7_000, 9_000)), (1, (100,))):
        for number, age_s in enumerate(ages_s):
            store(queue, DLQ, copy_of(number, at_ms=5), partition=partition, at_ms=now_ms - age_s * 1_000)
    purge("--older-than", "2h", "--yes")
    assert starts(queue) == (2, 0), "the last one is old, but a younger one lies before it"
    purge("--older-than", "60m", "--yes")
    assert starts(queue) == (4, 0)


@pytest.mark.rule("CT-128")
def test_what_cannot_be_decoded_goes_unless_its_age_matters(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    queue.log(DLQ).append(b"\xff", 2)
    store(queue, DLQ, copy_of(1))
    purge("--older-than", "1h", "--yes")
    assert starts(queue) == (1, 0)
    purge("--all", "--yes")
    assert starts(queue) == (4, 0)


@pytest.mark.rule("CT-128")
def test_only_what_there_was_in_the_beginning_is_deleted(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    log = queue.log(DLQ)
    delete = log.delete_before

    def late(offset: int) -> tuple[int, int]:
        store(queue, DLQ, copy_of(1))
        return delete(offset)

    log.delete_before = late  # type: ignore[method-assign]
    purge("--all", "--yes")
    assert (starts(queue), log.end) == ((1, 0), 2)


@pytest.mark.rule("CT-128")
@pytest.mark.parametrize(("answer", "status", "begins"), [("y\n", 0, 2), ("n\n", 1, 0), ("", 1, 0)])
def test_it_asks(queue: FakeCluster, monkeypatch: pytest.MonkeyPatch, answer: str, status: int, begins: int) -> None:
    monkeypatch.setattr("sharegroups.cli.dlq.purge.can_ask", lambda: True)
    store(queue, DLQ, copy_of(0), copy_of(1))
    said = purge("--all", status=status, stdin=answer)
    assert "To be deleted: 2 dead letters and 0 other records." in said.stdout
    assert "Delete them?" in said.stderr
    assert starts(queue) == (begins, 0)


@pytest.mark.rule("CT-128")
def test_a_topic_that_was_made_again_while_the_user_thought_is_left_alone(
    queue: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(queue, DLQ, copy_of(0))

    def thinking(*_words: object, **_more: object) -> bool:
        queue.topics[DLQ] = (b"made again xxxxx", 0)
        queue.grow_topic(DLQ, 2)
        store(queue, DLQ, copy_of(1))
        return True

    monkeypatch.setattr("sharegroups.cli.dlq.purge.can_ask", lambda: True)
    monkeypatch.setattr("sharegroups.cli.dlq.purge.click.confirm", thinking)
    said = purge("--all", status=1)
    assert "dlq.orders was created again meanwhile; nothing was deleted from the new topic" in said.stderr
    assert starts(queue) == (0, 0)


@pytest.mark.rule("CT-120")
def test_a_topic_that_is_no_queue_is_refused_unless_it_is_forced(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    del queue.configs[RESOURCE_TOPIC, DLQ]
    for words in (["--yes"], ["--dry-run"]):
        assert "is not a dead-letter queue" in purge("--all", *words, status=1).stderr
    assert starts(queue) == (0, 0)
    purge("--all", "--yes", "--force")
    assert starts(queue) == (1, 0)


@pytest.mark.rule("CT-128")
def test_nothing_is_deleted_when_a_partition_cannot_be_read(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    store(queue, DLQ, copy_of(0), partition=1)
    queue.errors["fetch"].append(1)
    said = purge("--all", "--yes", status=1)
    assert "Not every partition of dlq.orders can be read. Nothing was deleted" in said.stderr
    queue.leaders[queue.partition(DLQ, 1)] = (-1, 2)
    purge("--all", "--yes", status=1)
    assert starts(queue) == (0, 0)
    purge("--all", "--yes", topic=f"{DLQ}:0")
    assert starts(queue) == (1, 0)


@pytest.mark.rule("CT-128")
def test_a_deletion_that_fails_leaves_the_others_alone(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    store(queue, DLQ, copy_of(0), partition=1)
    queue.log(DLQ, 0).delete_before = lambda offset: (56, -1)  # type: ignore[method-assign]
    said = purge("--all", "--yes", status=1)
    assert "Error: dlq.orders-0 was not deleted before offset 1: KAFKA_STORAGE_ERROR" in said.stderr
    assert starts(queue) == (0, 1)
    document = json.loads(purge("--all", "--yes", "--output", "json", status=1).stdout)
    assert [(one["partition"], one["deleted_before"], one["error"]) for one in document["partitions"]] == [
        (0, None, "KAFKA_STORAGE_ERROR")
    ]


@pytest.mark.rule("CT-82", "CT-128")
def test_groups_and_causes_are_escaped_and_bounded(queue: FakeCluster) -> None:
    for base in range(0, 1_100, 100):
        store(queue, DLQ, *(copy_of(0, group=f"g{base + n}", cause=b"\x1b\xff") for n in range(100)))
    said = purge("--all", "--dry-run")
    assert "\x1b" not in said.stdout
    assert "\\x1b\\xff" in said.stdout
    assert said.stdout.splitlines()[1_002].startswith("(others)        100 ")
    document = json.loads(purge("--all", "--dry-run", "--output", "json").stdout)
    assert (len(document["by_cause"]), document["letters"]) == (1_001, 1_100)


@pytest.mark.parametrize("words", [["--before-offset", "-1"], ["--older-than", ""], []])
def test_what_cannot_be_is_refused_before_anything_is_asked(words: list[str]) -> None:
    result = CliRunner().invoke(main, ["dlq", "purge", "--topic", "t:0", "--yes", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: " in result.stderr
