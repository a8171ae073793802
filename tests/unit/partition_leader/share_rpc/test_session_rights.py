"""What happens at the leader to a member's records and fetches when its principal loses a permission."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from kip932.acls import ANY_HOST, Acl, Decision, Operation, PatternType, Permission, ResourceType
from kip932.api.v1 import fetch_pb2
from kip932.ids import TopicIdPartition
from partition_leader.partition_owners import topic_shard
from shard_runtime.ownership.lease import Lease
from shard_runtime.rpc.access import Access, Asked, Rights
from shard_runtime.rpc.binding import NO_CALLER, CallContext
from tests.support.claims import LEASE_MS, claim
from tests.support.virtual_time import now_s
from tests.unit.partition_leader.share_partition.wire import ACCEPT, Consumer, name
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, run, settle

_NAMES = {ResourceType.GROUP: GROUP, ResourceType.TOPIC: "t"}


class Entries:
    """A cluster's ACL entries: READ on the group and the topic, by principal."""

    def __init__(self, world: World) -> None:
        self.access = Access()
        self._entries: set[Acl] = set()
        self.access.subscribe(world.leader.rights_changed)

    def allow(self, who: str, *resources: ResourceType) -> None:
        self._entries |= {_entry(who, resource) for resource in resources or _NAMES}
        self.access.follow(frozenset(self._entries))

    def allow_topic(self, who: str, name: str) -> None:
        self._entries.add(_entry(who, ResourceType.TOPIC)._replace(resource_name=name))
        self.access.follow(frozenset(self._entries))

    def take(self, who: str, *resources: ResourceType) -> None:
        self._entries -= {_entry(who, resource) for resource in resources}
        self.access.follow(frozenset(self._entries))

    def caller(self, who: str) -> CallContext:
        rights = Rights(self.access, who, "10.0.0.7", dict.fromkeys(_NAMES, Operation.READ))
        return replace(NO_CALLER, principal=who, rights=rights)


def _entry(who: str, resource: ResourceType) -> Acl:
    name = _NAMES[resource]
    return Acl(resource, name, PatternType.LITERAL, who, ANY_HOST, Operation.READ, Permission.ALLOW)


def play(body: Callable[[World, Entries], Coroutine[Any, Any, None]]) -> None:
    async def scenario(world: World) -> None:
        entries = Entries(world)
        entries.allow("User:a")
        entries.allow("User:b")
        await body(world, entries)

    run(scenario)


@pytest.mark.rule("PL-531", "CM-61")
@pytest.mark.parametrize("taken", list(_NAMES))
def test_what_a_member_may_no_longer_read_is_free_for_others_at_once(taken: ResourceType) -> None:
    async def body(world: World, entries: Entries) -> None:
        mine, other = (Consumer(world, name, entries.caller(f"User:{name}")) for name in "ab")
        await world.produce(3)
        assert await mine.acquired() == [(0, 2, 1)]
        assert await other.acquired() == []
        began_s = now_s()
        entries.take("User:a", taken)
        await settle()
        assert await other.acquired() == [(0, 2, 2)]
        assert now_s() - began_s < 1  # the locks last 30 s
        refused = await mine.fetch()
        group, topic = ("GROUP_AUTHORIZATION_FAILED", "NONE"), ("NONE", "TOPIC_AUTHORIZATION_FAILED")
        assert (refused.error, refused.partition_error) == (group if taken is ResourceType.GROUP else topic)
        mine.epoch -= taken is ResourceType.GROUP  # the epoch did not advance
        entries.allow("User:a", taken)
        await world.produce(1)
        assert await mine.acquired() == [(3, 3, 1)]

    play(body)


@pytest.mark.rule("PL-531", "CM-61")
@pytest.mark.parametrize("taken", list(_NAMES))
def test_a_parked_fetch_ends_when_its_right_is_taken_away_and_others_wait_on(taken: ResourceType) -> None:
    async def body(world: World, entries: Entries) -> None:
        mine, other = (Consumer(world, name, entries.caller(f"User:{name}")) for name in "ab")
        assert await mine.acquired() == await other.acquired() == []
        parked, waiting = mine.waiting(), other.waiting()
        await settle()
        began_s = now_s()
        entries.take("User:a", taken)
        await world.produce(1)
        answer = await parked
        assert (now_s() - began_s < 1, answer.error, answer.acquired, answer.batches) == (True, "NONE", [], [])
        assert (await waiting).acquired[0][:2] == (0, 0)

    play(body)


@pytest.mark.rule("PL-531")
def test_a_change_that_takes_nothing_from_a_member_leaves_its_records_and_its_fetch_alone() -> None:
    async def body(world: World, entries: Entries) -> None:
        mine = Consumer(world, "a", entries.caller("User:a"))
        await world.produce(1)
        assert await mine.acquired() == [(0, 0, 1)]
        parked = mine.waiting()
        await settle()
        entries.take("User:b", *_NAMES)
        await settle()
        assert not parked.done()
        assert await mine.acknowledge((0, 0, ACCEPT)) == "NONE"
        await parked

    play(body)


@pytest.mark.rule("PL-531", "CM-61")
def test_a_topic_that_only_other_members_of_the_group_read_is_nothing_that_a_member_can_lose() -> None:
    async def body(world: World, entries: Entries) -> None:
        other_topic = bytes(15) + b"\x02"
        world.facts.topics[other_topic], world.facts.names[other_topic] = 1, "u"
        shard = topic_shard(TopicIdPartition(other_topic, 0))
        claimed = await claim(world.record_log, shard, floor=1)
        lease = Lease(shard, 1, claimed.epoch, deadline_ms=LEASE_MS, clock=world.lease_clock, give_up=lambda *_: None)
        await world.leader.owner(shard).gained(claimed, lease)
        mine, other = (Consumer(world, name, entries.caller(f"User:{name}")) for name in "ab")
        entries.allow_topic("User:b", "u")
        await other.fetch()
        await other.fetch(topics=[{"topic_id": other_topic, "partitions": [{"partition_index": 0}]}])
        assert await mine.acquired() == []
        parked = mine.waiting()
        await settle()
        with capture_logs() as lines:
            for who in ("User:c", "User:d"):
                entries.allow(who)
                await settle()
        assert (parked.done(), lines, dict(entries.access.refused)) == (False, [], {})
        await parked
        world.leader.owner(shard).lost("test")

    play(body)


@pytest.mark.rule("PL-531")
def test_what_was_lost_is_acted_on_once_until_it_is_read_again() -> None:
    async def body(world: World, entries: Entries) -> None:
        mine = Consumer(world, "a", entries.caller("User:a"))
        with capture_logs() as lines:
            for _ in range(2):
                assert await mine.acquired() == []
                for change in (
                    partial(entries.take, "User:a"),
                    partial(entries.allow, "User:c"),
                    partial(entries.take, "User:c"),
                ):
                    change(ResourceType.TOPIC)
                    await settle()
                entries.allow("User:a")
        assert [line["event"] for line in lines].count("rights_of_member_lost") == 2
        assert not entries.access.refused

    play(body)


@pytest.mark.rule("PL-531")
def test_records_of_a_forgotten_partition_are_freed_too() -> None:
    async def body(world: World, entries: Entries) -> None:
        mine, other = (Consumer(world, name, entries.caller(f"User:{name}")) for name in "ab")
        await world.produce(1)
        assert await mine.acquired() == [(0, 0, 1)]
        assert (await mine.fetch(forgotten_topics_data=[{"topic_id": TOPIC, "partitions": [0]}])).acquired == []
        entries.take("User:a", ResourceType.TOPIC)
        await settle()
        assert await other.acquired() == [(0, 0, 2)]

    play(body)


@pytest.mark.rule("PL-531")
def test_two_changes_in_quick_succession_are_both_acted_on() -> None:
    async def body(world: World, entries: Entries) -> None:
        members = [Consumer(world, name, entries.caller(f"User:{name}")) for name in "ab"]
        for consumer in members:
            await world.produce(1)
            assert len(await consumer.acquired()) == 1
        entries.take("User:a", ResourceType.TOPIC)
        await asyncio.sleep(0)
        entries.take("User:b", ResourceType.TOPIC)
        await settle()
        entries.allow("User:c")
        third = Consumer(world, "c", entries.caller("User:c"))
        assert await third.acquired() == [(0, 0, 2), (1, 1, 2)]

    play(body)


@pytest.mark.rule("PL-531")
def test_what_a_fetch_had_acquired_is_not_delivered_when_its_right_was_away_for_a_moment() -> None:
    async def body(world: World, entries: Entries) -> None:
        mine, other = (Consumer(world, name, entries.caller(f"User:{name}")) for name in "ab")
        await world.produce(1)
        assert await mine.acquired() == [(0, 0, 1)]
        await world.produce(1)
        world.persister.hold("write")
        done = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [ACCEPT]}
        part = {"partition_index": 0, "acknowledgement_batches": [done]}
        slow = mine.waiting(max_records=1, topics=[{"topic_id": TOPIC, "partitions": [part]}])
        await settle()
        entries.take("User:a", ResourceType.TOPIC)
        await settle()
        world.persister.let_go("write")
        entries.allow("User:a")
        assert await other.acquired() == [(1, 1, 2)]
        answer = await slow
        assert (answer.acquired, answer.batches, answer.partition_error) == ([], [], "NONE")
        assert await other.acknowledge((1, 1, ACCEPT)) == "NONE"

    play(body)


@pytest.mark.rule("PL-530")
def test_a_session_belongs_to_the_principal_that_opened_it() -> None:
    async def body(world: World, entries: Entries) -> None:
        mine = Consumer(world, "m", entries.caller("User:a"))
        await world.produce(1)
        assert await mine.acquired() == [(0, 0, 1)]
        thief = Consumer(world, "m", entries.caller("User:b"))
        assert (await thief.fetch()).error == "UNKNOWN_MEMBER_ID"  # opening it again
        thief.epoch, thief.session_id = mine.epoch, mine.session_id
        assert (await thief.fetch()).error == "UNKNOWN_MEMBER_ID"
        thief.epoch = -1
        assert (await thief.fetch(max_records=0)).error == "UNKNOWN_MEMBER_ID"
        assert await mine.acknowledge((0, 0, ACCEPT)) == "NONE"

    play(body)


@pytest.mark.rule("PL-531")
def test_who_opened_a_session_may_close_it_without_the_right_to_read() -> None:
    async def body(world: World, entries: Entries) -> None:
        mine, other = (Consumer(world, name, entries.caller(f"User:{name}")) for name in "ab")
        assert await mine.acquired() == await other.acquired() == []
        for who in "ab":
            entries.take(f"User:{who}", ResourceType.GROUP)
        await settle()
        other.member_id, other.epoch, other.session_id = "a", -1, mine.session_id
        assert (await other.fetch()).error == "GROUP_AUTHORIZATION_FAILED"
        mine.epoch = -1
        entries.access.refused.clear()
        assert (await mine.fetch()).error == "NONE"
        assert not entries.access.refused
        assert len(world.leader.requests.sessions) == 1

    play(body)


@pytest.mark.rule("CM-61", "PL-531")
def test_a_deleted_topic_that_is_still_led_has_no_records_for_callers_whose_rights_cannot_be_decided() -> None:
    async def body(world: World, entries: Entries) -> None:
        await world.produce(1)
        mine, stranger = Consumer(world, "a", entries.caller("User:a")), entries.caller("User:stranger")
        assert await mine.acquired() == [(0, 0, 1)]
        world.facts.names.clear()  # the metadata has the deletion; the partition is given up a moment later
        world.facts.topics.clear()
        request = fetch_pb2.FetchRequest(max_bytes=1 << 20)
        request.topics.add(topic_id=TOPIC).partitions.add(partition_max_bytes=1 << 20, current_leader_epoch=-1)
        response = await world.leader.service.fetch(request, stranger)
        (found,) = response.responses[0].partitions
        assert (name(found.error_code), list(found.records)) == ("UNKNOWN_TOPIC_ID", [])
        await world.produce(1)
        assert (await mine.fetch()).partition_error == "UNKNOWN_TOPIC_ID"

    play(body)


@pytest.mark.rule("PL-531", "CM-61")
def test_callers_without_a_certificate_cannot_close_each_others_sessions_without_a_right() -> None:
    async def body(world: World, entries: Entries) -> None:
        nameless = replace(entries.caller("User:ANONYMOUS"), principal=None)
        entries.allow("User:ANONYMOUS")
        mine = Consumer(world, "m", nameless)
        assert await mine.acquired() == []
        entries.take("User:ANONYMOUS", *_NAMES)
        await settle()
        stranger = Consumer(world, "m", nameless)
        stranger.epoch, stranger.session_id = -1, mine.session_id
        assert (await stranger.fetch()).error == "GROUP_AUTHORIZATION_FAILED"

    play(body)


@pytest.mark.rule("PL-531")
@pytest.mark.parametrize("taken", list(_NAMES))
def test_a_fetch_that_ends_before_its_session_is_checked_delivers_nothing(taken: ResourceType) -> None:
    async def body(world: World, entries: Entries) -> None:
        mine, other = (Consumer(world, name, entries.caller(f"User:{name}")) for name in "ab")
        assert await mine.acquired() == await other.acquired() == []
        parked = mine.waiting()
        await settle()
        world.leader.requests.rights.changed = lambda: None  # type: ignore[method-assign]  # its turn comes later
        entries.take("User:a", taken)
        await world.produce(1)
        answer = await parked
        assert (answer.error, answer.acquired, answer.batches) == ("NONE", [], [])
        assert await other.acquired() == [(0, 0, 2)]

    play(body)


@pytest.mark.rule("PL-531", "CM-97")
def test_topics_that_a_session_was_allowed_are_asked_about_again_only_when_entries_have_changed() -> None:
    """With 10,000 topics each fetch of the session blocked the process for 20 ms."""

    async def body(world: World, entries: Entries) -> None:
        mine, asked, decide = (
            Consumer(world, "a", entries.caller("User:a")),
            list[ResourceType](),
            entries.access.decide,
        )

        def counted(question: Asked) -> Decision:
            asked.append(question.resource)
            return decide(question)

        entries.access.decide = counted  # type: ignore[method-assign, assignment]
        await world.produce(1)
        assert await mine.acquired() == [(0, 0, 1)]
        assert ResourceType.TOPIC in asked
        asked.clear()
        await mine.acquired()
        assert set(asked) == {ResourceType.GROUP}
        entries.allow("User:c")
        await settle()
        asked.clear()
        await mine.acquired()
        assert ResourceType.TOPIC in asked
        entries.take("User:a", ResourceType.TOPIC)
        assert (await mine.fetch()).partition_error == "TOPIC_AUTHORIZATION_FAILED"

    play(body)
