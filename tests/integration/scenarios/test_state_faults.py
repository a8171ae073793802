"""S-053 … S-058, S-062: state writes that are slow or are refused, between a real leader and a real share
coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kip932 import errors
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeResponse
from kip932.ids import STATE_ACKNOWLEDGED, STATE_ARCHIVED, STATE_AVAILABLE
from tests.integration.scenarios.sessions import (
    ACCEPT,
    RELEASE,
    Keeping,
    Session,
    acquired,
    all_of,
    another,
    fx_rpc,
    holding,
    part,
)
from tests.integration.scenarios.state_edge import StateEdge, cluster_with_an_edge
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

NONE = 0
STATE = errors.InvalidRecordStateError.code
UNKNOWN_PARTITION = errors.UnknownTopicOrPartitionError.code
NOT_AVAILABLE = errors.CoordinatorNotAvailableError.code
NOT_LEADER = errors.NotLeaderOrFollowerError.code
GROUP_GONE = errors.GroupIdNotFoundError.code
SHORT = {"share.record.lock.duration.ms": "1000"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edged() -> AsyncIterator[tuple[Cluster, StateEdge]]:
    async with cluster_with_an_edge() as made:
        yield made


@pytest.fixture
def edge(edged: tuple[Cluster, StateEdge]) -> StateEdge:
    return edged[1]


@pytest_asyncio.fixture(loop_scope="module")
async def wire(edged: tuple[Cluster, StateEdge]) -> AsyncIterator[Wire]:
    async with Wire(edged[0].bootstrap, edged[0].internal) as made:
        yield made


async def _beside(session: Session, topic: str) -> Session:
    """A second member with an open session that holds nothing."""
    other = await another(session, topic)
    assert (await other.fetch(epoch=0, wait_ms=0, max_records=0)).error_code == NONE
    return other


async def _until_refused(edge: StateEdge, group: str) -> None:
    async for _ in attempts():
        if edge.refused(group):
            return
    raise AssertionError(f"nothing of {group} was written")


@pytest.mark.scenario("S-053")
async def test_expiry_takes_effect_even_if_persisting_fails(wire: Wire, edge: StateEdge) -> None:
    m1, topic = await holding(wire, 5, 14, SHORT)
    edge.refuse(m1.group, GROUP_GONE)
    m2 = await _beside(m1, topic)
    await _until_refused(edge, m1.group)
    assert await m2.acquire() == [(5, 14, 2)]
    assert (await wire.state(m1.group, m1.topic_id))[:2] == (5, []), "the write failed"


async def _accepted(session: Session, first: int, last: int) -> None:
    """Retry the accept until it succeeds: the records are pending until the stored state has been read back
    (PL-707)."""
    async for _ in attempts():
        code = await session.ack(first, last, ACCEPT)
        if code == NONE:
            return
        assert code == STATE
    raise AssertionError(f"{first}-{last} stay pending")


@pytest.mark.scenario("S-054")
async def test_an_acknowledgement_that_cannot_be_persisted_fails_and_leaves_the_lock(
    wire: Wire, edge: StateEdge
) -> None:
    m1, topic = await holding(wire, 5, 14)
    m2 = await _beside(m1, topic)
    edge.refuse(m1.group, NOT_AVAILABLE)
    assert await m1.ack(5, 14, ACCEPT) == NOT_AVAILABLE
    edge.repair(m1.group)
    assert acquired(await m2.fetch(wait_ms=300)) == []
    assert (await wire.state(m1.group, m1.topic_id))[:2] == (5, [])
    await _accepted(m1, 5, 14)
    assert (await wire.state(m1.group, m1.topic_id))[:2] == (15, [])


@pytest.mark.scenario("S-054")
async def test_the_lock_of_a_failed_acknowledgement_is_the_old_one(wire: Wire, edge: StateEdge) -> None:
    """Records 10-14, acquired later but before the failure, become available after these do; a new lock would reverse
    that."""
    m1, topic = await holding(wire, 0, 9, {"share.record.lock.duration.ms": "5000"})
    await wire.produce(m1.topic_id, 5)
    m2 = await _beside(m1, topic)
    edge.refuse(m1.group, NOT_AVAILABLE)
    failing = asyncio.create_task(m1.ack(0, 9, ACCEPT))
    await _until_refused(edge, m1.group)
    m3 = await _beside(m1, topic)
    assert await m3.acquire() == [(10, 14, 1)]
    assert await failing == NOT_AVAILABLE
    edge.repair(m1.group)
    assert (await m2.acquire())[0] == (0, 9, 2)


@pytest.mark.scenario("S-054")
async def test_errors_of_writes_are_reported_to_the_member_that_acknowledged(wire: Wire, edge: StateEdge) -> None:
    """For each error of the write: the error reported, and the results that the same acknowledgement may get
    afterwards."""
    kept, dropped = {NONE}, {UNKNOWN_PARTITION}
    expected: dict[type[errors.KafkaError], tuple[int, set[int]]] = {
        errors.UnknownTopicOrPartitionError: (UNKNOWN_PARTITION, dropped),
        errors.GroupIdNotFoundError: (GROUP_GONE, dropped),
        errors.NotCoordinatorError: (NOT_AVAILABLE, kept),
        errors.CoordinatorLoadInProgressError: (NOT_AVAILABLE, kept),
        # This process must assume that another one leads; it claims the partition again.
        errors.FencedLeaderEpochError: (NOT_LEADER, {NOT_LEADER, UNKNOWN_PARTITION}),
        errors.FencedStateEpochError: (NOT_LEADER, dropped),
        errors.KafkaStorageError: (errors.UnknownServerError.code, kept),
    }

    async def played(refusal: type[errors.KafkaError]) -> None:
        first, repeats = expected[refusal]
        m1, topic = await holding(wire, 5, 14)
        edge.refuse(m1.group, refusal.code)
        assert await m1.ack(5, 14, ACCEPT) == first, refusal
        edge.repair(m1.group)
        async for _ in attempts():
            if (again := await m1.ack(5, 14, ACCEPT)) != STATE:
                break
        assert again in repeats, refusal
        assert (await wire.state(m1.group, m1.topic_id)).start == (15 if again == NONE else 5)
        if repeats == dropped:
            assert await (await _beside(m1, topic)).acquire() == [(5, 14, 1)], "its successor knows of no delivery"

    await asyncio.gather(*(played(refusal) for refusal in expected))


@pytest.mark.scenario("S-055")
async def test_a_release_that_is_still_being_persisted_is_not_acquirable(wire: Wire, edge: StateEdge) -> None:
    m1, topic = await holding(wire, 21, 30)
    m2 = await _beside(m1, topic)
    held = edge.hold(m1.group)
    releasing = asyncio.create_task(m1.ack(21, 30, RELEASE))
    await held.came.wait()
    assert acquired(await m2.fetch(wait_ms=300)) == []
    assert not releasing.done()
    held.let_go()
    assert await m2.acquire() == [(21, 30, 2)]
    assert await releasing == NONE


@pytest.mark.scenario("S-056")
async def test_a_lock_that_expires_while_an_accept_is_persisted_that_then_fails(wire: Wire, edge: StateEdge) -> None:
    """Records 2-3 show that the lock time has passed: they were acquired later, and are available."""
    m1, topic = await holding(wire, 0, 1, SHORT)
    await wire.produce(m1.topic_id, 2)
    m2 = await _beside(m1, topic)
    held = edge.hold(m1.group)
    accepting = asyncio.create_task(m1.ack(0, 1, ACCEPT))
    await held.came.wait()
    edge.refuse(m1.group, NOT_AVAILABLE)
    m3 = await _beside(m1, topic)
    assert await m3.acquire() == [(2, 3, 1)]
    assert await m2.acquire() == [(2, 3, 2)]
    keeping = Keeping(m2, 2, 3)
    assert not accepting.done()
    held.let_go()
    assert await accepting == NOT_AVAILABLE
    m4 = await _beside(m1, topic)
    assert await m4.acquire() == [(0, 1, 2)]
    await keeping.end()
    edge.repair(m1.group)
    assert await m4.ack(0, 1, ACCEPT) == NONE


@pytest.mark.scenario("S-057")
async def test_a_pending_accept_that_fails_after_the_lock_expired_at_the_limit_archives(
    wire: Wire, edge: StateEdge
) -> None:
    """0-1 are kept by renewals, so that the window does not move and every state can be read.

    Records 12-16 show that the lock time has passed: they were acquired later, and are available.
    """
    m1, topic = await holding(wire, 0, 1, {**SHORT, "share.delivery.count.limit": "2"})
    keeping = [Keeping(m1, 0, 1)]
    m2, m3, m4 = [await _beside(m1, topic) for _ in range(3)]
    for _ in range(2):
        await wire.produce(m1.topic_id, 5)
    assert await all_of(m2, 10) == [(2, 11, 1)]
    assert await m2.ack(2, 11, RELEASE) == NONE
    assert await all_of(m2, 10) == [(2, 11, 2)]
    held, epoch = edge.hold(m1.group), m2.epoch
    accepting = [asyncio.create_task(m2.acknowledge((3, 3, [ACCEPT]), epoch=epoch))]
    await held.came.wait()
    accepting.append(asyncio.create_task(m2.acknowledge((7, 11, [ACCEPT]), epoch=epoch + 1)))
    edge.refuse(m1.group, NOT_AVAILABLE)
    await wire.produce(m1.topic_id, 5)
    assert await m3.acquire() == [(12, 16, 1)]
    assert await m4.acquire() == [(12, 16, 2)], "2 and 4-6 are not Available"
    keeping.append(Keeping(m4, 12, 16))
    for later, lost in enumerate(((2, 2, [ACCEPT]), (4, 6, [ACCEPT])), 2):
        assert part(await m2.acknowledge(lost, epoch=epoch + later)).error_code == STATE, "nor held"
    assert not any(one.done() for one in accepting)
    held.let_go()
    for answer in await asyncio.gather(*accepting):
        assert part(answer).error_code == NOT_AVAILABLE
    assert acquired(await m3.fetch(wait_ms=300)) == []
    edge.repair(m1.group)
    await keeping.pop().end()
    await _accepted(m4, 12, 16)
    archived = [(2, 11, STATE_ARCHIVED, 2), (12, 16, STATE_ACKNOWLEDGED, 2)]
    await wire.until_state(m1.group, m1.topic_id, 0, archived)
    await wire.produce(m1.topic_id, 1)
    assert await m3.acquire() == [(17, 17, 1)]
    await keeping.pop().end()
    assert await m1.ack(0, 1, ACCEPT) == NONE
    assert (await wire.state(m1.group, m1.topic_id)).start == 17


@pytest.mark.scenario("S-058")
async def test_a_stale_timer_never_undoes_an_acknowledgement(wire: Wire, edge: StateEdge) -> None:
    """20-24 were acquired last and not acknowledged: once they are available, all timers have fired."""
    m1, topic = await fx_rpc(wire, {"share.record.lock.duration.ms": "2000"})
    for last, size in ((4, 5), (19, 15), (24, 5)):
        await wire.produce(m1.topic_id, size)
        assert await m1.acquire() == [(last - size + 1, last, 1)]
    held = edge.hold(m1.group)
    doing: list[asyncio.Task[ShareAcknowledgeResponse]] = []
    for first, last, kind in ((0, 0, RELEASE), (1, 1, ACCEPT), (5, 19, ACCEPT)):
        doing.append(asyncio.create_task(m1.acknowledge((first, last, [kind]), epoch=m1.epoch + len(doing))))
        await held.came.wait()
    held.let_go()
    assert [part(answer).error_code for answer in await asyncio.gather(*doing)] == [NONE] * 3
    done = [(0, 0, STATE_AVAILABLE, 1), (1, 1, STATE_ACKNOWLEDGED, 1)]
    accepted = (5, 19, STATE_ACKNOWLEDGED, 1)
    assert (await wire.state(m1.group, m1.topic_id))[:2] == (0, [*done, accepted])
    expired = [(2, 4, STATE_AVAILABLE, 1), accepted, (20, 24, STATE_AVAILABLE, 1)]
    await wire.until_state(m1.group, m1.topic_id, 0, [*done, *expired])
    m2 = await _beside(m1, topic)
    assert await all_of(m2, 9) == [(0, 0, 2), (2, 4, 2), (20, 24, 2)]


@pytest.mark.scenario("S-062")
async def test_number_of_state_writes(wire: Wire, edge: StateEdge) -> None:
    m1, topic = await fx_rpc(wire)
    before = edge.writes(m1.group)
    await wire.produce(m1.topic_id, 5)
    assert await m1.acquire() == [(0, 4, 1)]
    assert edge.writes(m1.group) == before, "acquiring"
    assert await m1.ack(0, 4, ACCEPT) == NONE
    assert edge.writes(m1.group) == before + 1
    assert (await m1.fetch(epoch=-1)).error_code == NONE
    # The group's last session and its share-partition are gone: any write of the old one comes before those of the new
    # one.
    m2 = await another(m1, topic)
    await wire.produce(m1.topic_id, 1)
    await m2.open_with_records()
    assert edge.writes(m1.group) == before + 1
