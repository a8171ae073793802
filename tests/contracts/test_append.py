"""Flushes: all or nothing, exactly once, fenced, and never reported as committed when they may be lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shard_runtime.record_log.protocol import (
    Appended,
    AppendRefusedError,
    Entry,
    LogError,
    ShardLostError,
    StreamAppend,
    StreamDeletedError,
    StreamId,
    TailLostError,
)
from shard_runtime.record_log.redis.connection import Command
from tests.support.stores import until

from .world import GROUP, OTHER, TOPIC, Process, World, flush, kinds, records

pytestmark = pytest.mark.asyncio
LOG = GROUP.streams[0]


@pytest.mark.rule("CM-13", "SR-19", "CM-16")
async def test_a_flush_is_in_the_log_when_it_is_answered(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    assert await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1", b"2")) == Appended(StreamId(e, 2), 0)
    assert await records(a, LOG) == [b"1", b"2"]
    assert a.log.available_for(GROUP)


@pytest.mark.rule("CM-16", "CM-40")
async def test_a_topic_flush_is_one_unit_over_log_and_control_log(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim(TOPIC)).epoch
    log, ctl = TOPIC.streams
    batch = Entry(StreamId(e, 500), "B", b"header", b"batch \x00 bytes" * 1000)
    producers = Entry(StreamId(e, 1), "P", b"producers")
    appended = await a.log.append(TOPIC, e, [StreamAppend(log, [batch]), StreamAppend(ctl, [producers])])
    assert appended == Appended(StreamId(e, 1), 0)
    assert (await a.log.read(log, StreamId(e, 0), None, 10)) == [batch]
    assert (await a.log.index(log, StreamId(e, 0), None, 10)) == [batch._replace(batch=b"")]
    assert (await a.log.read_back(log, StreamId(e, 500), 10))[0].kind == "C"
    assert (await a.log.read(ctl, StreamId(e, 0), StreamId(e, 1), 10)) == [producers]


@pytest.mark.rule("CM-16")  # (d), the limit of a call
async def test_entries_are_read_without_their_batches_a_mebibyte_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await world.process("a")
    e = (await a.claim(TOPIC)).epoch
    log, _ = TOPIC.streams
    large = [Entry(StreamId(e, i), "B", b"header %d" % i, bytes(300_000)) for i in range(1, 13)]
    small = [Entry(StreamId(e, i), "B", b"header %d" % i, bytes(1_000)) for i in range(13, 1_000)]
    for entries in (large[:6], large[6:], small):
        await a.log.append(TOPIC, e, [StreamAppend(log, entries)])
    replies: list[int] = []
    read = a.log._read

    async def counted(stream: str, command: Command) -> Any:
        reply = await read(stream, command)
        replies.append(len(reply) // 4)
        return reply

    monkeypatch.setattr(a.log, "_read", counted)
    expected = [entry._replace(batch=b"") for entry in (*large, *small)]
    assert await a.log.index(log, StreamId(e, 0), None, 12) == expected[:12]
    assert replies == [4, 4, 4]
    replies.clear()
    assert await a.log.index(log, StreamId(e, 0), StreamId(e, 6), 1_000) == expected[:6]
    assert replies == [4, 2]
    replies.clear()
    assert await a.log.index(log, StreamId(e, 12), None, 2_000) == expected[12:]
    assert replies == [987], "small ones all at once"
    replies.clear()
    assert await a.log.read_back(log, StreamId(e, 13), 12) == expected[11::-1]
    assert replies == [4, 4, 4]
    replies.clear()
    assert await a.log.read_back(log, StreamId(e, 5), 5) == [*expected[3::-1], await _claim_entry(a, log)]


async def _claim_entry(process: Process, stream: str) -> Entry:
    return (await process.log.read(stream, StreamId(0, 0), None, 1))[0]


@pytest.mark.rule("CM-13", "SR-23")
@pytest.mark.parametrize("code", ["OOM", "NOREPLICAS"])
async def test_a_refused_flush_leaves_nothing_and_its_ids_free(world: World, code: str) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    await world.store.refuse(code)
    with pytest.raises(AppendRefusedError):
        await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1", b"2"))
    await world.store.refuse(None)
    assert await records(a, LOG) == []
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"other"))
    assert await records(a, LOG) == [b"other"]


@pytest.mark.rule("SR-9", "CM-13", "CM-19")
async def test_a_flush_whose_reply_was_lost_is_found_and_proved_by_a_no_op(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    fault = await world.store.order("a", "EXEC", "lose_reply")
    appended = await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1", b"2"))
    assert fault.struck.is_set()
    assert appended == Appended(StreamId(e, 3), 1)
    await a.log.append(GROUP, e, flush(GROUP, e, appended.tip.seq + 1, b"3"))
    assert await kinds(a, LOG) == "CSSNS"
    assert await records(a, LOG) == [b"1", b"2", b"3"]


@pytest.mark.rule("CM-40", "CM-19")
async def test_the_no_op_of_a_topic_goes_to_its_control_log(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim(TOPIC)).epoch
    log, ctl = TOPIC.streams
    await world.store.order("a", "EXEC", "lose_reply")
    appended = await a.log.append(TOPIC, e, [StreamAppend(log, [Entry(StreamId(e, 500), "B", b"h", b"b")])])
    assert appended == Appended(StreamId(e, 1), 1)
    assert (await kinds(a, log), await kinds(a, ctl)) == ("CB", "CN")


@pytest.mark.rule("SR-9", "CM-19")
async def test_a_no_op_whose_reply_was_lost_is_followed_by_another(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    await world.store.order("a", "EXEC", "lose_reply")
    noop = await world.store.order("a", f"{e}-2", "lose_reply")
    appended = await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
    assert noop.struck.is_set()
    assert appended.noops >= 1
    assert appended.tip == StreamId(e, 1 + appended.noops)
    assert await kinds(a, LOG) == "CS" + "N" * appended.noops


@pytest.mark.rule("SR-9", "CM-15")
async def test_a_flush_that_never_arrived_is_sent_again_with_the_same_ids(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    fault = await world.store.order("a", "EXEC", "lose_request")
    assert await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1")) == Appended(StreamId(e, 1), 0)
    assert fault.struck.is_set()
    assert await kinds(a, LOG) == "CS"


@pytest.mark.rule("CM-13", "SR-8", "SR-4", "GC-69f")
async def test_an_owner_paused_in_the_middle_of_its_pipeline_writes_nothing_once_another_has_claimed(
    world: World,
) -> None:
    a, b = await world.process("a"), await world.process("b")
    old = (await a.claim()).epoch
    fault = await world.store.order("a", "EXEC", "hold")
    stale = asyncio.ensure_future(a.log.append(GROUP, old, flush(GROUP, old, 1, b"stale 1", b"stale 2")))
    await fault.struck.wait()
    await world.lapse()
    new = (await b.claim()).epoch
    await b.log.append(GROUP, new, flush(GROUP, new, 1, b"fresh"))
    fault.resume.set()
    with pytest.raises(ShardLostError):
        await stale
    assert await kinds(b, LOG) == "CCS"
    assert await records(b, LOG) == [b"fresh"]


@pytest.mark.rule("CM-13", "P-9")
async def test_a_fenced_shard_does_not_take_the_others_of_its_pipeline_with_it(world: World) -> None:
    a, b = await world.process("a"), await world.process("b")
    group, other = (await a.claim(GROUP)).epoch, (await a.claim(OTHER)).epoch
    await world.lapse(GROUP)
    await b.claim(GROUP)
    lost, kept = await asyncio.gather(
        a.log.append(GROUP, group, flush(GROUP, group, 1, b"x")),
        a.log.append(OTHER, other, flush(OTHER, other, 1, b"y")),
        return_exceptions=True,
    )
    assert isinstance(lost, ShardLostError)
    assert kept == Appended(StreamId(other, 1), 0)


@pytest.mark.rule("CM-13", "CM-21")
async def test_a_flush_to_a_deleted_stream_says_so_and_does_not_create_it(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim(TOPIC)).epoch
    await world.store.raw(("DEL", *TOPIC.streams))
    with pytest.raises(StreamDeletedError):
        await a.log.append(TOPIC, e, [StreamAppend(TOPIC.streams[0], [Entry(StreamId(e, 5), "B", b"h", b"b")])])
    assert await a.log.tip(TOPIC.streams[0]) is None


@pytest.mark.rule("SR-18", "CM-13")
async def test_a_second_flush_of_a_shard_and_ids_out_of_order_are_faults_of_the_caller(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    fault = await world.store.order("a", "EXEC", "hold")
    first = asyncio.ensure_future(a.log.append(GROUP, e, flush(GROUP, e, 1, b"1")))
    await fault.struck.wait()
    with pytest.raises(LogError, match="outstanding"):
        await a.log.append(GROUP, e, flush(GROUP, e, 2, b"2"))
    fault.resume.set()
    await first
    with pytest.raises(ValueError, match="cannot follow"):
        await a.log.append(GROUP, e, flush(GROUP, e, 1, b"again"))


@pytest.mark.rule("CM-13", "CM-15")
async def test_a_flush_outlives_its_caller(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    fault = await world.store.order("a", "EXEC", "hold")
    caller = asyncio.ensure_future(a.log.append(GROUP, e, flush(GROUP, e, 1, b"1")))
    await fault.struck.wait()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    fault.resume.set()
    await a.log.renew([a.renewal(e)])
    assert await records(a, LOG) == [b"1"]
    await a.log.append(GROUP, e, flush(GROUP, e, 2, b"2"))


@pytest.mark.rule("CM-11a", "CM-19", "CM-12")
async def test_a_restart_that_lost_nothing_keeps_the_shard_under_the_new_history(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
    before = a.log.history_of(GROUP)
    await world.store.restart()
    appended = await a.log.append(GROUP, e, flush(GROUP, e, 2, b"2"))
    assert appended.tip == StreamId(e, 2 + appended.noops)
    assert a.log.history_of(GROUP) != before
    assert a.log.tail_checked(GROUP) == a.log.history_of(GROUP)
    (renewed,) = await a.log.renew([a.renewal(e, tail_ok=a.log.tail_checked(GROUP))])
    assert renewed is not None
    assert renewed.ok
    assert (await world.owner())["tail_history"] == a.log.history_of(GROUP)
    assert await records(a, LOG) == [b"1", b"2"]


@pytest.mark.rule("CM-19", "CM-45")
async def test_a_log_this_owner_trimmed_empty_is_no_lost_tail(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
    await a.log.compact(GROUP, a.incarnation, e, LOG, StreamId(e, 9))
    await world.store.restart()
    await a.log.append(GROUP, e, flush(GROUP, e, 10, b"10"))
    assert await records(a, LOG) == [b"10"]


@pytest.mark.rule("CM-20", "CM-15")
async def test_a_wiped_store_is_not_written_to(world: World) -> None:
    a = await world.process("a", call_ms=1_000)
    e = (await a.claim()).epoch
    await world.store.wipe()
    pending = asyncio.ensure_future(a.log.append(GROUP, e, flush(GROUP, e, 1, b"1")))
    assert await a.log.renew([a.renewal(e)]) == [None]
    assert not a.log.available
    assert not pending.done()
    assert (await world.store.raw(("EXISTS" if world.store.name != "twin" else "GET", LOG)))[0] in (0, None)
    await a.log.drop(GROUP)
    with pytest.raises(ShardLostError):
        await pending


@pytest.mark.rule("CM-19", "SR-22", "CM-12")
async def test_a_fail_over_that_lost_nothing_keeps_the_shard(synced: World) -> None:
    a = await synced.process("a")
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
    before = a.log.history_of(GROUP)
    await synced.store.fail_over()
    await a.log.append(GROUP, e, flush(GROUP, e, 2, b"2"))
    assert a.log.history_of(GROUP) != before
    assert a.log.lost(GROUP) is None
    await synced.store.fail_over()
    await a.log.append(GROUP, e, flush(GROUP, e, 1 + (await a.log.tip(LOG)).last.seq, b"3"))  # type: ignore[union-attr]
    assert await records(a, LOG) == [b"1", b"2", b"3"]


@pytest.mark.rule("CM-19", "SR-22", "CM-47", "CM-11a")
async def test_a_fail_over_that_lost_a_confirmed_tail_is_noticed_before_anything_is_written(replicated: World) -> None:
    a = await replicated.process("a")
    first = await a.claim()
    e = first.epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"kept"))
    await a.log.renew([a.renewal(e)])  # its WAIT shows that the replica has all of it
    await replicated.store.freeze_replica()
    await a.log.append(GROUP, e, flush(GROUP, e, 2, b"lost"))
    await replicated.store.fail_over()
    with pytest.raises(TailLostError):
        await a.log.append(GROUP, e, flush(GROUP, e, 3, b"after"))
    assert isinstance(a.log.lost(GROUP), TailLostError)
    assert a.log.tail_checked(GROUP) == ""
    (renewed,) = await a.log.renew([a.renewal(e)])
    assert renewed is None or not renewed.ok
    assert await records(a, LOG) == [b"kept"]
    again = await a.claim()
    assert (again.epoch > e, again.lossy) == (True, True)
    assert a.log.lost(GROUP) is None
    await a.log.append(GROUP, again.epoch, flush(GROUP, again.epoch, 1, b"lost"))


@pytest.mark.rule("CM-11a", "CM-19")
async def test_a_read_that_shows_another_past_lets_its_owner_check_the_tail(replicated: World) -> None:
    a = await replicated.process("a")
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"kept"))
    await a.log.renew([a.renewal(e)])
    await replicated.store.freeze_replica()
    await a.log.append(GROUP, e, flush(GROUP, e, 2, b"lost"))
    await replicated.store.fail_over()
    assert await records(a, LOG) == [b"kept"]
    assert isinstance(a.log.lost(GROUP), TailLostError)


@pytest.mark.rule("CM-11a", "CM-19")
async def test_a_connection_that_survives_demotion_and_promotion_does_not_hide_the_lost_tail(
    replicated: World,
) -> None:
    a = await replicated.process("a")
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"kept"))
    await a.log.renew([a.renewal(e)])
    await replicated.store.freeze_replica()
    await a.log.append(GROUP, e, flush(GROUP, e, 2, b"lost"))
    await replicated.store.demote_and_promote()
    with pytest.raises((TailLostError, ShardLostError)):
        await a.log.append(GROUP, e, flush(GROUP, e, 3, b"after"))
    assert a.log.lost(GROUP) is not None


@pytest.mark.rule("SR-22", "CM-12")
async def test_an_unconfirmed_flush_that_a_fail_over_lost_is_sent_again(synced: World) -> None:
    a = await synced.process("a", wait_ms=50)
    e = (await a.claim()).epoch
    await synced.store.freeze_replica()
    pending = asyncio.ensure_future(a.log.append(GROUP, e, flush(GROUP, e, 1, b"1")))
    await until(lambda: not a.log.available, "a short WAIT")
    assert not pending.done()
    await synced.store.fail_over()
    appended = await pending
    assert appended == Appended(StreamId(e, 1), 0)
    assert await records(a, LOG) == [b"1"]


@pytest.mark.rule("SR-21", "CM-15", "SR-19", "SC-62")
async def test_a_flush_that_too_few_replicas_have_is_neither_answered_nor_rolled_back(synced: World) -> None:
    a = await synced.process("a", wait_ms=50)
    e = (await a.claim()).epoch
    await synced.store.freeze_replica()
    pending = asyncio.ensure_future(a.log.append(GROUP, e, flush(GROUP, e, 1, b"1")))
    await until(lambda: not a.log.available_for(GROUP), "a short WAIT")
    assert not pending.done()
    await synced.store.thaw_replica()
    assert (await pending).tip.epoch == e
    assert await records(a, LOG) == [b"1"]
    assert a.log.available


@pytest.mark.rule("SR-9", "CM-15")
async def test_the_same_holds_under_resp2(resp2_world: World) -> None:
    a = await resp2_world.process("a")
    e = (await a.claim()).epoch
    await resp2_world.store.order("a", "EXEC", "lose_reply")
    assert (await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))).noops == 1
    assert await kinds(a, LOG) == "CSN"
    assert await a.log.tip(LOG) is not None


@pytest.mark.rule("CM-13", "SR-9", "SR-23")
@pytest.mark.parametrize("kind", ["lose_reply", "lose_request"])
async def test_a_refusal_after_an_unknown_outcome_undoes_nothing(world: World, kind: str) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    fault = await world.store.order("a", "EXEC", kind)
    pending = asyncio.ensure_future(a.log.append(GROUP, e, flush(GROUP, e, 1, b"1")))
    await fault.struck.wait()
    await world.store.refuse("OOM")
    for _ in range(3):
        (renewed,) = await a.log.renew([a.renewal(e)])
        assert renewed is not None
        assert renewed.ok
    unresolved = not pending.done()
    await world.store.refuse(None)
    assert (await pending).tip.epoch == e
    assert unresolved or world.store.name != "twin"
    assert await records(a, LOG) == [b"1"]
