"""Nodes that fall silent while their connections stay open, and a cluster that comes back: how soon the client
reacts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kip932.errors import NetworkError
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.aio import Admin, Producer, ShareConsumer
from sharegroups.connection.silent_nodes import _end, while_in_charge
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.silence import SilentTransport
from tests.support.fake_cluster.stories import EXPLICIT, produce
from tests.support.virtual_time import now_s, run, virtual

#: A leader's lease: when it has passed, another node leads.
LEASE_S = 3.0
#: The loss is noticed 3 s after the response was due; then come a metadata request, a check every second, and
#: back-offs.
NOTICED_S = 6.0

Story = Callable[[FakeCluster, SilentTransport], Awaitable[None]]


def play(story: Story, nodes: int = 3, partitions: int = 1) -> None:
    """Run the scenario. Node 1 leads every partition and can fall silent; node 0 is the coordinator."""

    async def main() -> None:
        fake = FakeCluster(nodes)
        fake.add_topic("t", partitions)
        for number in range(partitions):
            fake.move_leader("t", number, 1)
        transport = SilentTransport(fake.network)
        await story(fake, transport)

    run(main())


def settings(fake: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": fake.bootstrap, **more}


def member(fake: FakeCluster, transport: SilentTransport, **more: Any) -> ShareConsumer:
    made = ShareConsumer(settings(fake, **{"group.id": "g", **more}), transport=transport)
    made.subscribe(["t"])
    return made


async def first(consumer: ShareConsumer, within_s: float) -> list[bytes | None]:
    """The values of the first poll that returns any."""
    until = now_s() + within_s
    while now_s() < until:
        if messages := await consumer.poll(until - now_s()):
            return [message.value() for message in messages]
    return []


async def take_over(fake: FakeCluster, node: int = 2, partitions: int = 1) -> None:
    await asyncio.sleep(LEASE_S)
    for number in range(partitions):
        fake.move_leader("t", number, node)


@pytest.mark.rule("CL-34", "PL-524")
def test_records_come_from_the_new_leader_though_the_old_one_never_answers() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        async with member(fake, transport) as consumer:
            produce(fake, 1, value=b"a")
            assert await first(consumer, 5) == [b"a0"]
            await consumer.commit_sync(5)
            assert (await consumer.poll(0.1)).is_empty()
            began = now_s()
            transport.silent.add("node1:9000")
            moving = asyncio.create_task(take_over(fake))
            produce(fake, 1, value=b"b")
            assert await first(consumer, 30) == [b"b0"]
            assert now_s() - began < NOTICED_S
            await moving

    play(story)


@pytest.mark.rule("CL-33", "CL-24", "PL-524")
def test_acknowledgements_sent_to_a_silent_leader_that_lost_its_partitions_fail_as_after_a_broken_connection() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        async with member(fake, transport, **EXPLICIT) as consumer:
            produce(fake, 1)
            (message,) = await consumer.poll(5)
            consumer.acknowledge(message)
            began = now_s()
            transport.silent.add("node1:9000")
            moving = asyncio.create_task(take_over(fake))
            (outcome,) = (await consumer.commit_sync(30)).values()
            assert isinstance(outcome, NetworkError)
            assert "does not lead these partitions any more" in str(outcome)
            assert now_s() - began < NOTICED_S
            assert "node1:9000" in transport.closed
            await moving
            await transport.speak("node1:9000")

    play(story)


@pytest.mark.rule("P-4", "CL-33")
def test_a_leader_that_is_only_slow_keeps_its_session() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        async with member(fake, transport, **EXPLICIT) as consumer:
            produce(fake, 1)
            (message,) = await consumer.poll(5)
            consumer.acknowledge(message)
            committing = asyncio.create_task(consumer.commit_sync(30))
            transport.slow.add("node1:9000")
            await asyncio.sleep(15)
            assert fake.acknowledges
            assert not committing.done()
            await transport.speak("node1:9000")
            assert list((await committing).values()) == [None]
            assert transport.closed == []
            assert len([one for one in transport.asked if one[2] == "Metadata"]) < 25, "about one look each second"

    play(story)


@pytest.mark.rule("CL-33", "PL-524")
def test_a_session_is_kept_while_the_leader_has_some_of_its_partitions() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        async with member(fake, transport) as consumer:
            for number in (0, 1):
                produce(fake, 1, partition=number)
            assert await first(consumer, 5)
            assert await first(consumer, 5)
            assert (await consumer.poll(1)).is_empty()
            transport.silent.add("node1:9000")
            fake.move_leader("t", 0, 2)
            produce(fake, 1, value=b"b")
            assert await first(consumer, 10) == [b"b0"], "what moved is fetched from its new leader all the same"
            await asyncio.sleep(5)
            assert transport.closed == []
            fake.move_leader("t", 1, 2)
            produce(fake, 1, partition=1, value=b"c")
            assert await first(consumer, 10) == [b"c0"]
            assert set(transport.closed) == {"node1:9000"}

    play(story, partitions=2)


@pytest.mark.rule("CL-28", "CL-34")
def test_close_does_not_wait_for_a_silent_leader_that_lost_its_partitions() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        consumer = member(fake, transport)
        produce(fake, 1)
        assert await first(consumer, 5)
        transport.silent.add("node1:9000")
        moving = asyncio.create_task(take_over(fake))
        began = now_s()
        await consumer.close(30)
        assert now_s() - began < NOTICED_S
        assert fake.heartbeats[-1].member_epoch == -1
        await moving

    play(story)


@pytest.mark.rule("CL-28", "CL-37")
def test_close_waits_no_longer_for_a_session_that_was_being_closed_already() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        consumer = member(fake, transport, **{"fetch.max.wait.ms": 100, "metadata.max.age.ms": 1000})
        produce(fake, 1)
        assert await first(consumer, 5)
        assert (await consumer.poll(0.5)).is_empty()
        await asyncio.sleep(0.5)  # nothing is in flight
        transport.silent.add("node1:9000")
        fake.move_leader("t", 0, 2)
        await asyncio.sleep(2)  # the metadata has the change, and the session with node 1 is being closed
        fake.move_leader("t", 0, 1)  # node 1 leads again, so the close waits for it
        began = now_s()
        await consumer.close(1)
        assert now_s() - began < 1.5
        assert "node1:9000" in transport.closed

    play(story)


@pytest.mark.rule("CL-26", "CL-28")
@pytest.mark.parametrize("sent_before", [True, False])
def test_the_callback_hears_of_acknowledgements_whose_answer_close_could_not_wait_for(sent_before: bool) -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        reported: list[Any] = []
        consumer = member(fake, transport, **EXPLICIT)
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: reported.append((offsets, error)))
        produce(fake, 1)
        (message,) = await consumer.poll(5)
        consumer.acknowledge(message)
        transport.silent.add("node1:9000")
        if sent_before:
            consumer.commit_async()
            await asyncio.sleep(0.5)
        await consumer.close(2)
        ((offsets, error),) = reported
        assert list(offsets.values()) == [{0}]
        assert isinstance(error, NetworkError)

    play(story)


@pytest.mark.rule("CM-43", "CL-34")
def test_a_batch_for_a_silent_leader_goes_to_the_new_one_with_its_sequence() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        async with Producer(settings(fake), transport=transport) as producer:
            await producer.send("t", b"a")
            began = now_s()
            transport.silent.add("node1:9000")
            sending = asyncio.create_task(producer.send("t", b"b"))
            await take_over(fake)
            report = await sending
            assert now_s() - began < NOTICED_S
            assert report.offset() == 1
        sent = [batch for request in fake.produces for batch in request.topic_data[0].partition_data[0].batches]
        assert [batch.base_sequence for batch in sent] == [0, 1]

    play(story)


@pytest.mark.rule("CM-43")
def test_a_silent_leader_that_still_leads_is_waited_for() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        fake.hold_produce = asyncio.Event()
        async with Producer(settings(fake), transport=transport) as producer:
            sending = asyncio.create_task(producer.send("t", b"a"))
            await asyncio.sleep(20)
            assert not sending.done()
            fake.hold_produce.set()
            assert (await sending).offset() == 0
        assert len(fake.produces) == 1, "it was not sent again"

    play(story)


@pytest.mark.rule("CL-14", "CM-14")
def test_questions_that_any_node_answers_do_not_wait_for_a_silent_one() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        transport.silent = {"node0:9000", "node1:9000"}
        bootstrap = "node0:9000,node1:9000,node2:9000"
        async with Admin({"bootstrap.servers": bootstrap}, transport=transport) as admin:
            for _ in range(20):
                assert set(await admin.list_topics()) == {"t"}
            assert now_s() <= 2.1, "each was waited for once; those who were silent are asked last from then on"

    play(story)


@pytest.mark.rule("CL-14")
@virtual
async def test_who_is_in_charge_is_asked_three_seconds_after_the_call_and_each_second_from_then_on() -> None:
    asked: list[float] = []

    async def who() -> str:
        asked.append(now_s())
        return "new" if len(asked) == 4 else "old"

    with pytest.raises(TransportError, match="the group is at new now") as refused:
        await while_in_charge(asyncio.sleep(3600), "old", who, "the group")
    assert asked == [3, 4, 5, 6]
    assert refused.value.status is TransportStatus.UNAVAILABLE


@pytest.mark.rule("CL-14", "CL-15")
def test_a_member_finds_the_new_coordinator_though_the_old_one_never_answers() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        async with member(fake, transport) as consumer:
            await consumer.poll(2)
            heartbeats = len(fake.heartbeats)
            transport.silent.add("node0:9000")
            while len(fake.heartbeats) == heartbeats and now_s() < 60:
                fake.coordinator = 2 if now_s() > 12 else 0
                await consumer.poll(0.5)
            assert now_s() < 12 + NOTICED_S
            full = fake.heartbeats[-1]
            assert (list(full.subscribed_topic_names.values), full.member_epoch) == (["t"], 1), "CL-12"
            await transport.speak("node0:9000")

    play(story)


@pytest.mark.rule("CL-46")
def test_an_admin_call_finds_the_new_coordinator_too() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        async with Admin({"bootstrap.servers": "node1:9000"}, transport=transport) as admin:
            transport.silent.add("node0:9000")
            asking = asyncio.create_task(admin.describe_share_groups(["g"]))
            await asyncio.sleep(4)
            fake.coordinator = 2
            (described,) = (await asking).values()
            assert not isinstance(described, Exception)
            assert now_s() < 4 + 2.5

    play(story)


@pytest.mark.rule("CL-14")
@pytest.mark.parametrize("away_s", [5.0, 20.0, 20.7])
def test_after_a_full_restart_back_offs_do_not_follow_each_other(away_s: float) -> None:
    """One wait of at most retry.backoff.max.ms remains: that of the first caller. The others proceed when it ends."""

    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        nodes = list(fake.nodes)
        async with member(fake, transport) as consumer, Producer(settings(fake), transport=transport) as producer:
            produce(fake, 1, value=b"a")
            assert await first(consumer, 5) == [b"a0"]
            polling = asyncio.create_task(first(consumer, 100))
            await asyncio.sleep(1)
            for node in nodes:
                fake.network.stop(f"node{node}:9000")
            sending = asyncio.create_task(producer.send("t", b"b"))
            await asyncio.sleep(away_s)
            began = now_s()
            for node in nodes:
                fake.serve(node)
            await sending
            assert await polling
            assert now_s() - began <= 1.3
            assert fake.heartbeats[-1].member_epoch == 1

    play(story)


@pytest.mark.rule("CL-14", "CM-43")
def test_partitions_that_fail_together_make_one_step_of_the_back_off() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        async with Producer(settings(fake), transport=transport) as producer:
            await producer.send("t", b"first")
            fake.errors["produce"].extend([7] * 40)
            began = now_s()
            await asyncio.gather(*(producer.send("t", b"v", partition=number) for number in range(20)))
            assert not fake.errors["produce"]
            assert now_s() - began < 0.8, "100 ms, 200 ms and perhaps 400 ms; not the cap at once"

    play(story, partitions=20)


@pytest.mark.rule("CL-36")
def test_a_silent_leader_does_not_keep_the_others_from_being_asked() -> None:
    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        fake.move_leader("t", 1, 2)
        async with member(fake, transport) as consumer:
            for number in (0, 1):
                produce(fake, 1, partition=number)
            assert await first(consumer, 5)
            assert await first(consumer, 5)
            transport.silent.add("node1:9000")  # it leads partition 0 throughout
            produce(fake, 30, partition=1, value=b"b")
            seen: list[bytes | None] = []
            while len(seen) < 30:
                found = await first(consumer, 5)
                assert found, "the healthy leader is asked"
                seen += found
            await transport.speak("node1:9000")

    play(story, partitions=2)


@pytest.mark.rule("CL-36")
def test_where_one_leader_is_asked_at_a_time_one_that_hangs_is_waited_for_until_its_answer_is_a_second_late() -> None:
    """Covers the last clause of CL-36, for a request that does not wait for records."""

    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        fake.move_leader("t", 1, 2)
        async with member(fake, transport, **{"share.acquire.mode": "record_limit", "max.poll.records": 1}) as consumer:
            for number in (0, 1):
                produce(fake, 1, partition=number)
            assert await first(consumer, 5)
            assert await first(consumer, 5)
            transport.slow.add("node1:9000")  # it leads partition 0, which has no records
            produce(fake, 3, partition=1, value=b"b")
            began = now_s()
            assert [await first(consumer, 5) for _ in range(3)] == [[b"b0"], [b"b1"], [b"b2"]]
            assert 1.0 <= now_s() - began < 1.1
            await transport.speak("node1:9000")

    play(story, partitions=2)


@pytest.mark.rule("CL-36")
def test_one_that_hangs_while_it_waits_for_its_share_of_the_time_is_late_a_second_after_that_share() -> None:
    """Covers the last two clauses of CL-36, for leaders that have no records."""

    async def story(fake: FakeCluster, transport: SilentTransport) -> None:
        fake.move_leader("t", 1, 2)
        one_by_one = {"share.acquire.mode": "record_limit", "max.poll.records": 1, "fetch.max.wait.ms": 1000}
        async with member(fake, transport, **one_by_one) as consumer:
            for number in (0, 1):
                produce(fake, 1, partition=number)
            assert await first(consumer, 5)
            assert await first(consumer, 5)
            polling = asyncio.create_task(first(consumer, 10))
            await asyncio.sleep(1.2)  # each was first asked without waiting, and now waits for its share
            transport.slow.add("node1:9000")
            sent, since = 0, now_s()
            while now_s() - since < 0.6:  # while the leaders respond, the next request follows after 500 ms
                await asyncio.sleep(0.01)
                if len(fake.fetches) != sent:
                    sent, since = len(fake.fetches), now_s()
            assert fake.fetches[-1].max_wait_ms == 500
            produce(fake, 1, partition=1, value=b"b")
            assert await polling == [b"b0"]
            assert 1.48 <= now_s() - since < 1.6
            await transport.speak("node1:9000")

    play(story, partitions=2)


def test_a_question_that_is_given_up_ends_at_once() -> None:
    async def story() -> None:
        task = asyncio.create_task(asyncio.sleep(3_600))
        began_s = now_s()
        await _end(task)
        assert task.cancelled()
        assert now_s() == began_s

    run(story())


def test_a_question_that_failed_before_it_is_given_up_leaves_no_traceback_in_the_log() -> None:
    said: list[dict[str, Any]] = []

    async def failing() -> None:
        raise OSError("the node went away")

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        task = asyncio.create_task(failing())
        await asyncio.wait({task})
        await _end(task)
        del task
        gc.collect()

    run(story())
    assert said == []
