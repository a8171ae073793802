"""`replay --data`: ingested rows give the same answers as the store gave, even after the store was trimmed (PM-39)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from group_coordinator.core import records as r
from kip932.ids import shard_index, topic_id_text
from kip932.state_batches import StateBatch
from shard_runtime.cluster.metadata import Change, TopicCreated, TopicDeleted
from shard_runtime.cluster.metadata_codec import encode_changes
from share_coordinator.core.records import ShareRecord, ShareTombstone
from share_metrics.archive.commits import visible
from share_metrics.commands import metrics
from share_metrics.ingest.job import Cluster, Exposition, Job, run
from share_metrics.ingest.writing import Source
from share_metrics.reader import Kind
from tests.support.pipeline_entries import KEY, TOPIC, snapshot, update

from .world import Log, World

SHARDS: Final = 2
SECOND: Final = KEY._replace(topic_id=bytes(15) + b"\x02")
FIRST_TEXT, SECOND_TEXT = topic_id_text(TOPIC), topic_id_text(SECOND.topic_id)
CREATED_MS, DELETED_MS, AGAIN_MS = 900_000, 5_000_000, 5_000_100


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def asked(topic: str, at: str, *places: str) -> dict[str, Any] | str:
    """Return the output of `replay`, or its message if there is no state."""
    words = ["replay", *places, "--group", "G1", "--topic", topic, "--partition", "0", "--at", at]
    result = CliRunner().invoke(metrics, words)
    if result.exit_code == 1:
        return result.output
    assert result.exit_code == 0, result.output
    reported: dict[str, Any] = json.loads(result.stdout)
    return reported


def bare(reported: dict[str, Any] | str) -> dict[str, Any] | None:
    """Return the output without its source; None if there was no state."""
    return (
        {name: value for name, value in reported.items() if name not in {"source", "read_up_to"}}
        if isinstance(reported, dict)
        else None
    )


class Kept:
    """A store whose topic was deleted and created again, the output of `replay` for every moment, and the rows ingested
    from the store, which was then trimmed, so that its metadata log no longer contains the first topic."""

    def __init__(self, world: World, data: Path) -> None:
        world.clear()
        world.make_cluster(state_shards=SHARDS)
        self.world, self.data = world, data
        changes: list[Change] = [
            TopicCreated("orders", TOPIC, 1, {}, CREATED_MS, ""),
            TopicDeleted(TOPIC, "orders", DELETED_MS),
            TopicCreated("orders", SECOND.topic_id, 1, {}, AGAIN_MS, ""),
        ]
        for version, change in enumerate(changes, start=1):
            reported = encode_changes([change], b"c" * 16, 0)
            world.redis.xadd("{meta}:log", {"t": "M", "r": reported}, id=f"1-{version}")
        Log(world, "{gc:0}:log").group(r.GroupMetadata("G1", 1, 0, 1))
        self.moments: list[str] = []
        self.log = Log(world, self.stream(KEY.text))
        self.write(Random(39), 1_000_000, KEY)
        self.log.wall_ms = DELETED_MS
        self.append(ShareTombstone(KEY))
        if self.stream(SECOND.text) != self.log.stream:
            self.log = Log(world, self.stream(SECOND.text))
        self.write(Random(40), AGAIN_MS, SECOND)
        self.before = {at: asked("orders", at, "--store", world.url) for at in self.moments}
        job = Job(Source(world.url, max_rows_per_trigger=10), data)
        run(job, Exposition(), Cluster("local[1]"), lambda words: None)
        for number in range(SHARDS):
            world.redis.xtrim(f"{{sgs:{number}}}:log", maxlen=2, approximate=False)
        world.redis.delete("{meta}:log")
        world.redis.xadd("{meta}:log", {"t": "M", "r": encode_changes(changes[2:], b"c" * 16, 0)}, id="2-1")

    @staticmethod
    def stream(key: str) -> str:
        return f"{{sgs:{shard_index(key, SHARDS)}}}:log"

    def append(self, *records: ShareRecord) -> None:
        for record in records:
            self.log.state(record)
            self.moments += [moment(self.log.wall_ms), f"{self.log.epoch}-{self.log.seq}"]

    def write(self, random: Random, wall_ms: int, key: Any) -> None:
        """Write records over up to two hours."""
        self.log.wall_ms = wall_ms
        self.append(snapshot(0, key=key))
        start = 0
        for _ in range(12):
            self.log.wall_ms += random.randrange(600_000)
            start += random.randrange(5)
            batch = StateBatch(start + 2, start + 3, 0, random.randrange(1, 4))
            self.append(snapshot(start, key=key) if random.random() < 0.2 else update(start, batches=[batch], key=key))
            self.moments.append(moment(self.log.wall_ms + 300_000))


@pytest.fixture(scope="module")
def kept(spark: SparkSession, server: World, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return Kept(server, tmp_path_factory.mktemp("kept") / "data")


@pytest.mark.rule("PM-39")
def test_the_files_answer_of_every_moment_what_the_store_had_answered(kept: Kept) -> None:
    assert len(visible(kept.data, Kind.SHARE_STATE)) == 3
    alone = {at: bare(asked("orders", at, "--data", str(kept.data))) for at in kept.moments}
    assert alone == {at: bare(reported) for at, reported in kept.before.items()}
    assert {reported["topic_id"] for reported in alone.values() if reported} == {FIRST_TEXT, SECOND_TEXT}
    assert None in alone.values(), "between the two topics there must be no answer"


@pytest.mark.rule("PM-39")
def test_with_a_store_the_files_give_what_it_no_longer_has(kept: Kept) -> None:
    both = {at: asked("orders", at, "--data", str(kept.data), "--store", kept.world.url) for at in kept.moments}
    assert {at: bare(reported) for at, reported in both.items()} == {
        at: bare(reported) for at, reported in kept.before.items()
    }
    assert {reported["source"] for reported in both.values() if isinstance(reported, dict)} == {"data"}
    kept.log.state(snapshot(70, key=SECOND), update(71, key=SECOND))
    reported = asked("orders", f"{kept.log.epoch}-{kept.log.seq}", "--data", str(kept.data), "--store", kept.world.url)
    assert isinstance(reported, dict)
    assert (reported["source"], reported["start_offset"]) == ("store", 71)


@pytest.mark.rule("PM-39")
def test_what_is_not_ingested_yet_comes_from_the_store(kept: Kept) -> None:
    kept.log.state(update(80, key=SECOND))
    newest = f"{kept.log.epoch}-{kept.log.seq}"
    kept.world.redis.xtrim(kept.log.stream, maxlen=1, approximate=False)
    reported = asked("orders", newest, "--data", str(kept.data), "--store", kept.world.url)
    assert isinstance(reported, dict)
    assert (reported["source"], reported["start_offset"], reported["complete"]) == ("data and store", 80, False), (
        "some are lost"
    )


@pytest.mark.rule("PM-39")
def test_where_there_is_no_state_it_says_how_far_back_it_searched(kept: Kept, tmp_path: Path) -> None:
    data = str(kept.data)
    early = asked("orders", moment(950_000), "--data", data)
    assert f"{data} has records since 1970-01-01T00:16:40.000+00:00: give a later time with --at, or the" in early
    between = asked("orders", moment(DELETED_MS + 50), "--data", data)
    assert f"Topic orders ({FIRST_TEXT}) was deleted at 1970-01-01T01:23:20.000+00:00; give an earlier time" in between
    unknown = CliRunner().invoke(
        metrics, ["replay", "--data", data, "--group", "G1", "--topic", "bills", "--partition", "0"]
    )
    assert unknown.exit_code == 2
    assert f"{data} has no topic 'bills', nor one that was deleted recently; it has: orders" in unknown.output
    empty = asked(FIRST_TEXT, moment(950_000), "--data", str(tmp_path))
    assert f"{tmp_path} has no records of states" in empty
    assert f"{tmp_path} holds an unknown part; for what was written later, ingest again" in empty


@pytest.mark.rule("PM-39")
def test_an_answer_of_the_files_alone_says_up_to_when_they_are_whole(kept: Kept) -> None:
    words = ["replay", "--data", str(kept.data), "--group", "G1", "--topic", "orders", "--partition", "0"]
    result = CliRunner().invoke(metrics, words)
    reported = json.loads(result.stdout)
    assert reported["source"] == "data"
    assert f"holds everything that was written before {reported['read_up_to'][:19]}" in result.stderr


@pytest.mark.rule("PM-36", "PM-39")
def test_the_files_of_another_cluster_are_not_taken(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "cluster-id").write_text("one")
    kept.world.redis.set("{meta}:cluster", "two")
    words = ["replay", "--data", str(tmp_path), "--store", kept.world.url, "--group", "g", "--topic", "t"]
    result = CliRunner().invoke(metrics, [*words, "--partition", "0"])
    assert (result.exit_code, "of cluster one, but this store is of cluster two" in result.output) == (1, True)
