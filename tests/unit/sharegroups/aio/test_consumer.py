"""The asyncio share consumer against the fake cluster, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kip932.errors import KafkaError
from sharegroups.aio import ShareConsumer
from sharegroups.errors import ConcurrentModificationError, ConfigError, IllegalStateError, WakeupError
from sharegroups.messages import AcknowledgeType
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce


@pytest.mark.rule("CL-20", "CL-21", "CL-1")
@pytest.mark.scenario("S-001")
@on_fake_cluster()
async def test_polling_needs_a_subscription(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        with pytest.raises(IllegalStateError, match="not subscribed"):
            await c.poll(0.5)
        assert c.subscription() == []
        c.subscribe(["t"])
        assert (await c.poll(0.5)).is_empty()
        c.unsubscribe()
        assert c.subscription() == []
        with pytest.raises(IllegalStateError, match="not subscribed"):
            await c.poll(0.5)
        c.subscribe(["t"])
        produce(fake)
        assert len(await c.poll(5)) == 1
        c.subscribe([])
        assert c.subscription() == []
        with pytest.raises(IllegalStateError, match="not subscribed"):
            await c.poll(0.5)


@pytest.mark.rule("CL-21", "CL-22")
@pytest.mark.scenario("S-002")
@on_fake_cluster()
async def test_consecutive_polls_return_only_what_was_produced_in_between(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        seen = []
        for _ in range(3):
            messages = await c.poll(5)
            seen.append([(m.offset(), m.delivery_count(), m.value()) for m in messages])
            produce(fake)
        assert seen == [[(0, 1, b"v0")], [(1, 1, b"v0")], [(2, 1, b"v0")]]
    assert fake.states("t") == {0: "acknowledged", 1: "acknowledged", 2: "available"}


@pytest.mark.rule("CL-28")
@pytest.mark.scenario("S-008")
@on_fake_cluster()
async def test_close_sends_the_release_so_that_another_member_gets_the_record(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        c.acknowledge(message, AcknowledgeType.RELEASE)
    async with consumer(fake) as other:
        other.subscribe(["t"])
        assert [m.offset() for m in await other.poll(5)] == [0]


@pytest.mark.rule("PL-250", "CL-28")
@on_fake_cluster()
async def test_only_acquired_records_of_a_batch_are_handed_out_and_close_releases_the_rest(fake: FakeCluster) -> None:
    produce(fake, 10)
    a = consumer(fake, **{"max.poll.records": 4, "share.acquire.mode": "record_limit"})
    b = consumer(fake)
    a.subscribe(["t"])
    b.subscribe(["t"])
    assert [m.offset() for m in await a.poll(5)] == [0, 1, 2, 3]
    assert [m.offset() for m in await b.poll(5)] == [4, 5, 6, 7, 8, 9]
    await a.close()
    assert [m.offset() for m in await b.poll(5)] == [0, 1, 2, 3]
    await b.close()
    assert fake.states("t")[0] == "available"
    assert fake.states("t")[9] == "acknowledged"


@pytest.mark.rule("CL-6")
@pytest.mark.scenario("S-069")
@on_fake_cluster()
async def test_a_fenced_member_joins_again_under_its_id(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(1)
        fake.members.clear()
        await c.poll(12)
        produce(fake)
        assert not (await c.poll(5)).is_empty()
        assert {r.member_id for r in fake.heartbeats} == {c.member_id}
        assert [r.member_epoch for r in fake.heartbeats].count(0) == 2


@pytest.mark.rule("CL-9", "CL-16", "CL-28")
@pytest.mark.scenario("S-024")
@on_fake_cluster()
async def test_a_fatal_error_is_raised_by_every_poll(fake: FakeCluster) -> None:
    c = consumer(fake)
    c.subscribe(["t"])
    fake.errors["heartbeat"].append(35)
    for _ in range(2):
        with pytest.raises(KafkaError, match="not enabled"):
            await c.poll(5)
    with pytest.raises(KafkaError, match="not enabled"):
        await c.close()


@pytest.mark.rule("CL-28")
@on_fake_cluster()
async def test_close_twice_is_fine_and_other_calls_after_it_are_refused(fake: FakeCluster) -> None:
    c = consumer(fake)
    c.subscribe(["t"])
    await c.poll(1)
    await c.close()
    await c.close()
    assert fake.members == {}
    with pytest.raises(IllegalStateError, match="already been closed"):
        await c.poll(1)


@pytest.mark.rule("CL-29")
@on_fake_cluster()
async def test_a_second_task_inside_the_consumer_is_refused(fake: FakeCluster) -> None:

    async with consumer(fake) as c:
        c.subscribe(["t"])
        first = asyncio.create_task(c.poll(5))
        await asyncio.sleep(0.1)
        with pytest.raises(ConcurrentModificationError):
            await c.poll(1)
        c.wakeup()
        with pytest.raises(WakeupError):
            await first


@pytest.mark.rule("CL-40", "CL-45")
@pytest.mark.scenario("S-023")
@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "enable.auto.commit",
        "group.instance.id",
        "isolation.level",
        "partition.assignment.strategy",
        "interceptor.classes",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "group.protocol",
        "group.remote.assignor",
    ],
)
def test_settings_of_ordinary_groups_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be set when using a share group."):
        ShareConsumer({"bootstrap.servers": "h:1", "group.id": "g", name: "x"})


@pytest.mark.rule("CL-41")
@on_fake_cluster()
async def test_metrics_count_what_happened(fake: FakeCluster) -> None:
    produce(fake, 3)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(5)
        await c.commit_sync()
        metrics = {name: value for (_, name), value in c.metrics().items()}
        assert metrics["records-consumed-total"] == 3
        assert metrics["acknowledgements-send-total"] == 1
        assert metrics["rebalance-total"] == 2, "the first assignment is empty, until the partitions are initialised"
        assert len(metrics) == 29


@on_fake_cluster()
async def test_close_ends_the_connections_that_the_consumer_made_and_no_others(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fake.transport()
    closed: list[object] = []

    async def close() -> None:
        closed.append(made)

    monkeypatch.setattr(made, "close", close)
    monkeypatch.setattr("sharegroups.consuming.consumer_runtime.transport_for", lambda _: made)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    for given in (made, None):
        async with ShareConsumer(settings, transport=given) as c:
            c.subscribe(["t"])
            await c.poll(0.1)
        assert closed == ([] if given else [made])
