"""Ownership of a shard: claims, renewals, releases, and when they take effect."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pytest

from shard_runtime.record_log.protocol import (
    STREAM_START,
    Claimed,
    ClaimRefused,
    HistoryChanged,
    LogError,
    OwnedElsewhere,
    Renewed,
    ShardLostError,
    StoreUnavailableError,
    StreamId,
    TailLostError,
    WaitHistory,
)
from shard_runtime.record_log.redis import scripts

from .world import GROUP, LEASE_MS, OTHER, TOPIC, World, flush, in_time, kinds, records

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("CM-12", "CM-10", "CM-2")
async def test_of_two_claimants_one_owns_and_the_other_hears_who(world: World) -> None:
    a, b = await world.process("a"), await world.process("b")
    mine = await a.claim()
    answer = await b.try_claim()
    assert isinstance(answer, OwnedElsewhere)
    assert (answer.owner.node_id, answer.owner.incarnation, answer.owner.epoch) == (1, a.incarnation, mine.epoch)
    assert answer.owner.address == "node-1:9000"
    assert 0 < answer.remaining_ms <= LEASE_MS
    assert await kinds(a, GROUP.streams[0]) == "C"
    assert await world.store.raw(("HMGET", "{nodes}", "1", "2")) == [[None, None]], (
        "ownership must not depend on the node list"
    )


@pytest.mark.rule("CM-12", "CM-13", "SR-8", "SR-4")
async def test_a_lapsed_owner_is_fenced_by_the_next_claim(world: World) -> None:
    a, b = await world.process("a"), await world.process("b")
    old = await a.claim()
    await world.lapse()
    new = await b.claim()
    assert new.epoch > old.epoch
    assert new.previous is not None
    assert new.previous.incarnation == a.incarnation
    with pytest.raises(ShardLostError):
        await a.log.append(GROUP, old.epoch, flush(GROUP, old.epoch, 1, b"stale"))
    assert await kinds(b, GROUP.streams[0]) == "CC"
    (renewed,) = await a.log.renew([a.renewal(old.epoch)])
    assert renewed is not None
    assert not renewed.ok
    assert isinstance(a.log.lost(GROUP), ShardLostError)


@pytest.mark.rule("CM-4", "CM-12")
async def test_a_released_shard_is_free_at_once_and_its_claim_cannot_be_repeated(world: World) -> None:
    a, b = await world.process("a"), await world.process("b")
    request = a.request(seen_history=await a.history())
    first = await a.log.claim(request)
    assert isinstance(first, Claimed)
    assert await a.log.release(GROUP, a.incarnation, first.epoch)
    assert isinstance(await a.log.claim(request), ClaimRefused)
    second = await b.claim()
    assert second.previous is not None
    assert second.previous.released
    assert not await a.log.release(GROUP, a.incarnation, first.epoch)


@pytest.mark.rule("CM-12")
@pytest.mark.parametrize("kind", ["lose_reply", "lose_request"])
async def test_a_claim_repeated_after_a_lost_reply_is_one_claim(world: World, kind: str) -> None:
    a = await world.process("a")
    await a.history()  # so that the fault hits the claim itself
    fault = await world.store.order("a", scripts.CLAIM.digest, kind)
    claimed = await a.claim()
    assert fault.struck.is_set()
    assert await kinds(a, GROUP.streams[0]) == "C"
    await a.log.append(GROUP, claimed.epoch, flush(GROUP, claimed.epoch, 1, b"x"))
    assert await records(a, GROUP.streams[0]) == [b"x"]


@pytest.mark.rule("CM-12")
async def test_a_repeated_claim_renews_the_lease_and_keeps_epoch_and_verdict(world: World) -> None:
    a = await world.process("a")
    await a.claim()
    await world.store.raw(("HSET", GROUP.owner_key, "tail_history", "gone"))
    request = a.request(seen_history=await a.history())
    first = await a.log.claim(request)
    await world.lapse()
    again = await a.log.claim(request)
    assert isinstance(first, Claimed)
    assert isinstance(again, Claimed)
    assert (again.epoch, again.lossy) == (first.epoch, True)
    assert int((await world.owner())["expires"]) > 1
    assert await kinds(a, GROUP.streams[0]) == "CC"


@pytest.mark.rule("CM-3", "CM-12")
async def test_a_renewal_whose_reply_was_lost_is_repeated(world: World) -> None:
    a = await world.process("a")
    claimed = await a.claim()
    await world.lapse()
    fault = await world.store.order("a", scripts.RENEW.digest, "lose_reply")
    (renewed,) = await a.log.renew([a.renewal(claimed.epoch)])
    assert fault.struck.is_set()
    assert renewed is not None
    assert renewed.ok
    assert renewed.history == a.log.history_of(GROUP)
    assert int((await world.owner())["expires"]) > 1


@pytest.mark.rule("CM-3")
async def test_many_leases_are_renewed_in_one_call_with_answers_in_order(world: World) -> None:
    a = await world.process("a")
    group, other = await a.claim(GROUP), await a.claim(OTHER)
    wrong = a.renewal(group.epoch + 1, GROUP)
    answers = await a.log.renew([a.renewal(group.epoch, GROUP), wrong, a.renewal(other.epoch, OTHER)])
    assert [answer.ok for answer in answers if answer is not None] == [True, False, True]


@pytest.mark.rule("CM-12", "CM-73")
async def test_a_restarted_process_takes_its_shard_back_inside_the_lease_only_with_the_lock(world: World) -> None:
    before = await world.process("a")
    first = await before.claim()
    after = await world.process("a", incarnation=2)
    assert isinstance(await after.try_claim(), OwnedElsewhere)
    second = await after.claim(dead=frozenset({before.incarnation}))
    assert second.epoch > first.epoch
    assert (await world.owner())["incarnation"] == str(after.incarnation)


@pytest.mark.rule("CM-12")
async def test_a_lease_from_a_clock_that_went_back_is_cut_to_one_lease(world: World) -> None:
    a, b = await world.process("a"), await world.process("b")
    await a.claim()
    await world.store.raw(("HSET", GROUP.owner_key, "expires", 9_999_999_999_999))
    answer = await b.try_claim()
    assert isinstance(answer, OwnedElsewhere)
    assert answer.remaining_ms == LEASE_MS
    assert answer.owner.expires_ms < 9_999_999_999_999
    assert int((await world.owner())["expires"]) == answer.owner.expires_ms


@pytest.mark.rule("CM-12", "CM-11a")
async def test_a_claim_made_under_another_history_changes_nothing(world: World) -> None:
    a = await world.process("a")
    answer = await a.log.claim(a.request(seen_history="0" * 40))
    assert answer == HistoryChanged(a.log.history_of(GROUP))
    assert await world.owner() == {}
    assert await a.log.tip(GROUP.streams[0]) is None


@pytest.mark.rule("CM-12")
async def test_a_history_must_be_seen_for_a_lease_unless_lossless_or_continued(world: World) -> None:
    a = await world.process("a")
    assert isinstance(await a.try_claim(waited=False), WaitHistory)
    assert isinstance(await a.try_claim(waited=False, dead=frozenset({1})), WaitHistory)
    first = await a.claim(waited=False, lossless=True)
    await world.store.raw(("HSET", GROUP.owner_key, "lease_history", "gone"))
    assert isinstance(await a.try_claim(waited=False, dead=frozenset({a.incarnation})), WaitHistory)
    continued = await a.claim(waited=False, cont_epoch=first.epoch)
    assert continued.epoch > first.epoch
    again = await a.claim(waited=False)  # the last claim's history is still current
    assert again.epoch > continued.epoch


@pytest.mark.rule("CM-12", "CM-47")
@pytest.mark.parametrize(
    ("changes", "released", "lossy"),
    [
        ({}, False, True),
        ({"lossless": True}, False, False),
        ({}, True, False),
        ({"durable": False}, True, True),
    ],
)
async def test_a_claim_says_whether_a_tail_may_be_lost(
    world: World, changes: dict[str, Any], released: bool, lossy: bool
) -> None:
    a, b = await world.process("a"), await world.process("b")
    first = await a.claim()
    if released:
        await a.log.release(GROUP, a.incarnation, first.epoch)
    await world.lapse()
    await world.store.raw(("HSET", GROUP.owner_key, "tail_history", "gone"))
    claimed = await b.claim(**changes)
    assert claimed.lossy is lossy
    assert (await world.owner())["tail_history"] == ("gone" if lossy else b.log.history_of(GROUP))
    assert b.log.tail_checked(GROUP) == ("" if lossy else b.log.history_of(GROUP))


@pytest.mark.rule("CM-12", "CM-47")
async def test_only_a_renewal_with_tail_ok_lifts_a_lossy_verdict(world: World) -> None:
    a = await world.process("a")
    await a.claim()
    await world.store.raw(("HSET", GROUP.owner_key, "tail_history", "gone"))
    claimed = await a.claim()
    await a.log.renew([a.renewal(claimed.epoch)])
    assert (await world.owner())["tail_history"] == "gone"
    await a.log.renew([a.renewal(claimed.epoch, tail_ok="of another past")])
    assert (await world.owner())["tail_history"] == "gone"
    await a.log.renew([a.renewal(claimed.epoch, tail_ok=a.log.history_of(GROUP))])
    assert (await world.owner())["tail_history"] == a.log.history_of(GROUP)
    assert a.log.tail_checked(GROUP) == a.log.history_of(GROUP)


@pytest.mark.rule("CM-13")
async def test_epochs_follow_clock_floor_and_every_stream(world: World) -> None:
    a = await world.process("a")
    first = await a.claim(OTHER)
    assert abs(time.time() - 1_767_225_600 - first.epoch) < 600, "seconds since 2026, by the store's clock"
    floor = 1_000_000_000
    assert (await a.claim(floor=floor)).epoch == floor
    assert (await a.claim()).epoch == floor + 1
    await world.store.raw(("XADD", TOPIC.streams[1], f"{floor + 40}-0", "t", "C", "r", ""))
    topic = await a.claim(TOPIC)
    assert topic.epoch == floor + 41
    tips = [await a.log.tip(stream) for stream in TOPIC.streams]
    assert [tip.last for tip in tips if tip is not None] == [StreamId(topic.epoch, 0)] * 2


@pytest.mark.rule("CM-13")
async def test_a_claim_is_refused_when_epochs_are_exhausted(world: World) -> None:
    a = await world.process("a")
    await world.store.raw(("XADD", GROUP.streams[0], f"{2**31 - 1}-5", "t", "C", "r", ""))
    answer = await a.try_claim()
    assert isinstance(answer, ClaimRefused)
    assert "exhausted" in answer.reason


@pytest.mark.rule("CM-12")
async def test_an_owner_record_holds_what_the_rule_says(world: World) -> None:
    a = await world.process("a")
    claimed = await a.claim()
    names = ("node_id", "incarnation", "address", "epoch", "nonce", "released", "verdict", "lease_history")
    ((*found, history),) = await world.store.raw(("HMGET", GROUP.owner_key, *names))
    expected = ["1", str(a.incarnation), "node-1:9000", str(claimed.epoch), f"{a.incarnation}/", "0", "0"]
    assert [value.decode()[: len(given)] for value, given in zip(found, expected, strict=True)] == expected
    assert history.decode() == claimed.history == (await world.owner())["tail_history"]


@pytest.mark.rule("CM-12")
async def test_a_claim_that_too_few_replicas_have_does_not_count(synced: World) -> None:
    a = await synced.process("a", call_ms=1_000, wait_ms=50)
    await synced.store.freeze_replica()
    with pytest.raises(StoreUnavailableError):
        await a.try_claim()
    with pytest.raises(ShardLostError, match="no claim"):
        await a.log.append(GROUP, 1, flush(GROUP, 1, 1, b"x"))
    await synced.store.thaw_replica()
    assert isinstance(await in_time(a.try_claim), Claimed)


@pytest.mark.rule("CM-12")
async def test_a_renewal_that_too_few_replicas_have_is_no_answer(synced: World) -> None:
    a = await synced.process("a", call_ms=1_000, wait_ms=50)
    claimed = await a.claim()
    await synced.store.freeze_replica()
    assert await a.log.renew([a.renewal(claimed.epoch)]) == [None]
    await synced.store.thaw_replica()

    async def renewed() -> Renewed:
        (answer,) = await a.log.renew([a.renewal(claimed.epoch)])
        if answer is None:
            raise StoreUnavailableError("no answer in time")
        return answer

    assert (await in_time(renewed)).ok


@pytest.mark.rule("CM-12")
async def test_a_claimant_that_was_overtaken_before_its_wait_was_done_drops_the_claim(world: World) -> None:
    a, b = await world.process("a"), await world.process("b")
    request = a.request(seen_history=await a.history())
    fault = await world.store.order("a", "HMGET", "hold")
    claiming = asyncio.ensure_future(a.log.claim(request))
    await fault.struck.wait()
    await world.lapse()
    taken = await b.claim()
    fault.resume.set()
    assert isinstance(await claiming, ClaimRefused)
    with pytest.raises(ShardLostError):
        await a.log.append(GROUP, taken.epoch - 1, flush(GROUP, taken.epoch - 1, 1, b"x"))


@pytest.mark.rule("CM-18", "CM-12", "SR-15")
async def test_compaction_moves_replay_from_then_trims_and_only_for_the_owner(world: World) -> None:
    a, b = await world.process("a"), await world.process("b")
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1", b"2", b"3"))
    assert await a.log.compact(GROUP, a.incarnation, e, GROUP.streams[0], StreamId(e, 2))
    assert await records(a, GROUP.streams[0]) == [b"2", b"3"]
    assert (await world.owner())["replay_from"] == f"{e}-2"
    await world.lapse()
    assert (await b.claim()).replay_from == StreamId(e, 2)
    assert not await a.log.compact(GROUP, a.incarnation, e, GROUP.streams[0], StreamId(e, 3))
    assert await records(b, GROUP.streams[0]) == [b"2", b"3"]


@pytest.mark.rule("CM-18", "SR-15")
async def test_nothing_is_trimmed_before_replay_from_is_on_enough_replicas(synced: World) -> None:
    a = await synced.process("a", call_ms=1_000, wait_ms=50)
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1", b"2"))
    await synced.store.freeze_replica()
    with pytest.raises(StoreUnavailableError):
        await a.log.compact(GROUP, a.incarnation, e, GROUP.streams[0], StreamId(e, 2))
    assert await records(a, GROUP.streams[0]) == [b"1", b"2"]
    await synced.store.thaw_replica()
    assert await in_time(lambda: a.log.compact(GROUP, a.incarnation, e, GROUP.streams[0], StreamId(e, 2)))
    assert await records(a, GROUP.streams[0]) == [b"2"]


@pytest.mark.rule("CM-19", "CM-18")
async def test_an_owner_whose_tail_was_lost_trims_nothing(replicated: World) -> None:
    a = await replicated.process("a", call_ms=2_000)
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1", b"2"))
    await a.log.renew([a.renewal(e)])  # its WAIT shows that the replica has all of it
    await replicated.store.freeze_replica()
    await a.log.append(GROUP, e, flush(GROUP, e, 3, b"lost"))
    await replicated.store.fail_over()
    with pytest.raises(TailLostError):
        await a.log.compact(GROUP, a.incarnation, e, GROUP.streams[0], StreamId(e, 3))
    assert await records(a, GROUP.streams[0]) == [b"1", b"2"]
    again = await a.claim()
    assert again.replay_from == STREAM_START, "or what is left would not be replayed"


@pytest.mark.rule("CM-18", "CM-40")
async def test_compacting_the_control_log_leaves_replay_from_alone(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim(TOPIC)).epoch
    await a.log.append(TOPIC, e, flush(TOPIC, e, 1, b"1", b"2", stream=1))
    assert await a.log.compact(TOPIC, a.incarnation, e, TOPIC.streams[1], StreamId(e, 2))
    assert await records(a, TOPIC.streams[1]) == [b"2"]
    assert (await world.owner(TOPIC))["replay_from"] == str(STREAM_START)


@pytest.mark.rule("CM-21")
async def test_deleted_streams_are_gone_with_their_owner_record(world: World) -> None:
    a = await world.process("a")
    await a.claim(TOPIC)
    await a.log.delete_streams(TOPIC)
    assert await a.log.tip(TOPIC.streams[0]) is None
    assert await world.owner(TOPIC) == {}


@pytest.mark.rule("CM-20")
async def test_a_log_does_not_open_on_the_store_of_another_cluster(world: World) -> None:
    await world.process("a")
    await world.store.raw(("SET", "{meta}:cluster", "another"))
    with pytest.raises(LogError, match="another"):
        await world.process("b", call_ms=1_000)


@pytest.mark.rule("CM-104")
@pytest.mark.parametrize(("named", "lossy"), [(True, False), (False, True)])
async def test_a_tail_of_a_history_that_ended_well_is_whole(world: World, named: bool, lossy: bool) -> None:
    one = await world.process()
    first = await one.claim(lossless=False, durable=False, waited=True)
    assert await one.log.release(GROUP, one.incarnation, first.epoch)
    two = await world.process("b")
    await world.store.restart()
    whole = ("0" * 40, first.history) if named else ("0" * 40,)
    second = await in_time(partial(two.claim, lossless=False, durable=False, waited=True, whole=whole))
    assert (second.history != first.history, second.lossy) == (True, lossy)
