"""One poll, commit or close of a share consumer: its steps, their order, and their duration."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.errors import (
    GroupMaxSizeReachedError,
    InvalidTopicError,
    KafkaError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)
from sharegroups.aio import ShareConsumer
from sharegroups.errors import IllegalStateError, WakeupError
from sharegroups.messages import AcknowledgeType, Message
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.silence import SilentTransport
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.support.virtual_time import now_s

Heard = list[tuple[list[int], KafkaError | None]]


def listen(c: ShareConsumer) -> Heard:
    """Return a list to which this consumer's callback adds the offsets and error of each of its calls."""
    heard: Heard = []

    def callback(offsets: dict[Any, set[int]], error: KafkaError | None) -> None:
        (found,) = offsets.values()
        heard.append((sorted(found), error))

    c.set_acknowledgement_commit_callback(callback)
    return heard


@pytest.mark.rule("CL-20")
@on_fake_cluster()
async def test_a_subscription_replaces_the_former_one_and_its_names_are_no_patterns(fake: FakeCluster) -> None:
    fake.add_topic("u")
    for topic in ("t", "u"):
        produce(fake, topic=topic)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        assert [m.topic() for m in await c.poll(5)] == ["t"]
        for wrong in (None, [" "], ["u", ""]):
            with pytest.raises(ValueError):  # noqa: PT011 - the argument error of any caller
                c.subscribe(wrong)  # type: ignore[arg-type]
        assert c.subscription() == ["t"]
        c.subscribe(["u"])
        assert [m.topic() for m in await c.poll(10)] == ["u"]
        produce(fake, topic="t")
        c.subscribe(["^t"])
        with pytest.raises(InvalidTopicError, match=r"topic name '\^t' cannot be"):
            await c.poll(10)
        assert fake.states("t") == {0: "acknowledged"}
        assert list(fake.heartbeats[-1].subscribed_topic_names.values) in ([], ["^t"])


@pytest.mark.rule("CL-21")
@on_fake_cluster()
async def test_a_poll_first_raises_what_happened_then_runs_callbacks_then_reads_the_last_records(
    fake: FakeCluster,
) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        heard = listen(c)
        c.subscribe(["t"])
        first, second = await c.poll(5)
        c.acknowledge(first)
        c.commit_async()
        await asyncio.sleep(1)
        fake.errors["heartbeat"].append(TopicAuthorizationFailedError.code)
        await asyncio.sleep(6)
        with pytest.raises(TopicAuthorizationFailedError):
            await c.poll(1)
        assert heard == [], "what happened comes before the callbacks"
        c.unsubscribe()
        with pytest.raises(IllegalStateError, match="must be acknowledged"):
            await c.poll(1)
        assert heard == [([0], None)], "the callbacks come before a look at the records"
        c.acknowledge(second)
        with pytest.raises(IllegalStateError, match="not subscribed"):
            await c.poll(1)


@pytest.mark.rule("CL-21")
@on_fake_cluster()
async def test_a_poll_returns_records_as_soon_as_there_are_any_and_nothing_when_its_time_is_over(
    fake: FakeCluster,
) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        began = now_s()
        assert (await c.poll(3)).is_empty()
        assert now_s() - began == pytest.approx(3)
        polling = asyncio.create_task(c.poll(100))
        await asyncio.sleep(7.3)
        produce(fake)
        at = now_s()
        assert len(await polling) == 1
        assert now_s() == at


@pytest.mark.rule("CL-21", "P-1")
@on_fake_cluster()
async def test_acknowledgements_travel_with_the_next_fetch_many_in_one(fake: FakeCluster) -> None:
    produce(fake, 200)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 200
        assert len(fake.fetches) <= 2, "one opens the session"
        before = len(fake.fetches)
        assert (await c.poll(0.1)).is_empty()
        (batch,) = fake.fetches[before].topics[0].partitions[0].acknowledgement_batches
        assert (batch.first_offset, batch.last_offset, list(batch.acknowledge_types)) == (0, 199, [1])
        assert fake.acknowledges == []


@pytest.mark.rule("CL-21", "CL-36")
@on_fake_cluster(nodes=2, partitions=2)
async def test_acknowledgements_travel_alone_when_the_next_records_lie_here_already(fake: FakeCluster) -> None:
    for number in (0, 1):
        produce(fake, 3, partition=number)
    async with consumer(fake, **{"max.poll.records": 3}) as c:
        c.subscribe(["t"])
        (first, *_) = await c.poll(5)
        await asyncio.sleep(1)  # both leaders were asked at once, so the other one's records have also arrived by now
        held = [set(fake.states("t", number=number).values()) for number in (0, 1)]
        assert held == [{"acquired"}, {"acquired"}], "fetched ahead, beyond max.poll.records"
        fetches = len(fake.fetches)
        (second, *_) = await c.poll(5)
        assert second.partition() != first.partition()
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert len(fake.fetches) == fetches
        assert set(fake.states("t", number=first.partition() or 0).values()) == {"acknowledged"}
        assert len(fake.acknowledges) == 1


@pytest.mark.rule("CL-23")
@on_fake_cluster()
async def test_in_implicit_mode_neither_form_acknowledges_and_each_type_has_its_effect(fake: FakeCluster) -> None:
    produce(fake, 4)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        (message, *_) = await c.poll(5)
        with pytest.raises(IllegalStateError, match="Implicit acknowledgement of delivery is being used"):
            c.acknowledge(message)
        with pytest.raises(IllegalStateError, match="Implicit acknowledgement of delivery is being used"):
            c.acknowledge_offset("t", 0, 0)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        kinds = [AcknowledgeType.RENEW, AcknowledgeType.REJECT, AcknowledgeType.RELEASE, None]
        for message, kind in zip(await c.poll(5), kinds, strict=True):
            if kind is None:
                c.acknowledge(message)
            else:
                c.acknowledge_offset("t", 0, message.offset() or 0, kind)
        await c.commit_sync()
        (batch,) = fake.acknowledges[-1].topics[0].partitions[0].acknowledgement_batches
        assert list(batch.acknowledge_types) == [4, 3, 2, 1]
        assert list(fake.states("t").values()) == ["acquired", "archived", "available", "acknowledged"]


@pytest.mark.rule("CL-24")
@on_fake_cluster()
async def test_commit_sync_leaves_unacknowledged_records_in_flight_and_waits_for_default_api_timeout_ms(
    fake: FakeCluster,
) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT, **{"default.api.timeout.ms": 2_000}) as c:
        c.subscribe(["t"])
        first, second = await c.poll(5)
        c.acknowledge(first)
        assert list((await c.commit_sync()).values()) == [None]
        assert fake.states("t") == {0: "acknowledged", 1: "acquired"}
        c.acknowledge(second)
        fake.errors["acknowledge"].extend([15] * 100)
        began = now_s()
        (error,) = (await c.commit_sync()).values()
        assert isinstance(error, RequestTimedOutError)
        assert 1 < now_s() - began <= 2
        fake.errors["acknowledge"].clear()


@pytest.mark.rule("CL-25", "CL-26")
@on_fake_cluster()
async def test_commit_async_sends_what_the_last_poll_returned_and_neither_waits_nor_returns(fake: FakeCluster) -> None:
    produce(fake, 2)
    async with consumer(fake) as c:
        heard = listen(c)
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 2
        assert c.commit_async() is None  # type: ignore[func-returns-value] # which is what the test asserts
        assert fake.acknowledges == []
        await asyncio.sleep(0.1)
        assert fake.states("t") == {0: "acknowledged", 1: "acknowledged"}
        assert len(fake.acknowledges) == 1
        assert heard == [], "only inside a call of the application"
        c.commit_async()
        assert heard == [([0, 1], None)]
        assert len(fake.acknowledges) == 1, "nothing is left to send"


@pytest.mark.rule("CL-26")
@on_fake_cluster(partitions=2)
async def test_the_callback_runs_once_for_each_partition_and_its_error_waits_for_the_others(fake: FakeCluster) -> None:
    for number in (0, 1):
        produce(fake, 1, partition=number)
    heard: list[int] = []

    def callback(offsets: dict[Any, set[int]], error: KafkaError | None) -> None:
        heard.extend(place.partition for place in offsets)
        raise LookupError(f"of partition {heard[-1]}, the {len(heard)}. call")

    async with consumer(fake) as c:
        c.set_acknowledgement_commit_callback(callback)
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 2
        with pytest.raises(LookupError, match=r"the 1\. call"):
            await c.commit_sync()
        assert sorted(heard) == [0, 1]


@pytest.mark.rule("CL-26")
@on_fake_cluster()
async def test_the_callback_is_called_when_retries_are_over_and_none_drops_what_is_queued(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake) as c:
        heard = listen(c)
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 1
        fake.errors["acknowledge"].extend([15, 15])
        await c.commit_sync()
        assert heard == [([0], None)]
        produce(fake)
        assert len(await c.poll(5)) == 1
        c.commit_async()
        await asyncio.sleep(1)
        c.set_acknowledgement_commit_callback(None)
        later = listen(c)
        await c.poll(0.1)
        assert (heard, later) == ([([0], None)], [])


@pytest.mark.rule("CL-28")
@pytest.mark.parametrize(("settings", "arguments", "waits_s"), [
    ({"request.timeout.ms": 60_000}, (), 30),
    ({"request.timeout.ms": 2_000}, (), 2),
    ({"request.timeout.ms": 60_000}, (5,), 5),
])  # fmt: skip
@on_fake_cluster(nodes=2)
async def test_close_waits_for_thirty_seconds_or_as_long_as_asked_and_never_longer_than_one_request(
    fake: FakeCluster, settings: dict[str, int], arguments: tuple[float, ...], waits_s: float
) -> None:
    fake.move_leader("t", 0, 1)
    produce(fake)
    transport = SilentTransport(fake.network)
    c = ShareConsumer({"bootstrap.servers": fake.bootstrap, "group.id": "g", **settings}, transport=transport)
    c.subscribe(["t"])
    assert len(await c.poll(5)) == 1
    transport.silent |= {"node0:9000", "node1:9000"}  # there is no response to the session's end, nor to the leave
    began = now_s()
    await c.close(*arguments)
    assert now_s() - began == pytest.approx(waits_s, abs=0.1)


@pytest.mark.rule("CL-28")
@on_fake_cluster()
async def test_close_does_all_it_has_to_and_raises_the_first_error_then(fake: FakeCluster) -> None:
    produce(fake, 2)

    def callback(offsets: object, error: KafkaError | None) -> None:
        raise LookupError("mine")

    c = consumer(fake, **EXPLICIT)
    c.set_acknowledgement_commit_callback(callback)
    c.subscribe(["t"])
    first, _ = await c.poll(5)
    c.acknowledge(first)
    fake.errors["heartbeat"].append(GroupMaxSizeReachedError.code)
    await asyncio.sleep(6)
    with pytest.raises(LookupError, match="mine"):
        await c.close()
    assert fake.states("t") == {0: "acknowledged", 1: "available"}
    assert fake.sessions[0] == {}
    await c.close()


@pytest.mark.rule("CL-28")
@on_fake_cluster()
async def test_no_call_of_a_closed_consumer_does_anything(fake: FakeCluster) -> None:
    produce(fake)
    c = consumer(fake, **EXPLICIT)
    c.subscribe(["t"])
    (message,) = await c.poll(5)
    await c.close()
    calls = (
        lambda: c.subscribe(["t"]),
        c.unsubscribe,
        c.subscription,
        lambda: c.acknowledge(message),
        lambda: c.acknowledge_offset("t", 0, 0),
        c.commit_async,
        lambda: c.set_acknowledgement_commit_callback(None),
    )
    for call in calls:
        with pytest.raises(IllegalStateError, match="This consumer has already been closed"):
            call()
    for waiting in (c.poll(1), c.commit_sync()):
        with pytest.raises(IllegalStateError, match="This consumer has already been closed"):
            await waiting


@pytest.mark.rule("CL-29")
@on_fake_cluster()
async def test_a_wake_up_ends_a_commit_and_no_close(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 1
        fake.errors["acknowledge"].extend([15] * 50)
        committing = asyncio.create_task(c.commit_sync())
        await asyncio.sleep(0.1)
        c.wakeup()
        with pytest.raises(WakeupError):
            await committing
        c.wakeup()
    assert fake.members == {}


@pytest.mark.rule("P-14")
@on_fake_cluster()
async def test_a_poll_makes_no_object_for_a_record_before_it_is_read(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Message] = []
    make = Message.__init__

    def noted(self: Message, *arguments: Any) -> None:
        made.append(self)
        make(self, *arguments)

    monkeypatch.setattr(Message, "__init__", noted)
    produce(fake, 100)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        messages = await c.poll(5)
        assert (len(messages), len(made)) == (100, 0)
        assert messages[40].value() == b"v40"
        assert not hasattr(messages[40], "__dict__")
        assert not hasattr(messages, "__dict__")


@pytest.mark.rule("CL-147")
@on_fake_cluster()
async def test_the_groups_limit_and_dead_letter_topic_are_those_of_the_last_answer(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        assert (c.delivery_count_limit(), c.dead_letter_topic()) == (None, None), "before any answer"
        c.subscribe(["t"])
        for limit, topic in ((7, "letters"), (3, "")):
            fake.delivery_count_limit, fake.dead_letter_topic = limit, topic
            produce(fake)
            assert len(await c.poll(5)) == 1
            assert (c.delivery_count_limit(), c.dead_letter_topic()) == (limit, topic)
        fake.delivery_count_limit = fake.dead_letter_topic = None
        produce(fake)
        assert len(await c.poll(5)) == 1
        assert (c.delivery_count_limit(), c.dead_letter_topic()) == (3, ""), "a leader of an older build says neither"
