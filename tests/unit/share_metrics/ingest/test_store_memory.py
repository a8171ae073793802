"""What is kept of the memory of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from share_metrics.ingest.store_memory import Sample, memory_at, noted_store_memory, with_sample

WEEK = 2_016


@pytest.mark.rule("PM-100")
def test_of_each_five_minutes_the_fullest_sample_is_kept_for_a_week() -> None:
    found: list[Sample] = []
    for time_s, used, limit in (
        (0, 50, 100),
        (60, 70, 100),
        (120, 60, 100),
        (299, 300, 1_000),
        (300, 10, 0),
        (599, 9, 0),
    ):
        found = with_sample(found, Sample(time_s, used, limit))
    assert found == [(60, 70, 100), (300, 10, 0)], "the fullest by its limit; without one, by its bytes"
    many: list[Sample] = []
    for number in range(WEEK + 5):
        many = with_sample(many, Sample(300 * number, 1, 0))
    assert (len(many), many[0].time_s) == (WEEK, 5 * 300)


@pytest.mark.rule("PM-100")
@pytest.mark.parametrize(
    ("time_s", "used"), [(999, None), (1_000, 10), (1_400, 10), (1_500, 20), (2_399, 20), (2_400, None)]
)
def test_a_page_shows_the_last_sample_before_its_end_unless_it_is_old(time_s: int, used: int | None) -> None:
    samples = [Sample(1_000, 10, 100), Sample(1_500, 20, 0)]
    found = memory_at(samples, time_s)
    limit = 100 if used == 10 else None
    assert found == (None if used is None else {"used_bytes": used, "limit_bytes": limit})


@pytest.mark.parametrize("text", [None, "", "[1]", "[[1, 2]]", "{", '[[1, "x", 3]]'])
def test_a_file_that_cannot_be_read_is_no_sample(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "store-memory.json").write_text(text)
    assert noted_store_memory(tmp_path) == []
