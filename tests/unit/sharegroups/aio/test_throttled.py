"""A node that throttles is left alone by all calls of a client for as long as it asks; nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from kip932.api.v1 import produce_pb2
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import KafkaError, RequestTimedOutError, ThrottlingQuotaExceededError
from kip932.ids import TopicPartition
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.aio import Admin, Producer
from sharegroups.connection import wire
from sharegroups.connection.cluster import ThrottledTransport
from sharegroups.connection.core.throttle import THROTTLE_MAX_MS, Throttle
from sharegroups.consuming.core.fetch_session import FetchSession
from sharegroups.errors import IllegalStateError
from tests.support.fake_cluster import leader as fake_leader
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.faults import NO_ROOM
from tests.support.fake_cluster.stories import EXPLICIT, consumer, produce
from tests.support.virtual_time import now_s, run, virtual
from tests.twin.transport import InMemoryTransport

WISH_MS = 5_000


class Timed(FakeCluster):
    """Records when each request came, and which requests were refused for lack of room."""

    def __init__(self, nodes: int = 1) -> None:
        super().__init__(nodes)
        self.throttle_ms = WISH_MS
        self.asked: list[tuple[str, float]] = []
        self.add_topic("t")

    def take_error(self, what: str) -> ErrorCode.ValueType:
        self.asked.append((what, now_s()))
        return super().take_error(what)

    def times(self, what: str) -> list[float]:
        return [time for name, time in self.asked if name == what]


def play(story: Callable[[Timed], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(Timed())

    run(main())


def least_gap(times: list[float]) -> float:
    return min(later - sooner for sooner, later in pairwise(times))


@pytest.mark.rule("CL-86")
def test_a_node_is_free_again_when_the_longest_of_its_wishes_is_over() -> None:
    throttle = Throttle()
    assert THROTTLE_MAX_MS == 30_000
    assert (throttle.until_ms("a"), throttle.until_ms(None)) == (0, 0)
    throttle.note("a", 500, 1_000)
    throttle.note("a", 100, 1_200)
    throttle.note("b", -1, 1_200)
    assert (throttle.until_ms("a"), throttle.until_ms("b")) == (1_501, 0)
    throttle.note("b", 2**31 - 1, 2_000)
    assert (throttle.until_ms("a"), throttle.until_ms("b")) == (0, 2_000 + THROTTLE_MAX_MS + 1)


@pytest.mark.rule("CL-86", "CL-87")
def test_a_fetch_that_was_refused_waits_and_loses_neither_acknowledgements_nor_partitions() -> None:
    async def story(fake: Timed) -> None:
        produce(fake, 2)
        heard: list[KafkaError | None] = []
        async with consumer(fake) as c:
            c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append(error))
            c.subscribe(["t"])
            assert len(await c.poll(5)) == 2
            fake.errors["fetch_top"].append(NO_ROOM)
            fetches = len(fake.times("fetch_top"))
            assert (await c.poll(20)).is_empty()  # the refused fetch carries the acknowledgements
            refused, again = fake.times("fetch_top")[fetches : fetches + 2]
            assert again - refused >= WISH_MS / 1000
            assert fake.states("t") == {0: "acknowledged", 1: "acknowledged"}
            assert len(fake.sessions[0]) == 1
            produce(fake)
            assert len(await c.poll(5)) == 1
        assert heard[:1] == [None]

    play(story)


@pytest.mark.rule("CL-86", "CL-87")
@pytest.mark.parametrize("wish_ms", [WISH_MS, 0])
def test_acknowledgements_that_were_refused_go_again_until_they_are_taken(wish_ms: int) -> None:
    async def story(fake: Timed) -> None:
        fake.throttle_ms = wish_ms
        produce(fake, 2)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            for message in await c.poll(5):
                c.acknowledge(message)
            fake.errors["acknowledge_top"].extend([NO_ROOM, NO_ROOM])
            assert list((await c.commit_sync(30)).values()) == [None]
            times = fake.times("acknowledge_top")
            assert len(times) == 3
            assert least_gap(times) >= max(wish_ms / 1000, 0.08)
        assert fake.states("t") == {0: "acknowledged", 1: "acknowledged"}

    play(story)


@pytest.mark.rule("CL-87")
@pytest.mark.parametrize("wish_ms", [WISH_MS, 25_000, 0])
def test_close_sends_what_was_refused_before_its_time_is_over(wish_ms: int) -> None:
    async def story(fake: Timed) -> None:
        fake.throttle_ms = wish_ms
        produce(fake, 2)
        heard: list[KafkaError | None] = []
        c = consumer(fake, **EXPLICIT)
        c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append(error))
        c.subscribe(["t"])
        for message in await c.poll(5):
            c.acknowledge(message)
        fake.errors["acknowledge_top"].append(NO_ROOM)  # including the request that would close the session
        began = now_s()
        await c.close(20)
        assert now_s() - began < 20
        assert max(fake.times("acknowledge_top")) - began <= 10.5, "not past half of its time"
        assert heard == [None]
        assert fake.states("t") == {0: "acknowledged", 1: "acknowledged"}
        assert not fake.sessions[0]

    play(story)


@pytest.mark.rule("CL-87")
def test_an_acknowledgement_is_not_held_back_until_its_lock_has_run_out() -> None:
    async def story(fake: Timed) -> None:
        fake.throttle_ms, fake.lock_ms = 30_000, 15_000
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            for message in await c.poll(5):
                c.acknowledge(message)
            locked = now_s()
            fake.errors["acknowledge_top"].append(NO_ROOM)
            assert list((await c.commit_sync(30)).values()) == [None]
            refused, again = fake.times("acknowledge_top")
            assert again - refused > 10, "the wish counts until then"
            assert again - locked <= 15 * 3 / 4
            assert fake.states("t") == {0: "acknowledged"}

    play(story)


@pytest.mark.rule("CL-87")
def test_acknowledgements_that_are_refused_for_ever_fail_at_their_deadline() -> None:
    async def story(fake: Timed) -> None:
        fake.throttle_ms = 0
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            for message in await c.poll(5):
                c.acknowledge(message)
            fake.errors["acknowledge_top"].extend([NO_ROOM] * 100)
            began = now_s()
            (error,) = (await c.commit_sync(3)).values()
            assert isinstance(error, RequestTimedOutError)
            assert 2 < now_s() - began <= 3, "no try is begun that would be over too late"
            asked = len(fake.times("acknowledge_top"))
            assert asked > 2
            await asyncio.sleep(5)
            assert len(fake.times("acknowledge_top")) == asked, "they go no more"
            fake.errors["acknowledge_top"].clear()

    play(story)


@pytest.mark.rule("CL-87")
def test_what_a_refused_request_said_of_its_session_is_said_again() -> None:
    session, a, b = FetchSession(), TopicPartition("t", 0), TopicPartition("t", 1)
    keys: Any = {a: "t"}
    session.opened(session.fetch_step(keys).generation, 7)
    changed = session.fetch_step({b: "t"})  # type: ignore[dict-item]  # any key will do
    session.refused(changed)
    assert session.fetch_step({b: "t"}) == changed  # type: ignore[dict-item]
    behind = session.acknowledge_step()
    session.refused(changed)
    assert session.acknowledge_step().epoch == behind.epoch + 1
    closing, known = session.close_step(), session.known
    session.refused(closing)
    assert (session.is_established, session.generation, session.known) == (True, closing.generation, known)
    assert session.close_step() == closing


@pytest.mark.rule("CL-86")
def test_the_admin_client_waits_as_long_as_asked_and_asks_again() -> None:
    async def story(fake: Timed) -> None:
        fake.errors["list_groups"].append(NO_ROOM)
        async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
            assert [group.group_id for group in await admin.list_groups()] == ["g"]
        assert least_gap(fake.times("list_groups")) >= WISH_MS / 1000

    play(story)


class Refusing(InMemoryTransport):
    """Ends calls of these methods with RESOURCE_EXHAUSTED and RetryInfo, each method `times` times."""

    def __init__(self, fake: FakeCluster, *methods: str, times: int = 1) -> None:
        super().__init__(fake.network, "client")
        self.left = dict.fromkeys(methods, times)
        self.asked: list[tuple[str, float]] = []
        self.addresses: list[str] = []

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        self.asked.append((method.name, now_s()))
        self.addresses.append(address)
        if self.left.get(method.name, 0):
            self.left[method.name] -= 1
            raise TransportError(TransportStatus.RESOURCE_EXHAUSTED, address, "no room", WISH_MS)
        if method is wire.LIST_OFFSETS:
            return method.response_type()
        return await super().call(address, method, request, timeout_s)


@pytest.mark.rule("CL-86")
def test_statuses_with_retry_info_are_obeyed_by_calls_to_leaders_coordinators_and_any_node() -> None:
    async def story(fake: Timed) -> None:
        methods = ("Metadata", "ListOffsets", "FindCoordinator", "ShareGroupDescribe", "CreateTopics")
        transport = Refusing(fake, *methods)
        async with Admin({"bootstrap.servers": fake.bootstrap}, transport=transport) as admin:
            assert await admin.list_offsets([TopicPartition("t", 0)]) == {}
            assert not isinstance((await admin.describe_share_groups(["g"]))["g"], KafkaError)
            assert await admin.create_topics(["new"]) == {"new": None}
        for method in methods:
            refused, again = [time for name, time in transport.asked if name == method][:2]
            assert again - refused >= WISH_MS / 1000
        assert len(transport.asked) < 15

    play(story)


@pytest.mark.rule("CL-86")
def test_a_call_that_waits_ends_when_its_time_is_over_or_the_client_is_closed() -> None:
    async def story(fake: Timed) -> None:
        transport = ThrottledTransport(fake.transport())
        transport.note_throttle(fake.bootstrap, 20_000)
        request = wire.METADATA.request_type()
        with pytest.raises(TransportError, match="left alone for") as refused:
            await transport.call(fake.bootstrap, wire.METADATA, request, 3)
        assert refused.value.status is TransportStatus.RESOURCE_EXHAUSTED
        assert now_s() == pytest.approx(3, abs=0.1)
        waiting = asyncio.create_task(transport.call(fake.bootstrap, wire.METADATA, request, 60))
        await asyncio.sleep(1)
        await transport.close()
        with pytest.raises(IllegalStateError, match="closed while it waited for node0:9000"):
            await waiting
        assert now_s() < 5

    play(story)


@pytest.mark.rule("CL-86")
def test_a_producer_leaves_a_leader_alone_after_an_answer_that_says_so_although_nothing_failed() -> None:
    async def story(fake: Timed) -> None:
        async with Producer({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as p:
            await p.send("t", b"a")
            p.cluster.transport.note_throttle(fake.bootstrap, WISH_MS)
            await p.send("t", b"b")
            assert least_gap(fake.times("produce")) >= WISH_MS / 1000
            assert len(fake.times("produce")) == 2

    play(story)


@pytest.mark.rule("CL-86")
def test_the_wish_of_an_answer_that_succeeded_holds_for_all_that_the_client_asks_of_that_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = fake_leader.Leader._produce

    def busy(leader: fake_leader.Leader, request: produce_pb2.ProduceRequest) -> produce_pb2.ProduceResponse:
        response = taken(leader, request)
        response.throttle_time_ms = WISH_MS
        return response

    monkeypatch.setattr(fake_leader.Leader, "_produce", busy)

    async def story(fake: Timed) -> None:
        async with Producer({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as p:
            await p.send("t", b"a")
            began, asked = now_s(), fake.metadata_requests
            looking = asyncio.create_task(p.cluster.fetch_metadata(["t"]))
            await asyncio.sleep(WISH_MS / 1000 - 0.1)
            assert fake.metadata_requests == asked
            await looking
            await p.send("t", b"b")
            assert least_gap(fake.times("produce")) >= WISH_MS / 1000
            assert now_s() - began < WISH_MS / 1000 + 1

    play(story)


@pytest.mark.rule("CL-86")
@virtual
async def test_who_may_ask_any_node_asks_another_one_meanwhile() -> None:
    fake = Timed(2)
    transport = Refusing(fake)
    async with Producer({"bootstrap.servers": fake.bootstrap}, transport=transport) as p:
        await p.cluster.fetch_metadata([])
        p.cluster.transport.note_throttle("node0:9000", 20_000)
        began, before = now_s(), len(transport.addresses)
        for _ in range(5):
            await p.cluster.fetch_metadata(["t"])
        assert now_s() - began < 0.5
        assert set(transport.addresses[before:]) == {"node1:9000"}


def test_the_number_is_kafkas() -> None:
    assert ThrottlingQuotaExceededError.code == NO_ROOM


def test_a_session_that_is_refused_again_and_again_is_opened_ever_later() -> None:
    async def story(fake: Timed) -> None:
        fake.errors["fetch_top"].extend([ErrorCode.ERROR_CODE_SHARE_SESSION_NOT_FOUND] * 5)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(10)
        gaps = [later - sooner for sooner, later in pairwise(fake.times("fetch_top")[:6])]
        assert gaps[0] >= 0.08, "the first back-off is 100 ms, give or take a fifth"
        assert gaps[0] < gaps[1] < gaps[2]

    play(story)
