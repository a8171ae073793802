"""Requests that are refused before anything is touched (PL-401, PL-422, PL-423)."""

from __future__ import annotations

import pytest

from kip932.errors import InvalidRequestError
from partition_leader.share.core.events import AckBatch
from partition_leader.share.core.validate import FetchLimits, check_acknowledgements, check_identity, check_limits


@pytest.mark.rule("PL-401", "PL-320", "PL-321", "PL-417", "12.18")
@pytest.mark.parametrize(
    ("batches", "renew", "says"),
    [
        ([(5, 4, (1,))], False, "no range"),
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
