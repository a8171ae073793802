"""How often each reason was given: every failed delivery once, however the log has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kip932.failures import Failure
from share_coordinator.core.records import ShareRecord, ShareTombstone, ShareUpdate
from share_metrics.reader import EntryId, Gap, Kind
from share_metrics.reader.decoding import decode, gap_row, to_batch
from share_metrics.replay.given_reasons import KINDS_MAX, OTHERS, GivenReasons, first_line, kind_of
from share_metrics.replay.measuring import Part, measured
from share_metrics.replay.write_columns import Key
from tests.support.pipeline_entries import KEY, STREAM, snapshot, state_entry, update

MINUTE = 60_000_000
A, B = "LookupError: no price\n  in pay", "ValueError: of what\n  in pay"


def saying(record: ShareRecord, *failures: Failure) -> ShareRecord:
    if isinstance(record, ShareUpdate):
        return record._replace(failures=failures)
    assert not isinstance(record, ShareTombstone)
    return replace(record, failures=failures)


def given(reported: Sequence[ShareRecord | Gap], parts: Part = Part.REASONS) -> GivenReasons:
    """Return what is counted of these records, one a second from second 1 on."""
    rows: list[dict[str, Any]] = [
        gap_row(one) if isinstance(one, Gap) else decode(Kind.SHARE_STATE, state_entry(EntryId(1, at), one, at * 1000))
        for at, one in enumerate(reported, start=1)
    ]
    (found,) = measured([to_batch(Kind.SHARE_STATE, rows).select(parts.needed)], MINUTE, parts=parts)
    key: Key = (KEY.group_id, next(iter(found.reasons))[1], KEY.partition)
    return found.reasons[key]


def counts(reported: Sequence[ShareRecord | Gap]) -> dict[str, int]:
    (window,) = given(reported).windows.values() or [{}]
    return {kind: said.records for kind, said in window.items()}


@pytest.mark.rule("PM-94")
def test_each_failed_delivery_counts_once_though_updates_repeat_and_snapshots_sum_up() -> None:
    first = saying(update(0), Failure(0, 4, 1, A))
    second = saying(update(0), Failure(2, 3, 2, A), Failure(7, 7, 1, B))
    whole = saying(snapshot(0), Failure(0, 1, 1, A), Failure(2, 3, 2, A), Failure(4, 4, 1, A), Failure(7, 9, 1, B))
    assert counts([snapshot(0), first, first, second, second]) == {"LookupError": 7, "ValueError": 1}
    assert counts([snapshot(0), first, second, whole]) == {"LookupError": 7, "ValueError": 3}, "a write's own snapshot"
    assert counts([snapshot(0), first, second, whole, whole]) == {"LookupError": 7, "ValueError": 3}, "a cold copy"


@pytest.mark.rule("PM-94")
def test_reasons_older_than_what_was_read_are_not_counted() -> None:
    old = saying(snapshot(0), Failure(0, 4, 1, A))
    new = saying(update(0), Failure(6, 6, 1, A))
    assert counts([old]) == {}
    assert counts([old, new]) == {"LookupError": 1}
    assert counts([new, old]) == {"LookupError": 1}
    gap = Gap(STREAM, EntryId(1, 2), EntryId(1, 3), 1, "trimmed")
    assert counts([snapshot(0), gap, old, new]) == {"LookupError": 1}


@pytest.mark.rule("PM-94")
def test_records_that_are_delivered_again_under_another_state_count_again() -> None:
    said = saying(update(0), Failure(0, 4, 1, A))
    assert counts([snapshot(0), said, snapshot(0, state_epoch=2), said]) == {"LookupError": 10}
    assert counts([snapshot(0), said, ShareTombstone(KEY), snapshot(0), said]) == {"LookupError": 10}


@pytest.mark.rule("PM-94")
def test_kinds_are_bounded_and_the_rest_is_counted_together() -> None:
    many = [Failure(at, at, 1, f"Error{at}: x") for at in range(KINDS_MAX + 5)]
    found = counts([snapshot(0), saying(update(0), *many)])
    assert len(found) == KINDS_MAX + 1
    assert found[OTHERS] == 5


@pytest.mark.rule("PM-94")
def test_the_newest_first_line_is_the_example() -> None:
    found = given([snapshot(0), saying(update(0), Failure(0, 0, 1, "\n \nLookupError: a\nat x")),
                   saying(update(0), Failure(1, 1, 1, "LookupError: b"))])  # fmt: skip
    (window,) = found.windows.values()
    assert (window["LookupError"].example, window["LookupError"].at_us) == ("LookupError: b", 3_000_000)
    assert first_line("\n \nLookupError: a\nat x") == "LookupError: a"
    assert len(first_line("é" * 512).encode()) <= 200


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("LookupError: no price", "LookupError"),
        ("shop.errors.NoPrice: o-7", "shop.errors.NoPrice"),
        ("TimeoutError", "TimeoutError"),
        ("no price: o-7", "no price: o-7"),
        ("x" * 200, "x" * 60),
        ("<b>: y", "<b>: y"),
    ],
)
def test_the_kind_is_the_exception_or_else_the_beginning(line: str, kind: str) -> None:
    assert kind_of(line) == kind


def test_no_offsets_that_a_damaged_entry_names_are_too_many() -> None:
    most = 2**63 - 1
    found = given([snapshot(0), saying(update(0), Failure(0, most, 1, A)), saying(update(0), Failure(0, most, 2, A))])
    (window,) = found.windows.values()
    assert window["LookupError"].records < most
