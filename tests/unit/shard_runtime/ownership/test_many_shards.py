"""Tens of thousands of shards at one node: how many the pure core claims and checks at a time, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shard_runtime.ownership.core import OwnershipCore, Plan
from shard_runtime.ownership.lease_terms import LeaseTerms, OwnerIdentity
from shard_runtime.ownership.placement import target
from shard_runtime.ownership.shard_claims import ClaimPhase
from shard_runtime.record_log.protocol import STREAM_START, Claimed, ClaimRequest, ShardId, ShardKind

ME, OTHER = 1, 2
MAX = 512
CHECKS = 1_000


def topics(count: int) -> frozenset[ShardId]:
    return frozenset(ShardId(ShardKind.TOPIC, f"t:{number}") for number in range(count))


class Node:
    """A core, and the largest number of shards that were claimed but not yet served. Each reconcile advances
    `now_ms`."""

    def __init__(self, shards: frozenset[ShardId]) -> None:
        self.core = OwnershipCore(OwnerIdentity(ME, 77, "127.0.0.1:1"), LeaseTerms())
        self.shards = shards
        self.nodes = frozenset({ME})
        self.now_ms = 0
        self.demand: dict[ShardId, int] = {}
        self.unserved: set[ShardId] = set()
        self.unserved_most = 0

    def reconcile(self) -> Plan:
        self.now_ms += 10
        plan = self.core.reconcile(
            self.shards,
            dict.fromkeys(ShardKind, self.nodes),
            self.now_ms,
            history_of=lambda _: "h",
            claims_max=MAX,
            demand_of=lambda shard: self.demand.get(shard, 0),
        )
        self.unserved.update(request.shard for request in plan.claims)
        self.unserved_most = max(self.unserved_most, len(self.unserved))
        return plan

    def checked(self) -> Plan:
        """Reconcile until no shard is left to check; return the claims and releases of all these rounds."""
        plan = self.reconcile()
        while self.core.unfinished:
            more = self.reconcile()
            plan.claims.extend(more.claims)
            plan.releases.extend(more.releases)
        return plan

    def serve(self, requests: list[ClaimRequest]) -> None:
        for request in requests:
            shard = request.shard
            claimed = Claimed(1, False, STREAM_START, None, "h", self.now_ms)
            assert self.core.claim_answered(shard, claimed, self.now_ms)
            self.core.loading(shard)
            assert self.core.loaded(shard, 1, self.now_ms)
            self.unserved.discard(shard)


def served(node: Node) -> int:
    return sum(claim.phase is ClaimPhase.SERVING for claim in node.core.shard_claims())


@pytest.mark.rule("CM-88")
def test_of_forty_thousand_shards_no_more_are_claimed_than_will_soon_be_served_and_all_of_them_settle() -> None:
    node = Node(topics(40_000))
    claims = node.checked().claims
    while claims:
        assert not node.core.settled(node.shards)
        done, claims = claims[:100], claims[100:]
        node.serve(done)
        claims += node.reconcile().claims
    assert node.core.settled(node.shards)
    assert served(node) == 40_000
    assert node.unserved_most == MAX


@pytest.mark.rule("CM-12", "CM-88")
def test_a_few_hundred_are_claimed_in_one_reconcile() -> None:
    node = Node(topics(500))
    assert len(node.reconcile().claims) == 500
    assert not node.core.unfinished


@pytest.mark.rule("CM-88")
def test_room_is_reported_once_half_of_the_bound_is_served() -> None:
    node = Node(topics(2_000))
    claims = node.checked().claims
    assert len(claims) == MAX
    node.serve(claims[: MAX // 2 - 1])
    assert not node.core.claims_due(MAX)
    assert not node.reconcile().claims
    node.serve(claims[MAX // 2 - 1 : MAX // 2])
    assert node.core.claims_due(MAX)
    assert len(node.reconcile().claims) == MAX // 2
    assert not node.core.claims_due(MAX)


@pytest.mark.rule("CM-12", "CM-88")
def test_groups_come_first_then_what_is_asked_for_most() -> None:
    groups = frozenset(ShardId(ShardKind.GROUP, str(number)) for number in range(50))
    node = Node(topics(5_000))
    first = node.checked().claims
    node.shards |= groups
    waiting = sorted(node.shards - groups - {request.shard for request in first})
    node.demand = {waiting[4]: 3, waiting[9]: 7, waiting[14]: 1}
    node.serve(first)
    claimed = [request.shard for request in node.reconcile().claims]
    assert len(claimed) == MAX
    assert set(claimed[:50]) == groups
    assert claimed[50:53] == [waiting[9], waiting[4], waiting[14]]


@pytest.mark.rule("CM-88")
@pytest.mark.parametrize("change", ["shards", "nodes"])
def test_the_targets_of_many_are_found_in_slices_and_until_then_nothing_is_settled(change: str) -> None:
    node = Node(topics(300))
    node.serve(node.checked().claims)
    assert node.core.settled(node.shards)
    if change == "shards":
        node.shards = topics(7_000)
    else:
        node.shards = topics(7_000)
        settle(node)
        node.nodes = frozenset({ME, OTHER})
    rounds = 0
    released: list[ShardId] = []
    plan = node.reconcile()
    while True:
        rounds += 1
        released += plan.releases
        assert len(plan.releases) <= CHECKS
        if not node.core.unfinished:
            break
        assert change == "nodes" or not node.core.settled(node.shards)
        plan = node.reconcile()
    assert rounds == -(-(6_700 if change == "shards" else 7_000) // CHECKS)
    expected = {shard for shard in node.shards if target(shard, node.nodes) == OTHER}
    assert set(released) == expected
    assert len(released) == len(expected)


def settle(node: Node) -> None:
    claims = node.checked().claims
    while claims:
        node.serve(claims)
        claims = node.reconcile().claims
    assert node.core.settled(node.shards)


@pytest.mark.rule("CM-88")
@pytest.mark.parametrize("gone", ["not wanted", "another node"])
def test_a_shard_that_leaves_while_its_claim_is_under_way_is_handed_over_once_the_answer_is_there(gone: str) -> None:
    node = Node(topics(200))
    claims = node.checked().claims
    moved = {each.shard for each in claims if gone[0] == "n" or target(each.shard, [ME, OTHER]) == OTHER}
    if gone == "not wanted":
        node.shards = frozenset()
    else:
        node.nodes = frozenset({ME, OTHER})
    assert not node.checked().releases
    for request in claims:
        node.core.claim_answered(request.shard, Claimed(1, False, STREAM_START, None, "h", 0), node.now_ms)
    plan = node.reconcile()
    assert set(plan.releases) == moved
    for shard in plan.releases:
        node.core.released(shard)
    plan = node.reconcile()
    assert set(plan.forgotten) == (moved if gone == "not wanted" else set())
    assert not plan.claims
    assert not plan.releases


@pytest.mark.rule("CM-3", "CM-88")
def test_the_leases_that_end_first_are_renewed_first() -> None:
    node = Node(topics(300))
    claims = node.checked().claims
    late: Callable[[ClaimRequest], int] = lambda request: 1_000 - int(request.shard.name[2:])  # noqa: E731
    for request in claims:
        claimed = Claimed(1, False, STREAM_START, None, "h", late(request))
        node.core.claim_answered(request.shard, claimed, node.now_ms)
    order = [int(shard.name[2:]) for shard in node.core.to_renew()]
    assert order == sorted(range(300), reverse=True)
    assert [int(renewal.shard.name[2:]) for renewal in node.core.renewals(lambda _: "")] == order
