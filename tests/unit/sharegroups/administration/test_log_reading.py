"""read_records of the admin client: how it reads a Fetch, which redirects it follows, what it raises at once
(CL-92)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.compression.kinds import Compression
from kip932.errors import (
    CorruptMessageError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import TopicPartition
from sharegroups.admin_values import ReadRecord
from sharegroups.aio import Admin
from sharegroups.packing import Packing
from sharegroups.producing.produced import encode
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster, produce
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.hooked import HookedTransport

P0 = TopicPartition("t", 0)


class Mute(HookedTransport):
    """A transport whose nodes never respond to a Fetch."""

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        if method.name == "Fetch":
            await asyncio.sleep(3_600)
        return await super().call(address, method, request, timeout_s)


def admin_of(fake: FakeCluster, transport: Any = None, **settings: Any) -> Admin:
    return Admin({"bootstrap.servers": fake.bootstrap} | settings, transport=transport or fake.transport())


@pytest.mark.rule("CL-92")
@on_fake_cluster()
async def test_every_part_of_a_record_is_reported(fake: FakeCluster) -> None:
    log = fake.log("t")
    log.now_ms = 9_000
    records = [
        (b"k", b"v", (("a", b"1"), ("b", None), ("a", b"")), 5_000),
        (None, None, (), 7_000),
    ]
    log.append(encode(records, Packing(Compression.GZIP))[0], 2)
    async with admin_of(fake) as admin:
        found = await admin.read_records(P0, 0)
    assert found.records == (
        ReadRecord(0, 5_000, 9_000, b"k", b"v", (("a", b"1"), ("b", None), ("a", b""))),
        ReadRecord(1, 7_000, 9_000, None, None, ()),
    )
    assert (found.unreadable, found.next_offset, found.log_start_offset, found.high_watermark) == ((), 2, 0, 2)


@pytest.mark.rule("CL-92")
@on_fake_cluster()
async def test_reading_goes_on_behind_what_was_read_past_markers_and_what_cannot_be_decoded(fake: FakeCluster) -> None:
    log = fake.log("t")
    produce(fake, 2)
    log.append(b"", 1, is_control=True)
    log.append(b"\xff\xff", 4)
    produce(fake, 3)
    async with admin_of(fake) as admin:
        whole = await admin.read_records(P0, 1)
        assert [record.offset for record in whole.records] == [1, 7, 8, 9], "from the offset on, inside a batch too"
        assert (whole.next_offset, whole.high_watermark) == (10, 10)
        (lost,) = whole.unreadable
        assert (lost.first_offset, lost.last_offset, type(lost.error)) == (3, 6, CorruptMessageError)
        inside = await admin.read_records(P0, 4, max_bytes=1)
        assert [(one.first_offset, one.last_offset) for one in inside.unreadable] == [(4, 6)]
        assert (inside.records, inside.next_offset) == ((), 7)
        small = await admin.read_records(P0, 0, max_bytes=1)
        assert ([record.offset for record in small.records], small.next_offset) == ([0, 1], 2)
        marker = await admin.read_records(P0, 2, max_bytes=1)
        assert (marker.records, marker.unreadable, marker.next_offset) == ((), (), 3)
        end = await admin.read_records(P0, 10)
        assert (end.records, end.next_offset) == ((), 10)


@pytest.mark.rule("CL-92")
@on_fake_cluster(nodes=2)
async def test_a_leader_that_moves_is_followed_and_what_may_pass_is_repeated(fake: FakeCluster) -> None:
    produce(fake, 1)
    async with admin_of(fake) as admin:
        fake.errors["fetch"].extend([NotLeaderOrFollowerError.code, KafkaStorageError.code])
        assert len((await admin.read_records(P0, 0)).records) == 1
        fake.move_leader("t", 0, 1)
        assert len((await admin.read_records(P0, 0)).records) == 1


@pytest.mark.rule("CL-92")
@on_fake_cluster()
async def test_what_a_repetition_cannot_help_is_raised_at_once_and_the_rest_after_the_time_of_a_call(
    fake: FakeCluster,
) -> None:
    produce(fake, 2)
    fake.log("t").delete_before(1)
    async with admin_of(fake, **{"default.api.timeout.ms": 3_000}) as admin:
        for offset in (0, 3):
            with pytest.raises(OffsetOutOfRangeError):
                await admin.read_records(P0, offset)
        for place in (TopicPartition("nope", 0), TopicPartition("t", 7)):
            with pytest.raises(UnknownTopicOrPartitionError):
                await admin.read_records(place, 0)
        for wrong in ("t", ("t", 0)):
            with pytest.raises(ValueError, match="read_records"):
                await admin.read_records(wrong, 0)  # type: ignore[arg-type]
        assert now_s() < 1
        fake.leaders[fake.partition("t")] = (-1, 2)
        with pytest.raises(LeaderNotAvailableError):
            await admin.read_records(P0, 1)
        assert now_s() == pytest.approx(3)


@pytest.mark.rule("CL-92")
@on_fake_cluster()
async def test_a_leader_that_says_nothing_is_waited_for_no_longer_than_a_call_may_take(fake: FakeCluster) -> None:
    async with admin_of(fake, Mute(fake), **{"default.api.timeout.ms": 3_000}) as admin:
        with pytest.raises(RequestTimedOutError, match="the leader of t-0 did not answer within 3 s"):
            await admin.read_records(P0, 0)
        assert now_s() == pytest.approx(3)
