"""Tests the checkers of the records left at the end and of the reported lag: bad histories are found, good ones
pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kip932.ids import STATE_ACKNOWLEDGED, STATE_ARCHIVED, STATE_AVAILABLE
from tests.simulation.checkers.lag import Drained, Lag
from tests.simulation.final import LogEnd
from tests.simulation.history import LagSeen, StateBatchSeen
from tests.simulation.made import SHARE, Made, found, value


class TestLag:
    pytestmark = pytest.mark.rule("INV-17")

    @pytest.mark.parametrize(("start", "lag", "wrong"), [(0, -2, 1), (0, 5, 0), (-1, -1, 0), (0, -1, 0), (-1, 3, 1)])
    def test_a_lag_is_known_and_not_negative_or_unknown(self, start: int, lag: int, wrong: int) -> None:
        made = Made()
        made.add(LagSeen, SHARE, start, lag)
        assert found(Lag(), made) == ["INV-17"] * wrong

    def test_finished_offsets_after_the_start_are_counted_right(self) -> None:
        batches = ((4, 5, STATE_ACKNOWLEDGED, 1), (6, 6, STATE_AVAILABLE, 1), (8, 8, STATE_ARCHIVED, 5))
        assert not found(Lag(), Made().rests(3, *batches, end=9, finished=3))
        assert found(Lag(), Made().rests(3, *batches, end=9, finished=2)) == ["INV-17"]

    def test_what_was_drained_has_no_lag(self) -> None:
        made = Made().begins("drain").group(2, {"A": 2})
        assert not found(Lag(), made.rests(3))
        assert found(Lag(), made.rests(3, end=4)) == ["INV-17"]

    @pytest.mark.parametrize(("kept", "wrong"), [((), 0), ((0, 1), 0), ((0, 1, 6), 1)])
    def test_offsets_that_hold_no_record_are_no_lag(self, kept: tuple[int, ...], wrong: int) -> None:
        made = Made().begins("drain").group(2, {"A": 2}).rests(2, end=9)
        made.final = replace(made.final, values={SHARE[1:]: {offset: value(offset) for offset in kept}})
        assert found(Lag(), made) == ["INV-17"] * wrong

    @pytest.mark.parametrize(("log_start", "wrong"), [(0, 1), (6, 1), (7, 0), (9, 0)])
    def test_deleted_records_that_are_still_in_the_store_are_no_lag(self, log_start: int, wrong: int) -> None:
        made = Made().begins("drain").group(2, {"A": 2}).rests(2, end=9)
        values = {SHARE[1:]: {offset: value(offset) for offset in (5, 6)}}
        made.final = replace(made.final, values=values, logs={SHARE[1:]: LogEnd(log_start, 9)})
        assert found(Lag(), made) == ["INV-17"] * wrong

    def test_what_was_not_drained_may_have_some(self) -> None:
        made = Made().group(2, {"A": 2}).begins("drain").group(3, {})
        assert not found(Lag(), made.rests(3, end=4))


class TestDrained:
    def drained(self) -> Made:
        return Made().begins("drain").group(2, {"A": 2}).begins("rest")

    @pytest.mark.rule("INV-1")
    def test_a_record_that_is_left_is_found(self) -> None:
        assert not found(Drained(), self.drained().rests(3))
        assert found(Drained(), self.drained().rests(2, end=3)) == ["INV-1"]

    @pytest.mark.rule("INV-9")
    def test_a_start_offset_that_stays_before_finished_records_is_found(self) -> None:
        assert found(Drained(), self.drained().rests(2, (2, 2, STATE_ACKNOWLEDGED, 1), end=3)) == ["INV-9"]

    @pytest.mark.rule("INV-9")
    def test_a_start_offset_may_rest_at_a_hole_and_nowhere_else(self) -> None:
        made = self.drained().rests(2, (5, 5, STATE_ACKNOWLEDGED, 1), end=6)
        made.final = replace(made.final, values={SHARE[1:]: {offset: value(offset) for offset in (0, 1, 5)}})
        assert not found(Drained(), made)
        made.final = replace(made.final, values={SHARE[1:]: {offset: value(offset) for offset in (0, 1, 2, 5)}})
        assert found(Drained(), made) == ["INV-1"]
        passed = self.drained().rests(2, (2, 5, STATE_ACKNOWLEDGED, 1), end=6)
        assert found(Drained(), passed) == ["INV-9"]

    @pytest.mark.rule("INV-1", "INV-9")
    @pytest.mark.parametrize(
        ("batches", "log_start", "rules"),
        [((), 3, []), ((), 2, ["INV-1"]), ((), 1, ["INV-1"])]
        + [(((2, 2, STATE_ACKNOWLEDGED, 1),), start, rules) for start, rules in ((3, []), (2, []), (1, ["INV-1"]))],
    )
    def test_a_start_offset_may_rest_below_the_start_of_the_log(
        self, batches: Sequence[StateBatchSeen], log_start: int, rules: list[str]
    ) -> None:
        """Covers the last sentence of INV-9, and INV-1 from the log's start on: missing records need a recorded
        reason."""
        made = self.drained().rests(1, *batches, end=3)
        made.final = replace(made.final, logs={SHARE[1:]: LogEnd(log_start, 3)})
        assert found(Drained(), made) == rules

    @pytest.mark.rule("INV-19")
    def test_a_partition_that_was_never_initialised_is_found(self) -> None:
        made = self.drained().rests(0)
        made.final = replace(made.final, served={SHARE._replace(partition=1): made.state(0)})
        assert found(Drained(), made) == ["INV-19"]

    def test_a_topic_that_is_gone_is_not_missed(self) -> None:
        made = self.drained().rests(0)
        made.final = replace(made.final, served={SHARE._replace(partition=1): made.state(0)}, logs={})
        assert not found(Drained(), made)

    def test_a_group_that_was_not_emptied_may_rest_anywhere(self) -> None:
        assert not found(Drained(), Made().begins("drain").rests(2, end=3))
