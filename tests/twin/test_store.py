"""The twin's faults behave like a real store's; its other behaviour is tested in tests/contracts."""

from __future__ import annotations

import asyncio

import pytest

from shard_runtime.record_log.protocol import (
    STREAM_START,
    AppendRefusedError,
    Claimed,
    ClaimRequest,
    Entry,
    ShardId,
    ShardKind,
    ShardLostError,
    StreamAppend,
    StreamId,
)
from shard_runtime.record_log.redis.connection import Command, ErrorReply, StoreConnection, StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from tests.support.clocks import HandClock
from tests.twin import ConnectionLostError, FaultPoint, MemoryStore, Stage, memory_log
from tests.twin.server import Session

pytestmark = pytest.mark.asyncio
SHARD = ShardId(ShardKind.GROUP, "7")
LOG = SHARD.streams[0]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(HandClock(), replicas=1)


async def connect(store: MemoryStore, name: str = "a") -> StoreConnection:
    return await store.client(name).connect("")


async def claim(log: StoreRecordLog, node: int, nonce: str = "n") -> Claimed:
    await log.open()
    answer = await log.claim(
        ClaimRequest(SHARD, node, node, "h:1", f"{node}{nonce}", 3_000, 0, log.history, waited=True)
    )
    assert isinstance(answer, Claimed), answer
    return answer


def one(epoch: int, seq: int) -> list[StreamAppend]:
    return [StreamAppend(LOG, [Entry(StreamId(epoch, seq), "S", b"x")])]


async def test_a_restart_loses_what_the_disk_does_not_have(store: MemoryStore) -> None:
    connection = await connect(store)
    await connection.run([("SET", "kept", "1")], 1_000)
    store.master.disk.paused = True
    await connection.run([("SET", "lost", "1")], 1_000)
    before = store.master.history
    store.restart(lose_unsynced=True)
    with pytest.raises(ConnectionLostError):
        await connection.run([("GET", "kept")], 1_000)
    again = await connect(store)
    assert await again.run([("GET", "kept"), ("GET", "lost")], 1_000) == [b"1", None]
    assert store.master.history != before


@pytest.mark.rule("CM-11a")
async def test_a_fail_over_loses_what_the_replica_does_not_have(store: MemoryStore) -> None:
    connection = await connect(store)
    await connection.run([("XADD", "s", "1-1", "t", "S", "r", "kept")], 1_000)
    store.master.followers[0].paused = True
    await connection.run([("XADD", "s", "1-2", "t", "S", "r", "lost")], 1_000)
    assert (await connection.run([("WAIT", 1, 5)], 1_000)) == [0]
    store.fail_over(keep_connections=True)
    (entries,) = await connection.run([("XRANGE", "s", "-", "+")], 1_000)
    assert [entry_id for entry_id, _ in entries] == [b"1-1"]
    assert await connection.run([("XADD", "s", "1-2", "t", "S", "r", "other")], 1_000) == [b"1-2"]


@pytest.mark.rule("CM-13")
async def test_a_refused_multi_executes_nothing_and_a_half_sent_one_waits_for_its_exec(store: MemoryStore) -> None:
    connection = await connect(store)
    store.master.refuse = "OOM"
    replies = await connection.run([("MULTI",), ("XADD", "s", "1-1", "t", "S"), ("EXEC",)], 1_000)
    assert [reply.code for reply in replies if isinstance(reply, ErrorReply)] == ["OOM", "EXECABORT"]
    store.master.refuse = None
    await connection.run([("MULTI",), ("XADD", "s", "1-1", "t", "S")], 1_000)
    assert "s" not in store.master.data.streams
    await connection.close()
    assert "s" not in store.master.data.streams


@pytest.mark.rule("CM-15")
async def test_what_was_sent_is_executed_although_its_client_went_away(store: MemoryStore) -> None:
    resume = asyncio.Event()
    held = asyncio.Event()

    async def hold(point: FaultPoint) -> None:
        if point.stage is Stage.COMMAND:
            held.set()
            await resume.wait()

    store.hook = hold
    connection = await connect(store)
    call = asyncio.ensure_future(connection.run([("SET", "k", "1")], 60_000))
    await held.wait()
    await connection.close()
    with pytest.raises(ConnectionLostError):
        await call
    resume.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store.master.data.strings == {"k": b"1"}
    await store.close()


@pytest.mark.rule("CM-12", "SR-22")
async def test_a_cut_off_master_confirms_nothing_and_its_client_is_fenced_when_it_returns(store: MemoryStore) -> None:
    settings = StoreSettings(replicas=1, min_insync_replicas=2, wait_ms=1, call_ms=200, backoff_ms=1)
    a, b = memory_log(store, "a", settings), memory_log(store, "b", settings)
    old = await claim(a, 1)
    store.split("a")
    pending = asyncio.ensure_future(a.append(SHARD, old.epoch, one(old.epoch, 1)))
    store.clock.ms += 3_001  # type: ignore[attr-defined]
    new = await claim(b, 2)
    await b.append(SHARD, new.epoch, one(new.epoch, 1))
    for _ in range(100_000):
        if not a.available:
            break
        await asyncio.sleep(0)
    assert not a.available
    assert not pending.done()
    store.heal()
    with pytest.raises(ShardLostError):
        await pending
    assert [entry.id.epoch for entry in await b.read(LOG, STREAM_START, None, 10)] == [old.epoch, new.epoch, new.epoch]
    for log in (a, b):
        await log.close()
    await store.close()


@pytest.mark.rule("CM-3", "CM-12")
async def test_a_lease_ends_by_the_stores_clock(store: MemoryStore) -> None:
    a, b = memory_log(store, "a"), memory_log(store, "b")
    first = await claim(a, 1)
    store.clock.ms += 2_999  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="OwnedElsewhere"):
        await claim(b, 2)
    store.clock.ms += 1  # type: ignore[attr-defined]
    assert (await claim(b, 2, "again")).epoch > first.epoch
    store.master.skew_ms = -10_000
    with pytest.raises(AssertionError, match="remaining_ms=3000"):
        await claim(a, 1, "later")
    for log in (a, b):
        await log.close()


@pytest.mark.rule("CM-19")
async def test_a_client_that_is_cut_off_resolves_its_flush_when_it_is_back(store: MemoryStore) -> None:
    log = memory_log(store, "a", StoreSettings(backoff_ms=1, backoff_max_ms=2))
    epoch = (await claim(log, 1)).epoch
    store.cut_off("a")
    pending = asyncio.ensure_future(log.append(SHARD, epoch, one(epoch, 1)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not pending.done()
    assert not log.available_for(SHARD)
    store.heal()
    assert (await pending).tip == StreamId(epoch, 1)
    await log.close()


@pytest.mark.rule("CM-19", "CM-15")
async def test_closing_answers_what_is_unanswered(store: MemoryStore) -> None:
    log = memory_log(store, "a")
    epoch = (await claim(log, 1)).epoch
    store.cut_off("a")
    pending = asyncio.ensure_future(log.append(SHARD, epoch, one(epoch, 1)))
    await asyncio.sleep(0)
    await log.close()
    with pytest.raises(Exception, match="closed its store connection"):
        await pending
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.rule("CM-13", "CM-19")
async def test_a_demoted_master_refuses_a_flush_and_is_written_to_again_only_when_checked(store: MemoryStore) -> None:
    log = memory_log(store, "a", StoreSettings(backoff_ms=1, backoff_max_ms=2))
    epoch = (await claim(log, 1)).epoch
    store.master.role = "slave"
    with pytest.raises(AppendRefusedError, match="READONLY"):
        await log.append(SHARD, epoch, one(epoch, 1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not log.available
    pending = asyncio.ensure_future(log.append(SHARD, epoch, one(epoch, 1)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not pending.done()
    store.master.role = "master"
    assert (await pending).tip == StreamId(epoch, 1)
    await log.close()


@pytest.mark.rule("CM-12", "CM-19")
async def test_a_claim_is_granted_by_no_store_that_is_not_a_master(store: MemoryStore) -> None:
    log = memory_log(store, "a", StoreSettings(backoff_ms=1, backoff_max_ms=2))
    await log.open()
    store.master.role = "slave"
    claiming = asyncio.ensure_future(claim(log, 1))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not claiming.done()
    assert LOG not in store.master.data.streams
    store.master.role = "master"
    assert (await claiming).epoch > 0
    await log.close()


@pytest.mark.rule("CM-19", "CM-182")
@pytest.mark.parametrize("code", ["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED"])
async def test_what_a_store_refuses_only_now_or_here_waits_and_is_written_once(store: MemoryStore, code: str) -> None:
    log = memory_log(store, "a", StoreSettings(backoff_ms=1, backoff_max_ms=2))
    epoch = (await claim(log, 1)).epoch
    store.master.refuse = code
    pending = asyncio.ensure_future(log.append(SHARD, epoch, one(epoch, 1)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not pending.done()
    store.master.refuse = None
    assert (await pending).tip == StreamId(epoch, 1)
    assert [entry.kind for entry in await log.read(LOG, STREAM_START, None, 10)] == ["C", "S"]
    await log.close()


@pytest.mark.rule("CM-19", "CM-11a")
async def test_a_flush_that_was_run_on_a_master_replaced_before_its_wait_was_answered_is_not_confirmed_there(
    store: MemoryStore,
) -> None:
    """The connection survives: only the history, read after the WAIT, shows that the master was replaced."""
    log = memory_log(store, "a", StoreSettings(replicas=1, min_insync_replicas=1, backoff_ms=1, backoff_max_ms=2))
    epoch = (await claim(log, 1)).epoch
    await log.append(SHARD, epoch, one(epoch, 1))
    store.master.followers[0].paused = True
    replaced: list[int] = []

    async def replace_master(point: FaultPoint) -> None:
        flushed = any(command[0] == "EXEC" for command in point.commands)
        if point.stage is Stage.COMMAND and point.commands[point.index][0] == "INFO" and flushed and not replaced:
            replaced.append(point.index)
            store.fail_over(keep_connections=True)

    store.hook = replace_master
    appended = await log.append(SHARD, epoch, one(epoch, 2))
    assert replaced
    assert appended.tip >= StreamId(epoch, 2)
    ids = [entry.id.seq for entry in await log.read(LOG, STREAM_START, None, 10)]
    assert ids[:3] == [0, 1, 2], "it was written to the new master, too"
    await log.close()


@pytest.mark.rule("CM-13")
async def test_an_answer_that_no_owner_expects_loses_the_shard_with_what_waits_for_it(store: MemoryStore) -> None:
    log = memory_log(store, "a", StoreSettings(backoff_ms=1, backoff_max_ms=2))
    epoch = (await claim(log, 1)).epoch
    run = store.master._run

    def odd(session: Session, command: Command) -> object:
        return ErrorReply("WRONGTYPE", "not a stream") if command[0] == "XADD" else run(session, command)

    store.master._run = odd  # type: ignore[method-assign]
    with pytest.raises(ShardLostError, match="which no owner expects"):
        await log.append(SHARD, epoch, one(epoch, 1))
    assert isinstance(log.lost(SHARD), ShardLostError)
    await log.close()


async def test_where_there_is_one_node_no_key_is_made_to_know_a_shard_s_history(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history is read several times per lease for every held shard, including those of idle topics."""
    log = memory_log(store, "a", StoreSettings(backoff_ms=1, backoff_max_ms=2))
    await claim(log, 1)
    made: list[ShardId] = []
    monkeypatch.setattr(ShardId, "owner_key", property(made.append))
    assert [log.history_of(SHARD) for _ in range(10)] == [log.history] * 10
    assert log.history
    assert made == []
    monkeypatch.undo()
    await log.close()
