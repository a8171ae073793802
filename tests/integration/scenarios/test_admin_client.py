"""The blocking admin client changes groups of a real cluster: it sets and deletes offsets, and deletes groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kip932 import errors
from sharegroups import Admin, TopicPartition
from tests.integration.scenarios.clients import World, deliveries, first
from tests.support.node import Cluster, unique

WHOLE: dict[str, Any] = {"share_acquire_mode": "batch_optimized"}


@pytest.fixture
def world(cluster: Cluster) -> World:
    made = World(cluster)
    made.ask("produce", made.topic_id, 10)
    with made.consumer(**WHOLE) as consumer:
        assert len(first(consumer)) == 10
        assert set(consumer.commit_sync().values()) == {None}
    made.until_state(10, [])
    return made


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as made:
        yield made


def test_an_empty_group_begins_again_where_it_is_asked_to_and_what_cannot_be_is_reported_for_each_partition(
    world: World, admin: Admin
) -> None:
    here, nowhere = TopicPartition(world.topic, 0), TopicPartition(world.topic, 7)
    reported = admin.alter_share_group_offsets(world.group, {here: 4, nowhere: 0})
    assert reported[here] is None
    assert isinstance(reported[nowhere], errors.UnknownTopicOrPartitionError)
    beyond = admin.alter_share_group_offsets(world.group, {here: 11})[here]
    assert isinstance(beyond, errors.OffsetOutOfRangeError)
    assert "11" in str(beyond)
    assert "10" in str(beyond), "where the log ends"
    with world.consumer(**WHOLE) as consumer:
        assert deliveries(first(consumer)) == [(offset, 1) for offset in range(4, 10)]
        with pytest.raises(errors.NonEmptyGroupError, match="1 members"):
            admin.alter_share_group_offsets(world.group, {here: 0})


def test_without_its_offsets_a_group_begins_as_a_new_one(world: World, admin: Admin) -> None:
    gone, unknown = world.topic, unique("unknown")
    reported = admin.delete_share_group_offsets(world.group, [gone, unknown])
    assert reported[gone] is None
    assert isinstance(reported[unknown], errors.UnknownTopicOrPartitionError)
    assert admin.list_share_group_offsets({world.group: None}) == {world.group: {}}
    with world.consumer(**WHOLE) as consumer:
        assert deliveries(first(consumer)) == [(offset, 1) for offset in range(10)]


def test_a_deleted_group_is_gone_and_one_that_cannot_be_deleted_hides_no_other(world: World, admin: Admin) -> None:
    busy, no_one = World(world.cluster), unique("unknown")
    busy.ask("produce", busy.topic_id, 1)
    with busy.consumer() as consumer:
        assert len(first(consumer)) == 1
        reported = admin.delete_share_groups([busy.group, world.group, no_one])
    assert reported[world.group] is None
    assert isinstance(reported[busy.group], errors.NonEmptyGroupError)
    assert isinstance(reported[no_one], errors.GroupIdNotFoundError)
    left = {listing.group_id for listing in admin.list_groups()}
    assert busy.group in left
    assert world.group not in left
    with world.consumer(**WHOLE) as consumer:
        assert deliveries(first(consumer)) == [(offset, 1) for offset in range(10)]
