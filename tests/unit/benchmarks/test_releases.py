"""The bookkeeping and the table of `benchmarks.releases`. Nothing here is timed."""

from __future__ import annotations

from benchmarks.releases import RELEASED, Ends, table


def test_a_record_ends_once_it_is_accepted_or_rejected_and_not_by_its_release() -> None:
    ends, offsets = Ends(), set(range(200))
    kinds = {offset: ends.decide(offset, 1) for offset in offsets}
    assert sorted(kinds.values()).count("REJECT") == 2
    assert [offset for offset, kind in kinds.items() if kind == "RELEASE"] == [
        *RELEASED,
        *(100 + one for one in RELEASED),
    ]
    ends.confirmed(offsets)
    assert (ends.ended, ends.released, ends.rejected) == (180, 20, 2)
    again = {offset for offset, kind in kinds.items() if kind == "RELEASE"}
    assert {ends.decide(offset, 2) for offset in again} == {"ACCEPT"}, "it is released once"
    ends.confirmed(again)
    assert (ends.ended, ends.released, ends.rejected) == (200, 20, 2)


def test_a_rejected_record_whose_lock_had_run_out_is_rejected_at_its_next_delivery() -> None:
    ends = Ends()
    assert ends.decide(57, 2) == "REJECT"
    ends.confirmed({57})
    assert (ends.ended, ends.rejected) == (1, 1)


def _run(rate: int, flagged: bool = False) -> dict[str, object]:
    return {"consume_per_s": rate, "cpu_us_per_record": 400 / rate, "flagged": flagged}


def test_ratios_are_of_the_same_round_and_the_goal_is_graded() -> None:
    runs = {
        "B1": [_run(100), _run(10), _run(40)],
        "releases": [_run(50), _run(9), _run(24, flagged=True)],
        "B9": [_run(1)],
    }
    _, first, second, last = table(runs).splitlines()
    assert first.split() == ["B1", "40", "1.00", "10.00", "1.00", "0", "of", "3"]
    assert second.split() == [
        "releases",
        "24",
        "0.60",
        "16.67",
        "1.67",
        "1",
        "of",
        "3",
        "B9",
        "releases",
        "/",
        "B1",
        "throughput:",
        "must",
    ]
    assert last.endswith("not all runs were counted")
