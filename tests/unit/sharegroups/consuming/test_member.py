"""The number of records that a member requests, and whether a response may exceed it."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.ids import ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT
from sharegroups.config import CONSUMER, Config
from sharegroups.consuming.member import Member

LOCK_MS = 30_000
SLOW, QUICK = 3.0, 0.1  # ms per record: too slow for whole batches, and fast enough for them


def member(**settings: Any) -> Member:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Member("g", "m", Config(CONSUMER, {"bootstrap.servers": "h:1", "group.id": "g", **given}))


def paced(ms_per_record: float, **settings: Any) -> Member:
    """A member in the default mode whose application has worked for a while."""
    made = member(**settings)
    for _ in range(20):
        made.pace.held(made.pace.limit, int(made.pace.limit * ms_per_record), LOCK_MS)
    return made


def asked(made: Member) -> tuple[int, bool]:
    """The number of records requested, and whether whole batches may exceed it. Asserts that the request agrees."""
    request = made.fetch_request()
    mode = ACQUIRE_BATCH_OPTIMIZED if made.takes_whole_batches else ACQUIRE_RECORD_LIMIT
    assert (request.max_records, request.batch_size) == (made.max_records, made.max_records)
    assert request.share_acquire_mode == made.acquire_mode == mode
    return made.max_records, made.takes_whole_batches


@pytest.mark.rule("CL-85")
def test_by_default_whole_batches_come_only_to_an_application_that_is_quick() -> None:
    assert asked(member()) == (1, False)
    assert asked(paced(SLOW)) == (500, False)
    assert asked(paced(QUICK)) == (500, True)


@pytest.mark.rule("CL-85")
def test_a_poll_that_wants_fewer_records_than_the_pace_allows_gets_no_more_than_it_wants() -> None:
    quick = paced(QUICK)
    quick.records_cap = 100
    assert asked(quick) == (100, False)
    quick.records_cap = 500
    assert asked(quick) == (500, True)


@pytest.mark.parametrize(("mode", "whole"), [("batch_optimized", True), ("record_limit", False)])
def test_a_mode_that_was_chosen_asks_for_max_poll_records_however_quick_the_application(mode: str, whole: bool) -> None:
    for made in (member, lambda **settings: paced(20_000, **settings)):
        found = made(share_acquire_mode=mode, max_poll_records=40)
        assert asked(found) == (40, whole)
        found.records_cap = 7
        assert asked(found) == (7, whole)


@pytest.mark.rule("CL-36", "CL-84")
def test_one_leader_is_asked_at_a_time_unless_whole_batches_may_come_to_an_application_that_keeps_up() -> None:
    quick = paced(QUICK)
    assert not quick.asks_one_leader
    quick.is_slow = True
    assert quick.asks_one_leader
    assert paced(SLOW).asks_one_leader
    assert member(share_acquire_mode="record_limit").asks_one_leader
    assert not member(share_acquire_mode="batch_optimized").asks_one_leader


def ahead(made: Member) -> bool:
    """Whether the next request asks for more than a poll may return."""
    request = made.fetch_request()
    assert request.batch_size == made.max_records
    assert made.fetches_ahead is (request.max_records > made.max_records)
    return made.fetches_ahead


def drained(made: Member, *, answered: int | None = None, held_ms: float = 1.0) -> Member:
    """Record one more poll of a backlog."""
    most = int(made.config["max.poll.records"])
    made.ahead.answered(most if answered is None else answered, most * 100, 1)
    made.ahead.held(held_ms)
    return made


@pytest.mark.rule("CL-138")
def test_it_fetches_ahead_with_whole_batches_a_backlog_a_quick_application_and_without_a_limit() -> None:
    assert not ahead(paced(QUICK)), "no backlog is known"
    assert ahead(drained(paced(QUICK)))
    whole = {"share_acquire_mode": "batch_optimized"}
    assert ahead(drained(member(**whole)))
    assert not ahead(drained(member(share_acquire_mode="record_limit"))), "no whole batches"
    assert not ahead(drained(paced(SLOW))), "no whole batches"
    assert ahead(drained(member(**whole, max_poll_records=500)))
    assert not ahead(drained(member(**whole, max_poll_records=499)))

    assert not ahead(drained(member(**whole), answered=499)), "no backlog"
    assert ahead(drained(member(**whole), held_ms=25))
    slow = drained(member(**whole), held_ms=25.1)
    for _ in range(10):
        assert not ahead(slow), "one of the last ten polls took long"
        drained(slow)
    assert ahead(slow)
    slow.ahead.unknown(0)
    assert not ahead(slow), "records of the last poll are kept"

    limited = drained(member(**whole))
    limited.poll_cap = 500
    assert not ahead(limited)
    limited.poll_cap, limited.records_cap = None, 499
    assert not ahead(limited)
    limited.records_cap = 500
    assert ahead(limited)
