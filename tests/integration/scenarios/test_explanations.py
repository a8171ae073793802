"""Explanations of why records do not arrive, from real services over gRPC: by the admin client, and by the RPC
itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip932.api.v1 import explain_record_pb2 as pb
from kip932.errors import GroupIdNotFoundError, InvalidRequestError, UnknownTopicOrPartitionError
from kip932.ids import TopicPartition
from sharegroups import AcknowledgeType, Admin
from sharegroups.admin_values import RecordExplanation, RecordsExplained
from tests.integration.scenarios.clients import EXPLICIT, World, first
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import Cluster, unique


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as made:
        yield made


def fates(explained: RecordsExplained) -> list[tuple[int, int, str, str]]:
    return [(one.first_offset, one.last_offset, one.state, one.obstacle) for one in explained.records]


def at(explained: RecordsExplained, offset: int) -> RecordExplanation:
    (found,) = (one for one in explained.records if one.first_offset <= offset <= one.last_offset)
    return found


@pytest.mark.rule("PL-820", "PL-821", "PL-822", "CL-90")
def test_held_available_and_archived_records_and_who_has_them(world: World, admin: Admin) -> None:
    world.produce(*"abcdefgh")
    partition = TopicPartition(world.topic, 0)
    with world.consumer(
        EXPLICIT, share_acquire_mode="record_limit", max_poll_records=5, client_id="worker-1"
    ) as consumer:
        got = list(first(consumer))
        assert [message.offset() for message in got] == [0, 1, 2, 3, 4]
        consumer.acknowledge(got[0], AcknowledgeType.RENEW)
        consumer.acknowledge(got[2], AcknowledgeType.REJECT)
        consumer.acknowledge(got[3], AcknowledgeType.RELEASE)
        consumer.acknowledge(got[4], AcknowledgeType.ACCEPT)
        consumer.commit_sync()
        found = admin.explain_record(world.group, partition, 0, 8)
        assert fates(found) == [
            (0, 0, "acquired", "held"),
            (1, 1, "acquired", "held"),
            (2, 2, "archived", "rejected"),
            (3, 3, "available", "none"),
            (4, 4, "acknowledged", "finished"),
            (5, 7, "available", "none"),
            (8, 8, "beyond_end", "no_record"),
        ]
        held, plain = at(found, 0), at(found, 1)
        assert (held.client_id, held.delivery_count, held.lock_renewed, plain.lock_renewed) == (
            "worker-1",
            1,
            True,
            False,
        )
        assert held.member_id == plain.member_id
        assert held.lock_remaining_ms is not None
        assert plain.lock_remaining_ms is not None
        assert plain.lock_remaining_ms < held.lock_remaining_ms
        assert plain.held_ms is not None
        assert "has held it for" in plain.explanation
        assert (at(found, 3).delivery_count, at(found, 5).delivery_count) == (1, 0)
        assert (found.loaded, found.start_offset, found.high_watermark, found.fetching_members) == (True, 0, 8, 1)
        assert (found.group_state, found.members, found.assigned_members) == ("Stable", 1, 1)
        again = admin.explain_record(world.group, partition, 1)
        assert at(again, 1).delivery_count == 1, "an explanation must not count as a delivery"


@pytest.mark.rule("PL-824", "PL-825", "CL-90")
def test_after_the_last_consumer_left_the_store_answers_and_nothing_is_loaded(world: World, admin: Admin) -> None:
    world.produce("a", "b", "c")
    partition = TopicPartition(world.topic, 0)
    with world.consumer(EXPLICIT, share_acquire_mode="record_limit", max_poll_records=2) as consumer:
        got = list(first(consumer))
        consumer.acknowledge(got[1], AcknowledgeType.REJECT)
        consumer.commit_sync()
    before = world.ask("summary", world.group, world.topic_id)
    for _ in range(3):
        found = admin.explain_record(world.group, partition, 0, 2)
        assert fates(found) == [
            (0, 0, "available", "group_empty"),
            (1, 1, "archived", "rejected"),
            (2, 2, "available", "group_empty"),
        ]
        assert (found.loaded, found.start_offset, found.group_state, found.members) == (False, 0, "Empty", 0)
    assert world.ask("summary", world.group, world.topic_id) == before, "no leader epoch was raised"
    assert "The group has no members: start a consumer." in at(found, 0).explanation
    with world.consumer() as consumer:
        assert next((one.offset(), one.delivery_count()) for one in first(consumer)) == (0, 2)


@pytest.mark.rule("CL-90", "PL-826")
def test_what_cannot_be_asked_of_a_real_cluster(world: World, admin: Admin) -> None:
    partition = TopicPartition(world.topic, 0)
    with pytest.raises(GroupIdNotFoundError):
        admin.explain_record(unique("unknown"), partition, 0)
    with world.consumer() as consumer:
        consumer.poll(0.2)
        with pytest.raises(InvalidRequestError, match="offset -1 is negative"):
            admin.explain_record(world.group, partition, -1)
        with pytest.raises(InvalidRequestError, match="at most 1000"):
            admin.explain_record(world.group, partition, 0, 1000)
        for other in (TopicPartition(world.topic, 1), TopicPartition(unique("nowhere"), 0)):
            with pytest.raises(UnknownTopicOrPartitionError):
                admin.explain_record(world.group, other, 0)


@pytest.mark.asyncio
@pytest.mark.rule("PL-825")
async def test_the_raw_call_of_a_group_without_state_says_that_it_has_not_begun(wire: Wire) -> None:
    topic_id = await wire.create_topic(unique("t"))
    await wire.produce(topic_id, 1)
    group = unique("unknown")
    async for _ in attempts():
        answer = await wire.call("ExplainRecord", pb.ExplainRecordRequest(group_id=group, topic_id=topic_id))
        if answer.error_code == 0:
            break
    (record,) = answer.records
    assert (record.state, record.obstacle) == (
        pb.RECORD_STATE_NOT_INITIALIZED,
        pb.DELIVERY_OBSTACLE_NO_STATE,
    )
    assert answer.start_offset == -1
    assert group in record.explanation


@pytest.mark.rule("GC-109", "PL-827")
def test_the_backlog_of_a_group_while_its_consumer_works_and_after_it(world: World, admin: Admin) -> None:
    world.produce(*"abcdefgh")
    partition = TopicPartition(world.topic, 0)

    def backlog() -> tuple[int | None, int | None, int | None]:
        found = admin.list_share_group_offsets({world.group: None}, backlog=True)[world.group]
        assert isinstance(found, dict)
        entry = found[partition]
        assert entry is not None
        assert entry.oldest_age_ms is None or 0 <= entry.oldest_age_ms < 600_000
        return entry.in_flight, entry.waiting, entry.lag

    with world.consumer(EXPLICIT, share_acquire_mode="record_limit", max_poll_records=3) as consumer:
        got = list(first(consumer))
        consumer.acknowledge(got[0], AcknowledgeType.ACCEPT)
        consumer.commit_sync()
        assert backlog() == (2, 5, 7)
        assert admin.explain_record(world.group, partition, 0).in_flight == 2, "one word, one number"
        plain = admin.list_share_group_offsets({world.group: None})[world.group]
        assert isinstance(plain, dict)
        assert plain[partition] is not None
        assert plain[partition].in_flight is None  # type: ignore[union-attr]
    assert backlog() == (0, 7, 7)
