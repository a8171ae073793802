"""Metrics of share-partitions and streams on literal data, on the KIP's worked example, and against an oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses
from pyspark.testing import assertDataFrameEqual

from kip932.ids import SharePartitionKey
from kip932.state_batches import (
    CAUSE_ACK,
    CAUSE_COLD,
    CAUSE_DLQ,
    CAUSE_LOCK_EXPIRY,
    ArchivedRange,
    StateBatch,
    WriteStats,
)
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareTombstone, ShareUpdate
from share_metrics.metrics import (
    fill_windows,
    gaps,
    poison,
    progress,
    quality,
    replay_windows,
    shard_skew,
    stalls,
)
from share_metrics.reader import EntryId, Gap, Kind
from share_metrics.reader.decoding import decode
from tests.support.pipeline_entries import KEY, STREAM, TOPIC, snapshot, state_entry, update

from .frames import BASE_S, frame, rows_of, states
from .world import Log, World

OTHER = SharePartitionKey("G2", TOPIC, 1)
#: A write of a group with a limit of 3, after which all its records are below the start offset.
FAILED = WriteStats(
    CAUSE_ACK, n_accept=2, n_reject=1, n_limit=1, write_id=4, delivery_limit=3,
    archived=(ArchivedRange(1, 1, 3, 1), ArchivedRange(3, 3, 1, 2)),
)  # fmt: skip


def acked(count: int, deliveries: int) -> WriteStats:
    return WriteStats(CAUSE_ACK, n_accept=count, max_dc=deliveries, sum_dc=count * deliveries, hwm=130, speo=121)


def worked_example() -> list[ShareRecord]:
    """KIP-932, "Examples with share-group state": one write for each operation."""
    return [
        snapshot(100),
        update(110, stats=acked(10, 1)),
        update(batches=[StateBatch(110, 110, 0, 1)], stats=WriteStats(CAUSE_ACK, n_release=1)),
        update(complete=1, batches=[StateBatch(111, 118, 0, 0), StateBatch(119, 119, 2, 1)], stats=acked(1, 1)),
        update(complete=1, batches=[StateBatch(111, 112, 0, 1)], stats=WriteStats(CAUSE_LOCK_EXPIRY, n_timeout=2)),
        update(complete=7, batches=[StateBatch(113, 118, 2, 1)], stats=acked(6, 1)),
        update(111, complete=7, stats=acked(1, 2)),
        update(120, stats=acked(2, 2)),
    ]


@pytest.mark.rule(
    "PM-40", "PM-41", "PM-42", "PM-43", "PM-44", "PM-45", "PM-46", "PM-49", "PM-50", "PM-52", "PM-53", "PM-68"
)
def test_the_worked_example_of_the_kip(spark: SparkSession, world: World) -> None:
    world.make_cluster(state_shards=1)
    Log(world, STREAM).state(*worked_example())
    rows = spark.read.format("redis_streams").options(url=world.url, kind="share_state").load()
    rows = rows.localCheckpoint()
    found = rows_of(progress(rows, 3600), "window")[0]
    expected = {
        "group_id": "G1", "partition": 0, "spso": 120, "done": 120, "spso_delta": 20, "finished_count": 20,
        "ack_accept": 20, "ack_release": 1, "ack_reject": None, "timeout_count": 2, "limit_archived_count": None,
        "redelivered_lb": 3, "finished_known": 20, "redelivery_ratio": 3 / 20, "snapshots": 1, "updates": 7,
        "writes": 8, "entries": 8, "hwm": 130, "lag": 10, "in_flight_width": 1, "anomalies": 0,
        "update_snapshot_ratio": 7.0, "cold_share": 0.0, "state_epoch_resets": 0, "finished_rate": 20 / 3600,
        "spso_rate": 20 / 3600, "write_rate": 8 / 3600,
        "entries_per_finished": 8 / 20, "snapshot_update_batches": 0 / 5,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["bytes_per_finished"] == found["bytes"] / 20 > 0
    replayed = rows_of(replay_windows(rows, 3600), "window")[0]
    assert (replayed["released_lb"], replayed["accepted_lb"], replayed["archived_lb"]) == (3, 7, 0)
    assert replayed["delivery_counts_lb"][:2] == [7, 0]
    assert (replayed["in_flight_batches"], replayed["incomplete"]) == (0, False)


@pytest.mark.rule("PM-46")
def test_records_with_dead_letters_never_raise_the_lower_bound_of_redelivered_ones(spark: SparkSession) -> None:
    # Three records: one accepted on its second delivery, two rejected, one of them also on its second delivery.
    before = WriteStats(CAUSE_ACK, n_accept=1, n_reject=2, max_dc=2, sum_dc=2, hwm=130)
    after = WriteStats(CAUSE_DLQ, max_dc=2, sum_dc=3, hwm=130)
    rows = states(spark, [(1, snapshot(100)), (2, update(101, stats=before)), (3, update(103, stats=after))])
    (found,) = rows_of(progress(rows, 60), "window")
    assert (found["ack_accept"], found["ack_reject"]) == (1, 2)
    assert found["redelivered_lb"] == 0  # of two
    assert found["finished_known"] == 3


@pytest.mark.rule("PM-7", "PM-30", "PM-42", "PM-45", "PM-46", "PM-52", "PM-53", "PM-59", "PM-60", "PM-68")
def test_resets_tombstones_cold_copies_and_falls(spark: SparkSession) -> None:
    # Ten records were finished with 15 deliveries, at most 4 of any one record: the five extra deliveries are of two or
    # more records.
    several = WriteStats(CAUSE_ACK, n_accept=8, n_limit=2, max_dc=4, sum_dc=15, hwm=100)
    waiting = [StateBatch(41, 42, 0, 1), StateBatch(45, 45, 0, 2)]
    rows = states(
        spark,
        [
            (10, snapshot(100, 2)),
            (20, update(110, batches=[StateBatch(120, 121, 0, 1)], stats=several)),
            (30, snapshot(110, epoch=1, create_ms=20_000, write_ms=30_000, stats=acked(8, 1))),
            (40, update(105, epoch=1)),
            (50, replace(snapshot(40, epoch=2, state_epoch=2, batches=waiting), leader_epoch=3)),
            (55, ShareTombstone(KEY)),
            (70, replace(snapshot(7, state_epoch=3), leader_epoch=4)),
            (130, update(9)._replace(leader_epoch=5)),
            (5, update(12, stats=WriteStats(CAUSE_ACK, hwm=20))),
        ],
    ).localCheckpoint()
    first, second, third = rows_of(progress(rows, 60), "window")
    assert (first["spso"], first["spso_delta"], first["finished_count"]) == (40, 5, 3)
    assert (first["snapshots"], first["cold_snapshots"], first["cold_share"]) == (2, 1, 1 / 3)
    assert second["entries_per_finished"] is second["bytes_per_finished"] is None  # nothing was finished
    assert (first["ack_accept"], first["limit_archived_count"]) == (8, 2)
    assert (first["redelivered_lb"], first["redelivery_ratio"], second["redelivery_ratio"]) == (2, 0.2, None)
    assert first["snapshot_update_batches"] == 2 / 1
    # A share-partition that is created again starts with any leader; the previous leader continues to lead.
    assert [row["leader_epoch_changes"] for row in (first, second, third)] == [1, 0, 1]
    assert first["state_epoch_resets"] == 1
    assert first["reset_jump"] == -65
    assert first["anomalies"] == 1 + 0
    assert (first["tombstones"], second["finished_count"], second["spso"]) == (1, 0, 7)
    # Its clock says 5 s, but the stream was already at 130 s: time never goes backwards, and the order is that of the
    # ids.
    assert (third["writes"], third["finished_count"], third["spso"], third["lag"]) == (2, 5, 12, 8)
    assert (third["state_epoch"], third["hwm"]) == (3, 20)


@pytest.mark.rule("PM-11", "PM-48", "PM-62", "PM-64")
def test_gaps_quality_skew_and_poison(spark: SparkSession) -> None:
    rows = states(
        spark,
        [
            (1, snapshot(0)),
            (2, update(batches=[StateBatch(5, 5, 0, 4)])),
            Gap(STREAM, EntryId(1, 2), EntryId(1, 4), 1, "trimmed"),
            (61, update(batches=[StateBatch(6, 6, 0, 4)])),
            (62, snapshot(0, key=OTHER)),
        ],
    ).localCheckpoint()
    found = rows_of(gaps(rows), "stream")
    assert found == [{"stream": STREAM, "from_id": "1-2", "to_id": "1-4", "lost": 1, "reason": "trimmed"}]
    counts = rows_of(quality(rows), "stream")[0]
    assert {name: counts[name] for name in ("entries", "claims", "gaps", "lost", "quarantined", "unknown")} == {
        "entries": 4, "claims": 0, "gaps": 1, "lost": 1, "quarantined": 0, "unknown": 0,
    }  # fmt: skip
    skew = rows_of(shard_skew(rows), "stream")[0]
    assert (skew["entries"], skew["keys"], skew["skew"], skew["gini"]) == (4, 2, 1.0, 0.0)
    beside = rows.where("record_type = 'snapshot'").withColumn("stream", F.lit("{sgs:1}:log"))
    uneven = rows_of(shard_skew(rows.unionByName(beside)), "stream")
    assert [(row["entries"], row["keys"]) for row in uneven] == [(4, 2), (2, 2)]
    assert uneven[0]["bytes"] == skew["bytes"] > uneven[1]["bytes"] > 0
    assert [row["skew"] for row in uneven] == [4 / 3] * 2
    assert [row["gini"] for row in uneven] == pytest.approx([1 / 6] * 2)
    replayed = rows_of(replay_windows(rows.where("group_id = 'G1' or group_id is null")), "window")
    assert [row["incomplete"] for row in replayed] == [False, True]
    suspects = rows_of(poison(rows), "offset")
    assert [(row["group_id"], row["offset"], row["delivery_count"]) for row in suspects] == [("G1", 5, 4)]


@pytest.mark.rule("PM-34", "PM-44", "PM-48")
def test_a_write_that_is_stored_twice_counts_once_and_what_it_archives_is_listed(spark: SparkSession) -> None:
    """The share coordinator died after the append, so the leader sent the write again; a cold copy may be stored in
    between."""
    copy = snapshot(4, key=OTHER, create_ms=1_000, write_ms=5_000, stats=WriteStats(CAUSE_COLD))
    written = update(4, key=OTHER, stats=FAILED)
    later = update(5, key=OTHER, stats=WriteStats(CAUSE_ACK, n_accept=1, write_id=5))
    records: list[ShareRecord] = [snapshot(0, key=OTHER), written, copy, written, later]
    reported: list[tuple[int, ShareRecord] | Gap] = list(enumerate(records))
    rows = states(spark, reported).localCheckpoint()
    (once,) = rows_of(progress(rows), "window")
    names = ("ack_accept", "ack_reject", "limit_archived_count", "finished_known", "writes", "entries")
    assert [once[name] for name in names] == [3, 1, 1, 5, 3, 5]
    listed = [
        (row["offset"], row["state"], row["reason"], row["delivery_count"]) for row in rows_of(poison(rows), "offset")
    ]
    assert listed == [(1, "Archived", "delivery limit", 3), (3, "Archived", "rejected", 1)]


@pytest.mark.rule("PM-11", "PM-32", "PM-34", "PM-48", "PM-49")
def test_a_replay_is_the_same_in_whatever_order_rows_come_and_how_often(spark: SparkSession) -> None:
    released = [update(batches=[StateBatch(offset, offset, 0, 4)]) for offset in range(12)]
    reported: list[tuple[int, ShareRecord] | Gap] = [
        (0, snapshot(0)),
        *((20 * at, one) for at, one in enumerate(released)),
    ]
    reported.insert(6, Gap(STREAM, EntryId(1, 6), EntryId(1, 8), 1, "trimmed"))  # ends at the entry after it
    reported.insert(9, (170, snapshot(0, key=OTHER)))
    reported.insert(10, (171, snapshot(2)))
    rows = states(spark, reported).localCheckpoint()
    other = rows.withColumn("stream", F.lit("{sgs:1}:log")).withColumn("group_id", F.concat("group_id", F.lit("'")))
    mixed = rows.unionByName(other).unionByName(rows).orderBy(F.rand(7)).localCheckpoint()
    for metric in (replay_windows, poison):
        plain = metric(rows)
        named = plain.withColumn("group_id", F.concat("group_id", F.lit("'")))
        assertDataFrameEqual(metric(mixed), plain.unionByName(named))
    windows = rows_of(replay_windows(rows).where("group_id = 'G1'"), "window")
    counts = [(row["released_lb"], row["incomplete"]) for row in windows]
    assert counts == [(3, False), (2, True), (2, True), (3, False)]


@pytest.mark.rule("PM-31", "PM-61")
def test_idle_windows_are_filled_and_a_standstill_is_found(spark: SparkSession) -> None:
    rows = states(
        spark,
        [
            (0, snapshot(0, stats=WriteStats(hwm=50))),
            (60, update(10, stats=WriteStats(hwm=50))),
            (65, snapshot(0, key=OTHER)),
            (480, update(1, key=OTHER, stats=WriteStats(hwm=1))),
        ],
    )
    filled = fill_windows(progress(rows)).localCheckpoint()
    of_first = rows_of(filled.where("group_id = 'G1'"), "window")
    assert [row["finished_count"] for row in of_first] == [0, 10, 0, 0, 0, 0, 0, 0, 0]
    assert {row["lag"] for row in of_first[1:]} == {40}
    found = rows_of(stalls(filled), "window")
    assert [(row["group_id"], row["still_s"], row["kind"]) for row in found] == [
        ("G1", 300, "stalled"),
        ("G1", 360, "stalled"),
        ("G1", 420, "stalled"),
    ]
    members = spark.createDataFrame(
        [("G1", of_first[3]["window"], 0)], "group_id string, window timestamp, members int"
    )
    kinds = [row["kind"] for row in rows_of(stalls(filled, members), "window")]
    assert kinds == ["abandoned"] * 6


def history(seed: int) -> list[tuple[int, ShareRecord]]:
    """Yield records of share-partitions that advance, are reset and are deleted, at random. Groups are named after the
    seed."""
    random = Random(seed)
    keys = [SharePartitionKey(f"g{seed}.{number}", TOPIC, number) for number in range(3)]
    eras = dict.fromkeys(keys, 0)
    offsets = dict.fromkeys(keys, 0)
    reported: list[tuple[int, ShareRecord]] = [(0, snapshot(0, key=key, state_epoch=0)) for key in keys]
    now = 0
    for _ in range(60):
        now += random.randrange(30)
        key = random.choice(keys)
        roll = random.random()
        if roll < 0.08:
            reported.append((now, ShareTombstone(key)))
            eras[key] += 1
            offsets[key] = random.randrange(50)
            reported.append((now, snapshot(offsets[key], key=key, state_epoch=eras[key])))
        elif roll < 0.16:
            eras[key] += 1
            offsets[key] = random.randrange(50)
            reported.append((now, snapshot(offsets[key], key=key, state_epoch=eras[key])))
        elif roll < 0.3:
            offsets[key] += random.randrange(5)
            reported.append((now, snapshot(offsets[key], key=key, state_epoch=eras[key])))
        else:
            moved = random.random() < 0.6
            offsets[key] += random.randrange(1, 20) if moved else 0
            reported.append((now, update(offsets[key] if moved else -1, random.randrange(3) * moved, key=key)))
    return reported


def oracle(reported: list[tuple[int, ShareRecord]], window_s: int) -> dict[tuple[str, int], dict[str, int]]:
    """Return the finished records and the writes of each group and window, counted record by record."""
    counts: dict[tuple[str, int], dict[str, int]] = {}
    state: dict[str, tuple[int | None, int, int]] = {}
    for at, record in reported:
        group = record.key.group_id
        row = counts.setdefault((group, at // window_s * window_s), {"finished_count": 0, "writes": 0, "falls": 0})
        if isinstance(record, ShareTombstone):
            del state[group]
            continue
        row["writes"] += 1
        epoch, start, done = state.get(group, (None, 0, 0))
        known = epoch is not None
        if isinstance(record, ShareSnapshot):
            known = known and record.state_epoch == epoch
            epoch = record.state_epoch
        if isinstance(record, ShareSnapshot | ShareUpdate) and record.start_offset >= 0:
            start = record.start_offset
        now_done = start + max(record.delivery_complete_count, 0)
        if known:
            row["finished_count"] += now_done - done
            row["falls"] += now_done < done
        state[group] = (epoch, start, now_done)
    return counts


@pytest.mark.rule("PM-41", "PM-43", "PM-68")
def test_a_random_history_counts_as_the_oracle_does(spark: SparkSession) -> None:
    reported = history(seed=7)
    expected = oracle(reported, 60)
    found: dict[tuple[str, int], dict[str, Any]] = {
        (row["group_id"], int(row["window"].timestamp()) - BASE_S): {
            "finished_count": row["finished_count"], "writes": row["writes"], "falls": row["anomalies"],
        }
        for row in rows_of(progress(states(spark, reported), 60), "window")
    }  # fmt: skip
    assert found == expected


class Era(NamedTuple):
    """One state epoch of one group: when it was first written, and P at its beginning and end."""

    first_at: int
    begin: int
    end: int


def eras(reported: list[tuple[int, ShareRecord]]) -> dict[str, list[Era]]:
    """Return the eras of each group, computed record by record: a tombstone or another state epoch ends one."""
    found: dict[str, list[Era]] = {}
    state: dict[str, tuple[int, int]] = {}
    for at, record in reported:
        group = record.key.group_id
        if isinstance(record, ShareTombstone):
            del state[group]
            continue
        before = state.get(group)
        epoch, start = before or (-1, 0)
        if isinstance(record, ShareSnapshot):
            before = before if record.state_epoch == epoch else None
            epoch = record.state_epoch
        if isinstance(record, ShareSnapshot | ShareUpdate) and record.start_offset >= 0:
            start = record.start_offset
        done = start + max(record.delivery_complete_count, 0)
        state[group] = (epoch, start)
        if before is None:
            found.setdefault(group, []).append(Era(at, done, done))
        else:
            found[group][-1] = found[group][-1]._replace(end=done)
    return found


@pytest.mark.rule("PM-41", "PM-68")
def test_what_is_finished_in_all_windows_is_how_far_each_state_epoch_came(spark: SparkSession) -> None:
    """The sum of `finished_count` is P(end) - P(start) per state epoch, for windows of any length (PM-68, 3)."""
    random_order = sorted((one for seed in range(30) for one in history(seed)), key=lambda one: one[0])
    reported = [(second, record) for second, (_, record) in enumerate(random_order)]  # no two eras share a second
    rows = states(spark, reported).localCheckpoint()
    expected = eras(reported)
    assert sum(map(len, expected.values())) > 200
    for window_s in (60, 3600):
        sums = progress(rows, window_s).groupBy("group_id").agg(F.sum("finished_count").alias("finished"))
        found = {row["group_id"]: row["finished"] for row in rows_of(sums, "group_id")}
        assert found == {group: sum(era.end - era.begin for era in own) for group, own in expected.items()}
    found_in: Counter[tuple[str, int]] = Counter()
    for row in rows_of(progress(rows, 1), "window"):
        at = int(row["window"].timestamp()) - BASE_S
        number = sum(era.first_at <= at for era in expected[row["group_id"]])
        found_in[row["group_id"], number] += row["finished_count"]
    for group, own in expected.items():
        assert [found_in[group, number] for number in range(1, len(own) + 1)] == [era.end - era.begin for era in own]


@pytest.mark.rule("PM-34", "PM-67")
def test_rows_that_come_twice_count_once(spark: SparkSession) -> None:
    rows = states(spark, history(seed=3))
    assertDataFrameEqual(progress(rows.unionByName(rows), 60), progress(rows, 60))


@pytest.mark.rule("PM-32", "PM-78", "SR-31")
def test_a_replay_of_light_rows_is_refused_not_wrong(spark: SparkSession) -> None:
    light = [decode(Kind.SHARE_STATE, state_entry(EntryId(1, seq), snapshot(seq)), light=True) for seq in (1, 2)]
    rows = frame(spark, Kind.SHARE_STATE, light)
    assert [row["spso_delta"] for row in rows_of(progress(rows), "window")] == [1]
    with pytest.raises(PythonException, match="a replay needs state batches"):
        replay_windows(rows).collect()
