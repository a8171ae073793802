"""S-125 … S-128, and Kafka's behaviour (delivery §2): groups that read only committed records, and groups that read all
records."""

from __future__ import annotations

import time

import pytest

from sharegroups import Producer, ShareConsumer
from tests.integration.scenarios.clients import BOUND_S, World
from tests.integration.scenarios.sessions import ACCEPT, GAP, REJECT, RELEASE, Session, acquired, fx_rpc
from tests.integration.scenarios.transacting import Writer
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import QUICK, Cluster

LEVEL = "share.isolation.level"
COMMITTED, UNCOMMITTED = {LEVEL: "read_committed"}, {LEVEL: "read_uncommitted"}


class GivenUpError(Exception):
    """Raised by an application to abort a transaction."""


# ---- by clients


def _ten_transactions(world: World) -> None:
    with Producer(bootstrap_servers=world.cluster.bootstrap, transactional_id=world.topic) as producer:
        for number in range(1, 11):
            _transact(world, producer, number)


def _transact(world: World, producer: Producer, number: int) -> None:
    try:
        with producer.transaction():
            producer.produce(world.topic, f"Message {number}")
            producer.flush()
            if number % 5 == 0:
                raise GivenUpError
    except GivenUpError:
        pass


def _polled(consumer: ShareConsumer, count: int) -> list[str]:
    """Return the values polled until there are `count`, and any that arrive in the half second after that."""
    values: list[str] = []
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        messages = consumer.poll(1 if len(values) < count else 0.5)
        values += [bytes(message.value()).decode() for message in messages]
        if len(values) >= count and not messages:
            break
    consumer.commit_sync()
    return values


@pytest.mark.scenario("S-125")
@pytest.mark.rule("PL-801", "PL-802", "PL-803", "T18", "CM-44", "CL-100", "INV-2")
def test_read_committed_hides_aborted_records(cluster: Cluster) -> None:
    world = World(cluster)
    world.ask("set_group", world.group, {**COMMITTED, "share.auto.offset.reset": "earliest"})
    _ten_transactions(world)
    with world.consumer() as consumer:
        assert _polled(consumer, 8) == [f"Message {n}" for n in range(1, 11) if n % 5]
    world.until_state(20, [])


@pytest.mark.scenario("S-126")
@pytest.mark.rule("PL-801", "PL-802")
def test_read_uncommitted_delivers_aborted_records_too(cluster: Cluster) -> None:
    world = World(cluster)
    world.ask("set_group", world.group, {**UNCOMMITTED, "share.auto.offset.reset": "earliest"})
    _ten_transactions(world)
    with world.consumer() as consumer:
        assert _polled(consumer, 10) == [f"Message {n}" for n in range(1, 11)]


# ---- RPC by RPC


class Reader:
    """A member's session; it acknowledges the markers that it acquires with GAP, as clients do."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.markers: set[int] = set()

    async def take(self, *wanted: int) -> list[tuple[int, int]]:
        """Acquire until these offsets have arrived and a fetch has returned nothing; returns (offset, delivery count)
        of each record."""
        got: list[tuple[int, int]] = []
        async for _ in attempts():
            ranges = acquired(await self.session.fetch(wait_ms=500))
            every = [(at, count) for first, last, count in ranges for at in range(first, last + 1)]
            for at in sorted({at for at, _ in every} & self.markers):
                assert await self.session.ack(at, at, GAP) == 0
            got += [(at, count) for at, count in every if at not in self.markers]
            if not ranges and {at for at, _ in got} >= set(wanted):
                return got
        raise AssertionError(f"wanted {wanted}, got {got}")

    async def answer(self, kind: int, *offsets: int) -> None:
        for offset in offsets:
            assert await self.session.ack(offset, offset, kind) == 0

    async def lag(self, topic: str) -> int:
        return (await self.session.wire.lag(self.session.group, topic))[1]

    async def level(self, level: dict[str, str]) -> None:
        await self.session.wire.set_group(self.session.group, level)


async def _reading(wire: Wire, level: dict[str, str]) -> tuple[Reader, Writer, str]:
    session, topic = await fx_rpc(wire, level)
    reader, writer = Reader(session), Writer(wire, session.topic_id)
    return reader, writer, topic


async def _one(reader: Reader, writer: Writer, *, commit: bool) -> int:
    """Run a transaction of one record; returns its offset."""
    base = await writer.transact(1, commit=commit)
    reader.markers.add(base + 1)
    return base


@pytest.mark.scenario("S-127")
@pytest.mark.rule("PL-806", "PL-804", "PL-801")
@pytest.mark.asyncio
async def test_released_aborted_records_do_not_come_again_under_read_committed(wire: Wire) -> None:
    reader, writer, _ = await _reading(wire, UNCOMMITTED)
    m1, m2 = await _one(reader, writer, commit=True), await _one(reader, writer, commit=False)
    assert await reader.take(m1, m2) == [(m1, 1), (m2, 1)]
    await reader.answer(ACCEPT, m1, m2)
    m3, m4 = await _one(reader, writer, commit=True), await _one(reader, writer, commit=False)
    assert await reader.take(m3, m4) == [(m3, 1), (m4, 1)]
    await reader.level(COMMITTED)
    await reader.answer(RELEASE, m3, m4)
    m5 = await _one(reader, writer, commit=True)
    for _ in range(2):
        await _one(reader, writer, commit=False)
    m8 = await _one(reader, writer, commit=True)
    assert await reader.take(m3, m5, m8) == [(m3, 2), (m5, 1), (m8, 1)]
    await reader.answer(ACCEPT, m3, m5, m8)
    await wire.until_state(reader.session.group, reader.session.topic_id, m8 + 2, [])


@pytest.mark.scenario("S-128")
@pytest.mark.rule("PL-806", "PL-803", "T18")
@pytest.mark.parametrize("kind", [RELEASE, REJECT])
@pytest.mark.asyncio
async def test_what_was_archived_under_read_committed_stays_away(wire: Wire, kind: int) -> None:
    reader, writer, _ = await _reading(wire, COMMITTED)
    m1, _ = await _one(reader, writer, commit=True), await _one(reader, writer, commit=False)
    m3, _ = await _one(reader, writer, commit=True), await _one(reader, writer, commit=False)
    assert await reader.take(m1, m3) == [(m1, 1), (m3, 1)]
    await reader.answer(ACCEPT, m1)
    await reader.answer(kind, m3)
    await reader.level(UNCOMMITTED)
    more = [await _one(reader, writer, commit=commit) for commit in (True, False, False, True)]
    again = [(m3, 2)] if kind == RELEASE else []
    assert await reader.take(*more) == [*again, *((offset, 1) for offset in more)]


async def _kafkas_log(reader: Reader, writer: Writer) -> Writer:
    """Write records 0–1 without a transaction, 2–3 committed (marker 4), 5–6 aborted (marker 7), 8 without one, 9–10 in
    an open one, 11–12 without one; returns the writer of the open transaction."""
    wire, topic_id = writer.wire, writer.topic_id
    await wire.produce(topic_id, 2)
    assert await writer.transact(2, commit=True) == 2
    assert await writer.transact(2, commit=False) == 5
    reader.markers |= {4, 7}
    await wire.produce(topic_id, 1)
    other = Writer(wire, topic_id)
    assert await other.write(2) == 9
    await wire.produce(topic_id, 2)
    return other


@pytest.mark.rule("PL-802", "PL-804", "PL-807", "12.8", "PL-214", "CM-150", "CM-154")
@pytest.mark.asyncio
async def test_committed_records_behind_an_open_transaction_wait_for_its_end_as_in_kafka(wire: Wire) -> None:
    reader, writer, topic = await _reading(wire, COMMITTED)
    other = await _kafkas_log(reader, writer)
    assert [at for at, _ in await reader.take(0, 1, 2, 3, 8)] == [0, 1, 2, 3, 8]
    await reader.answer(ACCEPT, 0, 1, 2, 3, 8)
    assert await reader.lag(topic) == 4, "counted to the high watermark, not to the last stable offset"
    assert await reader.take() == []
    assert not (await other.end(commit=True)).error_code
    reader.markers.add(13)
    assert [at for at, _ in await reader.take(9, 10, 11, 12)] == [9, 10, 11, 12]
    await reader.answer(ACCEPT, 9, 10, 11, 12)
    await wire.until_state(reader.session.group, reader.session.topic_id, 14, [])


@pytest.mark.rule("PL-802", "PL-804")
@pytest.mark.asyncio
async def test_uncommitted_reads_deliver_aborted_and_open_records_as_in_kafka(wire: Wire) -> None:
    reader, writer, topic = await _reading(wire, UNCOMMITTED)
    other = await _kafkas_log(reader, writer)
    everything = [0, 1, 2, 3, 5, 6, 8, 9, 10, 11, 12]
    assert [at for at, _ in await reader.take(*everything)] == everything
    await reader.answer(ACCEPT, *everything)
    assert await reader.lag(topic) == 0
    assert not (await other.end(commit=True)).error_code
    reader.markers.add(13)
    assert await reader.take() == [], "only the marker is taken"
    await wire.until_state(reader.session.group, reader.session.topic_id, 14, [])


@pytest.mark.rule("PL-806", "PL-802", "T18", "CM-150")
@pytest.mark.parametrize("then", ["aborted", "uncommitted"])
@pytest.mark.asyncio
async def test_a_live_switch_of_the_level_acts_on_the_next_fetch_as_in_kafka(wire: Wire, then: str) -> None:
    reader, writer, _ = await _reading(wire, UNCOMMITTED)
    assert await writer.transact(2, commit=False) == 0
    reader.markers.add(2)
    await wire.produce(writer.topic_id, 1)
    other = Writer(wire, writer.topic_id)
    assert await other.write(2) == 4
    await wire.produce(writer.topic_id, 1)
    records = [0, 1, 3, 4, 5, 6]
    assert [at for at, _ in await reader.take(*records)] == records
    await reader.level(COMMITTED)
    await reader.answer(RELEASE, *records)
    assert await reader.take(3) == [(3, 2)]
    await reader.answer(ACCEPT, 3)
    await wire.until_state(reader.session.group, reader.session.topic_id, 4, [(4, 6, 0, 1)])
    if then == "aborted":
        assert not (await other.end(commit=False)).error_code
        reader.markers.add(7)
        assert await reader.take(6) == [(6, 2)], "4 and 5 never come again, though they had been delivered once"
        await reader.answer(ACCEPT, 6)
        await wire.until_state(reader.session.group, reader.session.topic_id, 8, [])
    else:
        await reader.level(UNCOMMITTED)
        assert await reader.take(4, 5, 6) == [(4, 2), (5, 2), (6, 2)]


@pytest.mark.rule("CM-156", "CM-155")
@pytest.mark.asyncio
async def test_a_transaction_that_is_not_ended_is_aborted_at_its_time_out(wire: Wire) -> None:
    reader, writer, _ = await _reading(wire, COMMITTED)
    hanging = Writer(wire, writer.topic_id, timeout_ms=1_500)
    assert await hanging.write(1) == 0
    assert await writer.transact(1, commit=True) == 1
    reader.markers |= {2, 3}
    assert await reader.take(1) == [(1, 1)]
    refused = await hanging.end(commit=True)
    assert "time" in refused.error_message
    assert "aborted" in refused.error_message


@pytest.mark.rule("PL-805", "PL-803", "CM-150")
@pytest.mark.asyncio
async def test_aborted_records_stay_hidden_after_the_leader_was_killed_as_in_kafka() -> None:
    with Cluster(QUICK) as cluster:
        async with Wire(cluster.bootstrap, cluster.internal) as wire:
            reader, writer, topic = await _reading(wire, COMMITTED)
            await wire.produce(writer.topic_id, 1)
            assert await writer.transact(2, commit=False) == 1
            reader.markers.add(3)
            await wire.produce(writer.topic_id, 1)
            assert [at for at, _ in await reader.take(0, 4)] == [0, 4]
            await reader.answer(RELEASE, 0)
            await reader.answer(ACCEPT, 4)
            group, topic_id = reader.session.group, reader.session.topic_id
        cluster.node.kill()
        cluster.start()
        async with Wire(cluster.bootstrap, cluster.internal) as wire:
            member = await wire.join(group, [topic])
            again = Session(wire, group, member, topic_id)
            await again.fetch(epoch=0, wait_ms=0)
            found = acquired(await again.fetch(wait_ms=5_000)) or await again.acquire()
            records = [at for first, last, _ in found for at in range(first, last + 1) if at != 3]
            assert records == [0], "the hole in the state is not delivered again"
