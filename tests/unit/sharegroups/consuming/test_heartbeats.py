"""The host of a membership: which node it calls and when, how it handles statuses, and what it reports."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatResponse
from kip932.errors import (
    GroupMaxSizeReachedError,
    InvalidRequestError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from kip932.rpc.transport import RETRIABLE_STATUSES, TransportStatus
from sharegroups.aio import ShareConsumer
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.silence import SilentTransport
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.hooked import HookedTransport

BEAT = "ShareGroupHeartbeat"
FIND = "FindCoordinator"


def member(fake: FakeCluster, transport: HookedTransport, **settings: Any) -> ShareConsumer:
    made = ShareConsumer({"bootstrap.servers": fake.bootstrap, "group.id": "g", **settings}, transport=transport)
    made.subscribe(["t"])
    return made


@pytest.mark.rule("CL-3")
@on_fake_cluster()
async def test_topics_without_a_name_are_asked_for_by_their_ids(fake: FakeCluster) -> None:
    hidden = fake.add_topic("hidden")
    produce(fake, topic="hidden")

    def assign_it_too(answer: ShareGroupHeartbeatResponse) -> None:
        answer.assignment.topic_partitions.add(topic_id=hidden, partitions=[0])

    transport = HookedTransport(fake)
    transport.instead[BEAT].append(assign_it_too)
    async with member(fake, transport) as c:
        (message,) = await c.poll(5)
        assert message.topic() == "hidden"
        ids = [topic.topic_id for one in transport.calls("Metadata") for topic in one.request.topics.values]
        assert hidden in ids


@pytest.mark.rule("CL-3", "CL-4", "CL-33", "CL-37")
@on_fake_cluster()
async def test_a_taken_assignment_is_given_up_at_once_and_what_is_in_hand_can_still_be_acknowledged(
    fake: FakeCluster,
) -> None:
    """Neither a commit nor a revocation delays this."""
    produce(fake)

    def take_all(answer: ShareGroupHeartbeatResponse) -> None:
        answer.assignment.ClearField("topic_partitions")
        answer.assignment.SetInParent()

    transport = HookedTransport(fake)
    async with member(fake, transport, **EXPLICIT) as c:
        (message,) = await c.poll(5)
        sent = len(transport.calls(BEAT))
        transport.instead[BEAT].append(take_all)
        await asyncio.sleep(6)  # longer than the interval
        taken, acknowledged = transport.calls(BEAT)[sent : sent + 2]
        assert acknowledged.at_s == taken.at_s
        assert fake.acknowledges == []
        assert fake.states("t") == {0: "acquired"}
        assert len(fake.open_streams[0]) == 1
        c.acknowledge(message)
        assert list((await c.commit_sync()).values()) == [None]
        await asyncio.sleep(0.1)
        assert not fake.open_streams[0], "the last acknowledgement ends the session"


@pytest.mark.rule("CL-7", "CL-18")
@on_fake_cluster()
async def test_a_person_reads_why_the_member_left(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="sharegroups")
    async with consumer(fake, **{"max.poll.interval.ms": 10_000}) as c:
        c.subscribe(["t"])
        await c.poll(1)
        await asyncio.sleep(9)
        assert caplog.messages == []
        await asyncio.sleep(2)
        (reported,) = caplog.messages
        assert "'g'" in reported
        assert "max.poll.interval.ms" in reported
        assert fake.heartbeats[-1].member_epoch == -1
        beats = len(fake.heartbeats)
        await asyncio.sleep(1000)
        assert len(fake.heartbeats) == beats
        produce(fake)
        assert len(await c.poll(5)) == 1
        assert fake.heartbeats[beats].member_epoch == 0
        assert len(caplog.messages) == 1


@pytest.mark.rule("CL-7", "CL-1")
@on_fake_cluster()
async def test_a_member_that_left_for_want_of_polls_joins_at_once_with_the_next_one(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    async with member(fake, transport, **{"max.poll.interval.ms": 10_000}) as c:
        await c.poll(1)
        await asyncio.sleep(1_000)
        beats = len(transport.calls(BEAT))
        assert transport.calls(BEAT)[-1].request.member_epoch == -1
        began = now_s()
        await c.poll(0.01)
        join = transport.calls(BEAT)[beats]
        assert (join.request.member_epoch, join.at_s) == (0, began)


@pytest.mark.rule("CL-7", "CL-18")
@on_fake_cluster()
async def test_a_member_that_left_during_a_long_callback_joins_at_once_when_the_poll_goes_on(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    produce(fake)
    async with member(fake, transport, **{"max.poll.interval.ms": 10_000, **EXPLICIT}) as c:
        c.set_acknowledgement_commit_callback(lambda *_: None)
        (message,) = await c.poll(5)
        c.acknowledge(message)
        assert await c._engine.poll(5) is None, "a callback is due, and the blocking consumer runs it in its own thread"
        await asyncio.sleep(1_000)
        beats = len(transport.calls(BEAT))
        assert transport.calls(BEAT)[-1].request.member_epoch == -1
        began = now_s()
        c._engine.ledger.run_callbacks()
        await c._engine.wait_records(0.01)
        join = transport.calls(BEAT)[beats]
        assert (join.request.member_epoch, join.at_s) == (0, began)


@pytest.mark.rule("CL-8")
@on_fake_cluster()
async def test_unsubscribing_says_so_at_once(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    async with member(fake, transport) as c:
        await c.poll(1)
        began = now_s()
        c.unsubscribe()
        await asyncio.sleep(1)
        leave = transport.calls(BEAT)[-1]
        assert (leave.request.member_epoch, leave.at_s) == (-1, began)
        assert fake.members == {}
        beats = len(transport.calls(BEAT))
        await asyncio.sleep(100)
        assert len(transport.calls(BEAT)) == beats


class LateTransport(HookedTransport):
    """Passes heartbeats on at once, and delays the responses by `late_s`."""

    late_s = 0.0

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        answer = await super().call(address, method, request, timeout_s)
        if method.name == BEAT and request.member_epoch >= 0:
            await asyncio.sleep(self.late_s)
        return answer


@pytest.mark.rule("CL-11", "CL-28")
@pytest.mark.parametrize(("late_s", "budget_s", "leaves_after_s"), [(2, 30, 2), (20, 30, 20), (20, 3, 3)])
@on_fake_cluster()
async def test_the_leave_of_a_close_waits_for_the_heartbeat_in_flight_but_no_longer_than_the_close(
    fake: FakeCluster, late_s: float, budget_s: float, leaves_after_s: float
) -> None:
    transport = LateTransport(fake)
    c = member(fake, transport)
    await c.poll(1)
    transport.late_s = late_s
    beats = len(transport.calls(BEAT))
    await asyncio.sleep(5)  # the interval
    (beat,) = transport.calls(BEAT)[beats:]
    began = now_s()
    await c.close(budget_s)
    (leave,) = transport.calls(BEAT)[beats + 1 :]
    assert leave.request.member_epoch == -1
    assert leave.at_s - (began if budget_s < late_s else beat.at_s) == pytest.approx(leaves_after_s, abs=0.01)
    assert now_s() - leave.at_s < 0.1
    assert fake.members == {}


@pytest.mark.rule("CL-8")
@on_fake_cluster()
async def test_a_member_that_never_found_a_coordinator_asks_no_node_for_one_to_leave(fake: FakeCluster) -> None:
    transport = SilentTransport(fake.network)
    transport.silent.add("node0:9000")
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g", "request.timeout.ms": 1000}
    c = ShareConsumer(settings, transport=transport)
    c.subscribe(["t"])
    assert (await c.poll(1.05)).is_empty()  # the look-up has timed out, and the next one waits for its back-off
    began = now_s()
    await c.close(30)
    assert now_s() == began


@pytest.mark.rule("CL-9")
@on_fake_cluster()
async def test_after_a_fatal_error_nothing_is_asked_any_more(fake: FakeCluster) -> None:
    produce(fake)
    c = consumer(fake)
    c.subscribe(["t"])
    assert len(await c.poll(5)) == 1
    fake.errors["heartbeat"].append(GroupMaxSizeReachedError.code)
    with pytest.raises(GroupMaxSizeReachedError):
        await c.poll(10)
    await asyncio.sleep(1)
    asked = len(fake.heartbeats), len(fake.fetches), len(fake.acknowledges)
    frames = []
    for _ in range(3):
        await asyncio.sleep(30)
        with pytest.raises(GroupMaxSizeReachedError) as raised:
            await c.poll(1)
        frames.append(len(raised.traceback))
    assert len(set(frames)) == 1  # raising it again and again keeps no frames
    assert (len(fake.heartbeats), len(fake.fetches), len(fake.acknowledges)) == asked
    with pytest.raises(GroupMaxSizeReachedError):
        await c.close()


@pytest.mark.rule("CL-14", "CL-16")
@pytest.mark.parametrize("status", sorted(RETRIABLE_STATUSES))
@on_fake_cluster()
async def test_a_status_that_may_pass_is_tried_again_after_a_back_off(
    fake: FakeCluster, status: TransportStatus
) -> None:
    transport = HookedTransport(fake)
    transport.instead[BEAT].extend([status, status])
    async with member(fake, transport) as c:
        produce(fake)
        assert len(await c.poll(5)) == 1
        first, second, third = transport.calls(BEAT)[:3]
        assert 0.079 <= second.at_s - first.at_s <= 0.121
        assert 0.159 <= third.at_s - second.at_s <= 0.241
        assert {one.request.member_epoch for one in (first, second, third)} == {0}
        # A node that responds with RESOURCE_EXHAUSTED is the coordinator; one that does not respond may no longer be.
        assert len(transport.calls(FIND)) == (1 if status is TransportStatus.RESOURCE_EXHAUSTED else 3)


@pytest.mark.rule("CL-16")
@pytest.mark.parametrize(
    "status",
    sorted(
        set(TransportStatus) - RETRIABLE_STATUSES - {TransportStatus.PERMISSION_DENIED, TransportStatus.UNAUTHENTICATED}
    ),
)
@on_fake_cluster()
async def test_a_status_that_cannot_pass_is_fatal(fake: FakeCluster, status: TransportStatus) -> None:
    kinds: dict[TransportStatus, type[KafkaError]] = {
        TransportStatus.UNIMPLEMENTED: UnsupportedVersionError,
        TransportStatus.INVALID_ARGUMENT: InvalidRequestError,
    }
    transport = HookedTransport(fake)
    transport.instead[BEAT].append(status)
    c = member(fake, transport)
    with pytest.raises(kinds[status]):
        await c.poll(5)
    assert len(transport.calls(BEAT)) == 1
    with pytest.raises(kinds[status]):
        await c.close()
    assert len(transport.calls(BEAT)) == 1


@pytest.mark.rule("CL-15")
@pytest.mark.parametrize("named", [True, False])
@on_fake_cluster(nodes=2)
async def test_a_redirect_is_followed_at_once_to_the_node_it_names_or_else_causes_a_lookup(
    fake: FakeCluster, named: bool
) -> None:
    def elsewhere(answer: ShareGroupHeartbeatResponse) -> None:
        answer.Clear()
        answer.error_code = ErrorCode.ValueType(16)  # NOT_COORDINATOR
        if named:
            answer.coordinator.CopyFrom(fake.endpoint(1))
        else:
            fake.coordinator = 1

    transport = HookedTransport(fake)
    transport.instead[BEAT].append(elsewhere)
    async with member(fake, transport) as c:
        await c.poll(1)
        first, second = transport.calls(BEAT)[:2]
        assert (first.address, second.address) == ("node0:9000", "node1:9000")
        assert second.at_s == first.at_s
        assert len(transport.calls(FIND)) == (1 if named else 2)


@pytest.mark.rule("CL-15")
@on_fake_cluster(nodes=2)
async def test_an_unavailable_coordinator_causes_another_lookup_after_a_pause(fake: FakeCluster) -> None:
    def unavailable(answer: ShareGroupHeartbeatResponse) -> None:
        answer.Clear()
        answer.error_code = ErrorCode.ValueType(15)  # COORDINATOR_NOT_AVAILABLE
        fake.coordinator = 1

    transport = HookedTransport(fake)
    transport.instead[BEAT].append(unavailable)
    async with member(fake, transport) as c:
        await c.poll(1)
        first, second = transport.calls(BEAT)[:2]
        assert second.address == "node1:9000"
        assert 0.079 <= second.at_s - first.at_s <= 0.121


@pytest.mark.rule("CL-17")
@on_fake_cluster()
async def test_a_refused_topic_is_raised_by_the_next_poll_and_the_one_after_it_goes_on(fake: FakeCluster) -> None:
    fake.errors["heartbeat"].append(TopicAuthorizationFailedError.code)
    produce(fake)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        with pytest.raises(TopicAuthorizationFailedError):
            await c.poll(5)
        assert len(await c.poll(5)) == 1


@pytest.mark.parametrize(
    ("code", "text", "reported"),
    [
        (InvalidRequestError.code, "the topics are missing", "the topics are missing"),
        (InvalidRequestError.code, "", InvalidRequestError().message),
        (UnsupportedVersionError.code, "no share.version", UnsupportedVersionError().message),
    ],
)
@on_fake_cluster()
async def test_what_the_coordinator_says_is_reported_but_where_our_own_text_says_more(
    fake: FakeCluster, code: int, text: str, reported: str
) -> None:
    def refuse(answer: ShareGroupHeartbeatResponse) -> None:
        answer.error_code = ErrorCode.ValueType(code)
        answer.error_message = text

    transport = HookedTransport(fake)
    transport.instead[BEAT].append(refuse)
    c = member(fake, transport)
    with pytest.raises(KafkaError) as raised:
        await c.poll(5)
    assert raised.value.message == reported
    with pytest.raises(KafkaError):
        await c.close()
