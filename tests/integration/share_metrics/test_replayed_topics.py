"""Compares `replay` of topics that were deleted or created again with a ledger of the writes and their times
(PM-39)."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from kip932.ids import shard_index, topic_id_text
from shard_runtime.cluster.metadata import Change, TopicCreated, TopicDeleted
from shard_runtime.cluster.metadata_codec import encode_changes
from share_coordinator.core.records import ShareTombstone
from share_metrics.commands import metrics
from tests.support.pipeline_entries import KEY, TOPIC, snapshot, update

from .world import Log, World

SECOND = KEY._replace(topic_id=bytes(15) + b"\x02")
FIRST_TEXT, SECOND_TEXT = topic_id_text(TOPIC), topic_id_text(SECOND.topic_id)


def replay(world: World, topic: str, at: str | None = None) -> tuple[str, str, int] | str:
    """Return the entry, topic id and start offset in `replay`'s output; its message if there is no state."""
    words = ["replay", "--store", world.url, "--group", "G1", "--topic", topic, "--partition", "0"]
    result = CliRunner().invoke(metrics, [*words, *(["--at", at] if at else [])])
    if result.exit_code:
        return result.output
    reported = json.loads(result.output)
    return reported["entry_id"], reported["topic_id"], reported["start_offset"]


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


@pytest.mark.rule("PM-39")
def test_a_name_means_the_topic_that_had_it_then(world: World) -> None:
    """Created at 900 s, deleted at 1,000.010 s, created again at 1,000.020 s, deleted at 1,000.040 s; entries are a
    millisecond apart from 1,000 s on."""
    world.make_cluster(state_shards=1)
    changes: list[Change] = [
        TopicCreated("orders", TOPIC, 1, {}, 900_000, ""),
        TopicDeleted(TOPIC, "orders", 1_000_010),
        TopicCreated("orders", SECOND.topic_id, 1, {}, 1_000_020, ""),
    ]
    for version, change in enumerate(changes, start=1):
        reported = encode_changes([change], b"c" * 16, 0)
        world.redis.xadd("{meta}:log", {"t": "M", "r": reported}, id=f"1-{version}")
    log = Log(world, f"{{sgs:{shard_index(KEY.text, 1)}}}:log")
    log.state(snapshot(100), update(140), ShareTombstone(KEY))
    log.wall_ms = 1_000_024
    log.state(snapshot(0, key=SECOND), update(7, key=SECOND))
    assert replay(world, "orders") == ("1-5", SECOND_TEXT, 7)
    assert replay(world, "orders", moment(1_000_001)) == ("1-2", FIRST_TEXT, 140)
    assert replay(world, "orders", "1-1") == ("1-1", FIRST_TEXT, 100)
    assert replay(world, "orders", "1-4") == ("1-4", SECOND_TEXT, 0)
    assert replay(world, FIRST_TEXT, moment(1_000_000)) == ("1-1", FIRST_TEXT, 100)
    for at in (1_000_002, 1_000_015, 1_000_021):
        assert "had no state of orders-0 then" in replay(world, "orders", moment(at))
    between = replay(world, "orders", moment(1_000_015))
    assert f"Topic orders ({FIRST_TEXT}) was deleted at 1970-01-01T00:16:40.010+00:00; give an earlier time" in between
    for at in (1_000_002, 1_000_021):
        assert "was deleted" not in replay(world, "orders", moment(at)), "not yet, and not that one"
    reported = encode_changes([TopicDeleted(SECOND.topic_id, "orders", 1_000_040)], b"c" * 16, 0)
    world.redis.xadd("{meta}:log", {"t": "M", "r": reported}, id="1-4")
    assert f"Topic orders ({SECOND_TEXT}) was deleted at" in replay(world, "orders")
    assert replay(world, "orders", moment(1_000_026)) == ("1-5", SECOND_TEXT, 7)
    assert "it has: none" in replay(world, "invoices")
