"""The lease on one shard: how long it is valid, and what ends it (CM-3)."""

from __future__ import annotations

import pytest

from shard_runtime.ownership.lease import EPOCH_MAX, Lease
from shard_runtime.record_log.protocol import ShardId, ShardKind
from tests.support.clocks import START_MS, HandClock


def leased(until_ms: int) -> tuple[Lease, HandClock, list[tuple[str, int]]]:
    """A lease that ends in `until_ms`, its clock, and its reports to ownership."""
    reported: list[tuple[str, int]] = []
    clock = HandClock()
    lease = Lease(
        ShardId(ShardKind.GROUP, "0"), 1, 1, deadline_ms=START_MS + until_ms, clock=clock,
        give_up=lambda reason, above: reported.append((reason, above)),
    )  # fmt: skip
    return lease, clock, reported


def test_it_ends_at_its_deadline() -> None:
    lease, clock, _ = leased(100)
    clock.ms = START_MS + 99
    assert lease.valid()
    clock.ms = START_MS + 100
    assert not lease.valid()


def test_a_renewal_extends_it_and_a_late_answer_to_an_earlier_one_does_not_shorten_it() -> None:
    lease, clock, _ = leased(100)
    lease.extend(START_MS + 300)
    lease.extend(START_MS + 200)
    clock.ms = START_MS + 299
    assert lease.valid()
    assert lease.deadline_ms == START_MS + 300


def test_a_revoked_one_is_over_before_its_deadline_and_stays_so() -> None:
    lease, _, reported = leased(100)
    lease.revoke()
    assert not lease.valid()
    lease.extend(START_MS + 1_000)
    assert not lease.valid()
    assert lease.deadline_ms == 0
    lease.give_up("fenced", 7)
    assert reported == []


@pytest.mark.parametrize(("named", "reported_epoch"), [(7, 7), (0, 0), (-1, 0), (EPOCH_MAX, 0)])
def test_giving_up_gives_ownership_the_epoch_to_exceed_if_it_is_one(named: int, reported_epoch: int) -> None:
    lease, _, reported = leased(100)
    lease.give_up("fenced", named)
    assert reported == [("fenced", reported_epoch)]


def test_every_epoch_below_the_last_one_of_the_protocol_can_be_exceeded() -> None:
    """Epochs are int32, so none can be above the last one."""
    lease, _, reported = leased(100)
    lease.give_up("fenced", 2**31 - 2)
    lease.give_up("fenced", 2**31 - 1)
    assert [above for _, above in reported] == [2**31 - 2, 0]
