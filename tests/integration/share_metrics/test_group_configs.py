"""Which groups have configs, from a real metadata log, and what an ingest's directory keeps of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kip932.ids import RESOURCE_GROUP, RESOURCE_TOPIC
from shard_runtime.cluster.metadata import Change, ConfigRemoved, ConfigSet, Snapshot
from shard_runtime.cluster.metadata_codec import encode_changes, encode_snapshot
from share_metrics.ingest.group_configs import note_group_configs, noted_group_configs

from .world import World

LETTERS = "errors.deadletterqueue.topic.name"


def write(world: World, version: int, changes: Sequence[Change]) -> None:
    record = encode_changes(changes, b"c" * 16, 0)
    world.redis.xadd("{meta}:log", {"t": "M", "r": record}, id=f"1-{version}")


@pytest.mark.rule("PM-99")
def test_the_groups_with_configs_are_noted_with_the_topics_of_their_dead_letters(world: World, tmp_path: Path) -> None:
    assert noted_group_configs(tmp_path) == {}
    write(world, 1, [
        ConfigSet(RESOURCE_GROUP, "g", "share.auto.offset.reset", "earliest"),
        ConfigSet(RESOURCE_GROUP, "g", LETTERS, "dlq.g"),
        ConfigSet(RESOURCE_GROUP, "h", "share.auto.offset.reset", "latest"),
        ConfigSet(RESOURCE_GROUP, "i", LETTERS, "dlq.i"),
        ConfigSet(RESOURCE_TOPIC, "t", "retention.ms", "1"),
    ])  # fmt: skip
    write(world, 2, [
        ConfigRemoved(RESOURCE_GROUP, "h", "share.auto.offset.reset"), ConfigRemoved(RESOURCE_GROUP, "never", "x"),
        ConfigSet(RESOURCE_GROUP, "i", LETTERS, "letters"),
    ])  # fmt: skip
    with world.store() as store:
        note_group_configs(store, tmp_path)
        assert noted_group_configs(tmp_path) == {"g": "dlq.g", "i": "letters"}
        folded = Snapshot((), (ConfigSet(RESOURCE_GROUP, "j", "share.auto.offset.reset", "latest"),), (), ())
        world.redis.xadd("{meta}:log", {"t": "M", "r": encode_snapshot(folded, b"c" * 16, 0)}, id="1-3")
        note_group_configs(store, tmp_path)
    assert noted_group_configs(tmp_path) == {"j": ""}
    (tmp_path / "group-configs.json").write_text("{")
    assert noted_group_configs(tmp_path) == {}
