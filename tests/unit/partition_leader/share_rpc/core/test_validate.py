"""Requests that are refused before any state is touched (PL-401, PL-422, PL-423)."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.errors import InvalidRequestError
from partition_leader.fetch.core.fetch_policy import FetchLimits
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_rpc.core.validate import check_acknowledgements, check_identity, check_limits


@pytest.mark.rule("PL-401", "PL-320", "PL-321", "PL-417", "12.18")
@pytest.mark.parametrize(
    ("batches", "renew", "says"),
    [
        ([(5, 4, (1,))], False, "not a range"),
        ([(0, 4, (1,)), (4, 6, (1,))], False, "ascending"),
        ([(5, 9, (1,)), (0, 4, (1,))], False, "ascending"),
        ([(0, 4, ())], False, "no acknowledge type"),
        ([(0, 4, (1, 2))], False, "expected one for all or 5"),
        ([(0, 0, (5,))], True, "unknown"),
        ([(0, 0, (-1,))], True, "unknown"),
        ([(0, 0, (4,))], False, "is_renew_ack"),
    ],
)
def test_malformed_acknowledgements(batches: list[tuple[int, int, tuple[int, ...]]], renew: bool, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        check_acknowledgements([AckBatch(*batch) for batch in batches], renew)


@pytest.mark.rule("PL-401", "PL-321")
def test_well_formed_acknowledgements() -> None:
    check_acknowledgements([AckBatch(0, 4, (1,)), AckBatch(5, 6, (2, 3)), AckBatch(9, 9, b"\x00")], False)
    check_acknowledgements([AckBatch(0, 1, (4, 1))], True)
    check_acknowledgements([AckBatch(0, 1, (1,))], True)
    check_acknowledgements([], False)


@pytest.mark.rule("PL-930")
@pytest.mark.parametrize(
    ("batches", "says"),
    [
        ([(0, 4, (2,), (1, 2))], "2 release delays for offsets 0-4; expected none, one for all or 5"),
        ([(0, 1, (2,), (1, 2, 3))], "3 release delays"),
        ([(0, 4, (2,), (-2,))], "release delay -2 ms for offsets 0-4; expected 0 or more, or -1"),
        ([(0, 4, (2,), (60_001,))], "60001 ms for offsets 0-4 is above 60000 ms, which sharegroups.retry.delay.max.ms"),
        ([(0, 1, (2,), (5,)), (2, 2, (1,), (0,))], "release delay 0 ms for offset 2, whose acknowledge type is 1"),
        ([(0, 2, (2, 2, 3), (7,))], "release delay 7 ms for offset 2, whose acknowledge type is 3"),
        ([(0, 2, (2, 0, 2), (7, 8, -1))], "release delay 8 ms for offset 1, whose acknowledge type is 0"),
    ],
)
def test_delays_that_cannot_be(batches: list[tuple[Any, ...]], says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        check_acknowledgements([AckBatch(*batch) for batch in batches], False, 60_000)


@pytest.mark.rule("PL-941")
def test_only_a_release_or_a_renewal_takes_a_delivery_back() -> None:
    for batches, says in (
        ([(0, 4, (2,), (), (True, True))], "2 values of undelivered for offsets 0-4; expected none, one for all or 5"),
        ([(0, 1, (2, 1), (), (True,))], "undelivered for offset 1, whose acknowledge type is 1; only types 2"),
        ([(0, 2, (2, 3, 2), (), (False, True, False))], "undelivered for offset 1, whose acknowledge type is 3"),
    ):
        with pytest.raises(InvalidRequestError, match=says):
            check_acknowledgements([AckBatch(*batch) for batch in batches], is_renew_ack=False)
    for batch in ((0, 1, (2,), (), (True,)), (0, 1, (2, 1), (5, -1), (True, False)), (0, 1, (3,), (), (False,))):
        check_acknowledgements([AckBatch(*batch)], is_renew_ack=False, delay_max_ms=60_000)
    check_acknowledgements([AckBatch(0, 2, (4, 2, 4), (), (True, True, False))], is_renew_ack=True)


@pytest.mark.rule("PL-942")
def test_a_reason_is_short_and_of_a_release_or_reject() -> None:
    refused: tuple[tuple[tuple[Any, ...], str], ...] = (
        ((0, 4, (1,), (), (), "why"), "a reason for offsets 0-4, of acknowledge type 1; only types 2"),
        ((0, 1, (1, 0), (), (), "why"), "a reason for offsets 0-1, of acknowledge type 1; only types 2"),
        ((7, 7, (2,), (), (), "x" * 1_025), "the reason for offsets 7-7 has 1025 bytes; at most 1024 are"),
        ((7, 7, (3,), (), (), "ä" * 512 + "x"), "the reason for offsets 7-7 has 1025 bytes; at most 1024 are"),
        ((7, 7, (3,), (), (), "x" * 10_000_000), "the reason for offsets 7-7 has 10000000 bytes"),
    )
    for batch, says in refused:
        with pytest.raises(InvalidRequestError, match=says) as error:
            check_acknowledgements([AckBatch(*batch)], is_renew_ack=False)
        assert len(str(error.value)) < 200, "it does not repeat the reason"
    for batch in (
        (0, 1, (2,), (), (), "x" * 1_024),
        (0, 1, (1, 3), (), (), "ä" * 512),
        (0, 1, (2,), (5,), (True,), "y"),
    ):
        check_acknowledgements([AckBatch(*batch)], is_renew_ack=False, delay_max_ms=60_000)


@pytest.mark.rule("PL-930")
def test_well_formed_delays() -> None:
    batches = [(0, 4, (2,), (60_000,)), (5, 6, (2,), (0, -1)), (7, 9, (1, 2, 4), (-1, 3, -1)), (10, 10, (1,), (-1,))]
    check_acknowledgements([AckBatch(*batch) for batch in batches], True, 60_000)


@pytest.mark.rule("PL-322", "PL-423", "PL-237")
@pytest.mark.parametrize(
    ("limits", "mode", "renew", "says"),
    [
        (FetchLimits(500, 1, 1, 1), 0, True, "max_wait_ms = 500, min_bytes = 1, max_bytes = 1, max_records = 1"),
        (FetchLimits(0, 0, 0, 7), 0, True, "with max_records = 7"),
        (FetchLimits(-1, 0, 0, 0), 0, False, "negative max_wait_ms"),
        (FetchLimits(0, 0, 0, 0), 2, False, "share_acquire_mode 2"),
    ],
)
def test_malformed_fetches(limits: FetchLimits, mode: int, renew: bool, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        check_limits(limits, mode, renew)


@pytest.mark.rule("PL-322", "PL-423", "PL-501", "CM-62")
def test_well_formed_fetches_and_names() -> None:
    check_limits(FetchLimits(0, 0, 0, 0), 0, True)
    check_limits(FetchLimits(500, 1, 1, 1), 1, False)
    check_identity("G" * 255, "m" * 36)
    for group, member in (("", "M"), ("G", ""), ("G", "m" * 37), ("G" * 256, "M")):
        with pytest.raises(InvalidRequestError):
            check_identity(group, member)
