"""The reader core against a real server: streams, plans, pages, losses."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from group_coordinator.core import records as r
from kip932.ids import topic_id_text
from kip932.state_batches import StateBatch
from share_coordinator.core.records import ShareTombstone
from share_metrics.reader import (
    DataLossError,
    EntryId,
    Kind,
    NoClusterError,
    Position,
    Reader,
    ReadOptions,
    Store,
    StoreReplyError,
    StoreUnreachableError,
)
from share_metrics.reader.planning import Goal, split
from share_metrics.reader.streams import Topic, topics
from tests.support.pipeline_entries import KEY, TOPIC, snapshot, update
from tests.support.ports import free_port

from .world import Log, World

S0, S1 = "{sgs:0}:log", "{sgs:1}:log"
TP = f"{{tp:{topic_id_text(TOPIC)}:0}}:log"


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def read_all(world: World, kind: Kind = Kind.SHARE_STATE, options: ReadOptions | None = None) -> list[dict[str, Any]]:
    with world.store() as store:
        reader = Reader(store, kind, options)
        plans = reader.plan({}, reader.tips(reader.streams()))
        found = [plan for plan in plans.values() if plan.ranges or plan.gaps]
        return rows(reader.read([piece for plan in found for piece in plan.ranges]))


@pytest.mark.rule("PM-1", "PM-6", "PM-13")
def test_every_entry_becomes_a_row_in_the_order_of_ids(world: World) -> None:
    world.make_cluster(state_shards=3)
    log = Log(world, S0)
    log.state(snapshot(100), update(110))
    log.claim().state(update(120), ShareTombstone(KEY))
    Log(world, S1).state(snapshot(5))
    found = read_all(world)
    assert [(row["stream"], row["entry_id"], row["record_type"]) for row in found] == [
        (S0, "1-0", "claim"),
        (S0, "1-1", "snapshot"),
        (S0, "1-2", "update"),
        (S0, "2-0", "claim"),
        (S0, "2-1", "update"),
        (S0, "2-2", "tombstone"),
        (S1, "1-0", "claim"),
        (S1, "1-1", "snapshot"),
    ]


@pytest.mark.rule("PM-5", "PM-68")
@pytest.mark.parametrize(("page", "piece"), [(1, 1), (2, 3), (7, 5), (100, 100)])
def test_pages_and_pieces_of_any_size_give_the_same_rows(world: World, page: int, piece: int) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.state(snapshot(0), *(update(number) for number in range(1, 20)))
    log.claim().state(*(update(number) for number in range(20, 30)))
    with world.store() as store:
        reader = Reader(store, Kind.SHARE_STATE, ReadOptions(page_count=page))
        plan = reader.plan({}, reader.tips([S0]))[S0]
        batches = list(reader.read(split(plan.ranges, piece)))
    assert [row["start_offset"] for row in rows(batches) if row["record_type"] != "claim"] == list(range(30))
    assert all(batch.num_rows <= 2 * page for batch in batches)


@pytest.mark.rule("PM-8")
def test_tips_are_what_the_store_says_of_its_streams(world: World) -> None:
    log = Log(world, S0)
    log.state(snapshot(0), update(1), update(2))
    world.redis.xtrim(S0, minid="1-2", approximate=False)
    with world.store() as store:
        tips = Reader(store, Kind.SHARE_STATE).tips([S0, S1])
    assert tips[S1] is None
    assert tips[S0] == (EntryId(1, 3), 4, 2, EntryId(1, 2))


@pytest.mark.rule("PM-11", "PM-68")
def test_entries_trimmed_below_the_checkpoint_are_a_gap_of_exact_size(world: World) -> None:
    log = Log(world, S0)
    log.state(snapshot(0), *(update(number) for number in range(1, 10)))
    world.redis.xtrim(S0, minid="1-6", approximate=False)
    start = {S0: Position(EntryId(1, 1), 2)}
    with world.store() as store:
        reader = Reader(store, Kind.SHARE_STATE)
        plan = reader.plan(start, reader.tips([S0]))[S0]
        first, *others = rows(reader.read(plan.ranges, plan.gaps))
    assert first["record_type"] == "gap"
    assert json.loads(first["error"]) == {"from_id": "1-1", "to_id": "1-6", "lost": 4, "reason": "trimmed"}
    assert [row["entry_id"] for row in others] == ["1-6", "1-7", "1-8", "1-9", "1-10"]


@pytest.mark.rule("PM-5", "PM-11")
def test_entries_that_vanish_between_plan_and_read_are_a_gap(world: World) -> None:
    log = Log(world, S0)
    log.state(snapshot(0), *(update(number) for number in range(1, 10)))
    with world.store() as store:
        reader = Reader(store, Kind.SHARE_STATE)
        plan = reader.plan({}, reader.tips([S0]))[S0]
        world.redis.xtrim(S0, minid="1-3", approximate=False)
        found = rows(reader.read(plan.ranges))
        gap = next(row for row in found if row["record_type"] == "gap")
        assert json.loads(gap["error"])["lost"] == 3
        strict = Reader(store, Kind.SHARE_STATE, ReadOptions(fail_on_data_loss=True))
        with pytest.raises(DataLossError, match=r"\{sgs:0\}:log lost entries"):
            list(strict.read(plan.ranges))


@pytest.mark.rule("PM-9", "PM-68")
def test_a_limit_is_kept_over_all_streams(world: World) -> None:
    world.make_cluster(state_shards=2)
    for stream, count in ((S0, 30), (S1, 9)):
        Log(world, stream).state(*(update(number) for number in range(count)))
    seen: list[str] = []
    with world.store() as store:
        reader = Reader(store, Kind.SHARE_STATE)
        starts: dict[str, Position] = {}
        for _ in range(20):
            plans = reader.plan(starts, reader.tips(reader.streams()), limit=7)
            found = rows(reader.read([piece for plan in plans.values() for piece in plan.ranges]))
            assert len(found) <= 7
            seen += [f"{row['stream']} {row['entry_id']}" for row in found]
            starts = {stream: plan.end for stream, plan in plans.items()}
    assert len(seen) == len(set(seen)) == 31 + 10


@pytest.mark.rule("PM-9")
def test_a_goal_makes_a_read_repeatable(world: World) -> None:
    log = Log(world, S0)
    log.state(snapshot(0), update(1))
    with world.store() as store:
        reader = Reader(store, Kind.SHARE_STATE)
        goals = {S0: Goal(reader.tips([S0])[S0].last)}  # type: ignore[union-attr] # the stream exists
        log.state(update(2))
        plan = reader.plan({}, reader.tips([S0]), goals)[S0]
        assert plan.end == Position(EntryId(1, 2), 3)
        assert len(rows(reader.read(plan.ranges))) == 3


@pytest.mark.rule("PM-5", "PM-11", "PM-13")
def test_malformed_and_later_entries_are_counted_rows(world: World) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.raw("S", b"\xff\xff")
    log.raw("Z", b"later")
    log.state(snapshot(1))
    world.redis.xadd(S0, {"other": "fields", "more": "of them"}, id="1-4")
    found = read_all(world)
    assert [row["record_type"] for row in found] == ["claim", "malformed", "unknown", "snapshot", "unknown"]
    assert found[1]["raw"] == b"\xff\xff"
    with pytest.raises(DataLossError, match=r"entry 1-1 of .* is not a record"):
        read_all(world, options=ReadOptions(fail_on_bad_records=True))


@pytest.mark.rule("PM-78")
def test_only_share_state_can_be_read_light(world: World) -> None:
    world.make_cluster(state_shards=1)
    Log(world, S0).state(snapshot(1, batches=[StateBatch(2, 3, 0, 1)]))
    found = read_all(world, options=ReadOptions(light=True))
    assert [(row["start_offset"], row["state_batches"]) for row in found] == [(None, None), (1, None)]
    with world.store() as store, pytest.raises(ValueError, match="only share_state can be read light, not group"):
        Reader(store, Kind.GROUP, ReadOptions(light=True))


@pytest.mark.rule("PM-17")
def test_the_group_log_is_read(world: World) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, "{gc:0}:log")
    log.group(r.GroupMetadata("g", 1, 0, 1), r.MemberMetadata("g", "m", None, "c", "h", ("t",)))
    log.group(r.Tombstone(r.MEMBER, "g", "m", "left"))
    found = read_all(world, Kind.GROUP)
    assert [row["record_type"] for row in found] == ["claim", "group", "member", "member"]
    assert found[-1]["reason"] == "left"


@pytest.mark.rule("PM-9", "PM-18")
@pytest.mark.parametrize("limit", [None, 1, 50])
def test_a_topic_log_is_read_without_its_payloads(world: World, limit: int | None) -> None:
    world.make_topic("orders", TOPIC, 1, 1)
    log = Log(world, TP, epoch=7)
    for number in range(100):
        log.batch(number * 10, 10, b"secret" * 1_000)
    sent = world.redis.info("stats")["total_net_output_bytes"]
    found: list[dict[str, Any]] = []
    with world.store() as store:
        reader = Reader(store, Kind.LOG_META, ReadOptions(page_count=30))
        assert reader.streams() == [TP]
        starts: dict[str, Position] = {}
        for _ in range(101):
            plan = reader.plan(starts, reader.tips([TP]), limit=limit)[TP]
            assert plan.gaps == []
            batches = list(reader.read(plan.ranges))
            assert all(b"secret" not in batch.serialize().to_pybytes() for batch in batches)
            found += rows(batches)
            starts = {TP: plan.end}
    batches_found = [row for row in found if row["record_type"] == "batch"]
    assert [row["base_offset"] for row in batches_found] == list(range(0, 1000, 10))
    assert {row["bytes"] for row in batches_found} == {6_000}
    # The store has sent none of the 600,000 bytes of payload: neither for plans nor for pages.
    assert world.redis.info("stats")["total_net_output_bytes"] - sent < 150_000
    assert starts[TP] == Position(EntryId(7, 1000), 101)


def test_topics_come_from_the_metadata_log(world: World) -> None:
    world.make_topic("orders", TOPIC, 2, 1)
    world.make_topic("audit", bytes(16), 1, 2)
    with world.store() as store:
        assert topics(store) == [Topic(topic_id_text(bytes(16)), "audit", 1), Topic(topic_id_text(TOPIC), "orders", 2)]


def test_a_store_without_a_cluster_says_so(world: World) -> None:
    with world.store() as store, pytest.raises(NoClusterError, match="no key sgs:config"):
        Reader(store, Kind.SHARE_STATE).streams()


def test_a_store_that_is_not_there_says_so() -> None:
    with (
        Store(f"redis://127.0.0.1:{free_port()}") as store,
        pytest.raises(StoreUnreachableError, match=r"127\.0\.0\.1"),
    ):
        store.call("k", "GET", "k")


def test_a_refused_read_names_its_key(world: World) -> None:
    world.redis.set(S0, "text")
    with world.store() as store, pytest.raises(StoreReplyError, match=r"\{sgs:0\}:log: .*WRONGTYPE"):
        store.call(S0, "XRANGE", S0, "-", "+")


@pytest.mark.rule("PM-5")
def test_the_password_comes_from_the_environment(world: World) -> None:
    with pytest.raises(ValueError, match="holds a password"):
        Store("redis://:secret@h:1")
    with pytest.raises(ValueError, match=r"SHARE_STORE_PASSWORD .* is not set"):
        Store("redis://h:1", "SHARE_STORE_PASSWORD", env={})
    world.redis.acl_setuser("reader", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all"])
    url = world.url.replace("unix://", "unix://reader@")
    with Store(url, "P", env={"P": "secret"}) as store:
        assert store.call("k", "GET", "k") is None
    with Store(url, "P", env={"P": "wrong"}) as store, pytest.raises(StoreReplyError, match="invalid username"):
        store.call("k", "GET", "k")


@pytest.mark.rule("PM-6", "SR-27")
def test_a_reader_needs_no_right_to_write(world: World) -> None:
    world.make_cluster(state_shards=1)
    Log(world, S0).state(snapshot(1))
    world.redis.acl_setuser("ro", enabled=True, nopass=True, keys=["%R~*"], commands=["+@read", "+eval_ro", "+ping"])
    with Store(world.url.replace("unix://", "unix://ro@"), "P", env={"P": "any"}) as store:
        reader = Reader(store, Kind.SHARE_STATE)
        plan = reader.plan({}, reader.tips(reader.streams()))[S0]
        assert pa.Table.from_batches(reader.read(plan.ranges)).num_rows == 2
