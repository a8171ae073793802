"""The memory of a real store, as an ingest notes it and a page shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from share_metrics.archive.folders import owned
from share_metrics.ingest.store_memory import note_store_memory, noted_store_memory
from share_metrics.reader import Store
from share_metrics.reader.streams import cluster_id
from share_metrics.report import Report, render
from share_metrics.surroundings import with_surroundings

from .world import World

AT = datetime(2026, 11, 22, 9, tzinfo=UTC)
LIMIT = 1 << 30


@pytest.mark.rule("PM-100", "PM-102")
def test_a_page_says_which_cluster_it_is_of_and_how_full_its_store_was(world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=3)
    world.redis.config_set("maxmemory", LIMIT)
    try:
        with world.store() as store, owned(tmp_path, "c1"):
            note_store_memory(store, tmp_path, int(AT.timestamp()) - 60)
    finally:
        world.redis.config_set("maxmemory", 0)
    (sample,) = noted_store_memory(tmp_path)
    used = world.redis.info("memory")["used_memory"]
    assert 0.5 < sample.used_bytes / used < 2
    assert sample.limit_bytes == LIMIT
    report = with_surroundings(Report("2026-11-22 08:00", "2026-11-22 09:00", 60, []), tmp_path, AT, AT, AT)
    assert report.store == {"used_bytes": sample.used_bytes, "limit_bytes": LIMIT}
    page = render(report)
    assert "<title>Share groups of c1</title>" in page
    assert "of 1.0 GiB in use" in page


@pytest.mark.rule("PM-100")
def test_a_user_that_may_not_ask_leaves_it_unknown(world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=1)
    world.redis.acl_setuser("ro", enabled=True, nopass=True, keys=["%R~*"], commands=["+@read", "+@connection"])
    try:
        with Store(world.url.replace("unix://", "unix://ro@"), "P", env={"P": "any"}) as store:
            assert cluster_id(store) == "", "it may read"
            note_store_memory(store, tmp_path, 0)
    finally:
        world.redis.acl_deluser("ro")
    assert noted_store_memory(tmp_path) == []
