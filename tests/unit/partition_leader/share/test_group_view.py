"""Group settings are computed once for each version of the metadata."""

from __future__ import annotations

import pytest

from partition_leader.share.core.events import GroupSettings
from partition_leader.share.group_view import EffectiveGroup, GroupViews
from shard_runtime.config import kafka_configs


@pytest.mark.rule("PL-1003", "GC-138")
def test_group_settings_are_computed_once_for_each_version_of_the_metadata() -> None:
    version = 1
    computed: list[str] = []

    def effective(group_id: str) -> EffectiveGroup:
        computed.append(group_id)
        return EffectiveGroup(1_000 * version, 5, 200, True, "latest", False)

    views = GroupViews(effective, lambda: version)
    view = views.view("g")
    assert (view.settings.lock_ms, view.auto_offset_reset, view.read_committed) == (1_000, "latest", False)
    assert computed == ["g"]
    version = 2
    assert view.settings.lock_ms == 2_000
    assert computed == ["g", "g"]
    assert view.settings is view.settings
    assert views.view("g") is view, "one for all its share-partitions"


@pytest.mark.rule("CM-183")
def test_a_group_that_no_share_partition_is_of_leaves_nothing() -> None:
    views = GroupViews(lambda group_id: EffectiveGroup(1_000, 5, 200, True, "latest", False), lambda: 1)
    kept = views.view("kept")
    for number in range(100):
        assert views.view(f"g{number}").settings.lock_ms == 1_000
    assert dict(views._views) == {"kept": kept}


def test_without_settings_of_a_group_the_defaults_of_the_documented_ones_hold() -> None:
    settings = GroupSettings()
    assert settings.lock_ms == kafka_configs.LOCK_DURATION_MS.default
    assert settings.delivery_count_limit == kafka_configs.DELIVERY_COUNT_LIMIT.default
    assert settings.max_record_locks == kafka_configs.MAX_RECORD_LOCKS.default
