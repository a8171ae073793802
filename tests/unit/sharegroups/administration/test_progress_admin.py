"""list_share_progress of the admin client: which nodes it asks, how it adds up their rows, what it does without one."""

from __future__ import annotations

from collections import deque

import pytest

from kip932.api.v1.common_pb2 import NodeEndpoint
from kip932.errors import LeaderNotAvailableError, UnsupportedVersionError
from sharegroups import Admin as BlockingAdmin
from sharegroups.administration.progress_admin import _sum
from sharegroups.aio import Admin
from sharegroups.share_progress import ProgressPage, ShareProgress
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster

UNSUPPORTED, NOT_AVAILABLE = UnsupportedVersionError.code, 15


def admin_of(fake: FakeCluster, **settings: object) -> Admin:
    return Admin({"bootstrap.servers": fake.bootstrap} | settings, transport=fake.transport())


def plant(fake: FakeCluster, number: int, records: int, *states: str, group: str = "g") -> None:
    """Let a group know a partition: records, and the states of the first ones."""
    log = fake.log("t", number)
    if log.end < records:
        log.append(b"", records - log.end)
    log.states[group] = {offset: (state, "m", 1) for offset, state in enumerate(states)}


def shown(page: ProgressPage) -> list[tuple[str, int, int, int | None, int]]:
    return [(row.group, row.partition, row.partitions, row.lag, row.in_flight) for row in page.rows]


@pytest.mark.rule("CL-170")
@on_fake_cluster(nodes=2, partitions=3)
async def test_every_leader_is_asked_and_their_rows_are_added_up(fake: FakeCluster) -> None:
    plant(fake, 0, 5, "acknowledged", "acquired")
    plant(fake, 1, 7, "acquired", "archived")
    plant(fake, 2, 1)
    plant(fake, 1, 7, group="stopped")
    async with admin_of(fake) as admin:
        page = await admin.list_share_progress()
        assert shown(page) == [("g", -1, 3, 11, 2), ("stopped", -1, 1, 7, 0)]
        assert (page.total, page.missing) == (2, ())
        assert (page.rows[0].topic, page.rows[0].finished, page.rows[0].archived) == ("t", 2, 1)
        page = await admin.list_share_progress(["g"], ["t"], by_partition=True, limit=2)
        assert shown(page) == [("g", 1, 1, 6, 1), ("g", 0, 1, 4, 1)]
        assert page.total == 3
        assert (await admin.list_share_progress(topics=["other"])).rows == ()


@pytest.mark.rule("CL-170")
@on_fake_cluster(nodes=2, partitions=2)
async def test_a_leader_that_does_not_answer_is_named(fake: FakeCluster) -> None:
    plant(fake, 0, 5)
    plant(fake, 1, 7)
    fake.network.stop("node1:9000")
    async with admin_of(fake) as admin:
        page = await admin.list_share_progress()
        assert (shown(page), page.missing) == ([("g", -1, 1, 5, 0)], ("node1:9000",))


@pytest.mark.rule("CL-170")
@on_fake_cluster(nodes=2, partitions=2)
async def test_without_any_answer_it_fails(fake: FakeCluster) -> None:
    fake.errors["list_share_progress"] = deque([UNSUPPORTED, UNSUPPORTED, NOT_AVAILABLE])
    async with admin_of(fake) as admin:
        with pytest.raises(UnsupportedVersionError):
            await admin.list_share_progress()
        assert (await admin.list_share_progress()).missing == ("node0:9000",)


@pytest.mark.rule("CL-170")
@on_fake_cluster(nodes=2, partitions=2)
async def test_a_lag_that_a_leader_does_not_know_is_in_no_sum(fake: FakeCluster) -> None:
    plant(fake, 0, 5)
    plant(fake, 1, 7)
    plant(fake, 1, 7, group="other")
    fake.stateless[fake.partition("t", 1)] = "loading"
    async with admin_of(fake) as admin:
        page = await admin.list_share_progress(by_partition=True)
        assert shown(page) == [("g", 0, 1, 5, 0), ("g", 1, 1, None, 0), ("other", 1, 1, None, 0)]
        assert shown(await admin.list_share_progress(["g"])) == [("g", -1, 2, None, 0)]


@pytest.mark.rule("CL-170")
@on_fake_cluster()
async def test_an_empty_list_names_none(fake: FakeCluster) -> None:
    plant(fake, 0, 5)
    async with admin_of(fake) as admin:
        assert await admin.list_share_progress([]) == ProgressPage((), 0, ())
        assert await admin.list_share_progress(topics=[]) == ProgressPage((), 0, ())
        assert len((await admin.list_share_progress(None, None)).rows) == 1


def row(**fields: object) -> ShareProgress:
    empty = ShareProgress("g", "t", -1, 1, 1, None, 0, 0, 0, 0, 0, 0, 0, 0, 0, None, "", 0, 0)
    return empty._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.rule("CL-170")
def test_a_sum_keeps_the_oldest_the_latest_finish_and_who_holds_for_longest() -> None:
    left = row(oldest_ms=5, since_finish_ms=70, longest_member="a", longest_held_ms=9, recent_ms=40, fetching=1)
    right = row(oldest_ms=8, longest_member="b", longest_held_ms=12, recent_ms=30, recent_arrived=4, fetching=2)
    expected = row(
        partitions=2, lag=2, oldest_ms=8, since_finish_ms=70, longest_member="b", longest_held_ms=12, recent_ms=40,
        recent_arrived=4, fetching=3,
    )  # fmt: skip
    assert _sum(left, right) == _sum(right, left) == expected
    assert _sum(row(), row(longest_member="c")).longest_member == "c"
    assert _sum(row(longest_member="c"), row()).longest_member == "c"


@pytest.mark.rule("CL-170")
@on_fake_cluster()
async def test_wrong_arguments_are_reported_with_what_to_write(fake: FakeCluster) -> None:
    async with admin_of(fake) as admin:
        with pytest.raises(ValueError, match=r'list_share_progress\(\["workers"\]\)'):
            await admin.list_share_progress("workers")
        with pytest.raises(ValueError, match=r'list_share_progress\(topics=\["orders"\]\)'):
            await admin.list_share_progress(topics="orders")
        for limit in (0, 5_001, "7"):
            with pytest.raises(ValueError, match="list_share_progress: limit is"):
                await admin.list_share_progress(limit=limit)  # type: ignore[arg-type]


@pytest.mark.rule("CL-170")
def test_the_blocking_client_passes_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def recorded(_self: Admin, *given: object, **named: object) -> tuple[object, ...]:
        return given, named

    monkeypatch.setattr("sharegroups.aio.admin.Admin.list_share_progress", recorded)
    with BlockingAdmin(bootstrap_servers="127.0.0.1:1") as admin:
        passed: object = admin.list_share_progress(["g"], ["t"], by_partition=True, limit=7)
    assert passed == ((["g"], ["t"]), {"by_partition": True, "limit": 7})


@pytest.mark.rule("CL-170")
@on_fake_cluster(nodes=2, partitions=2)
async def test_only_leaders_are_asked(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(fake, 0, 5)
    plant(fake, 1, 7)
    roles = {0: ["partition_leader", "share_coordinator"], 1: ["group_coordinator"]}

    def endpoint(node: int) -> NodeEndpoint:
        return NodeEndpoint(node_id=node, host=f"node{node}", port=9000, roles=roles[node])

    monkeypatch.setattr(fake, "endpoint", endpoint)
    async with admin_of(fake) as admin:
        assert [row.lag for row in (await admin.list_share_progress()).rows] == [5]
        roles[0] = ["share_coordinator"]
        with pytest.raises(LeaderNotAvailableError, match="no live node is a partition leader"):
            await admin.list_share_progress()
