"""What a page says first: what stands still, for how long and why, and what no group reads."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from share_metrics.report.model import ROWS_MAX, PartitionLine, Report
from share_metrics.report.still import outages, standstills, still, unread, why
from share_metrics.report.tables import EMPTY

from .test_page import line, report

END_S = 1_795_345_200  # 2026-11-22 11:00


def standing(name: str, seconds: float | None, **fields: object) -> PartitionLine:
    made = replace(line(f"{name} · t-0", 5), group_id=name, timed_out=0, released=0, still_s=seconds)
    return replace(made, **fields)  # type: ignore[arg-type] # as given


def rows(made: str) -> list[list[str]]:
    return [re.findall(r"<td>([^<]*)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", made)]


def episode(name: str, since: str, until: str, kind: str = "stalled") -> dict[str, object]:
    return {"name": name, "kind": kind, "since": f"2026-11-22 {since}", "until": f"2026-11-22 {until}", "lag": 7}


@pytest.mark.rule("PM-100")
def test_the_longest_standstill_is_first_with_its_age_its_lag_and_its_reason() -> None:
    lines = [standing("a", 415.4), standing("b", None), standing("c", 3_600.0, lag=9, lag_least=True)]
    groups = [{"group_id": "a", "state": "Stable", "members": 2}, {"group_id": "c", "state": "Empty", "members": 0}]
    made = report(partitions=lines, standing=groups, episodes=[episode("c · t-0", "09:59:00", "11:00:00")])
    assert rows(still(made)) == [
        ["c · t-0", "1 h", "≥\N{NO-BREAK SPACE}9", "2026-11-22 10:00:00", "the group has no members"],
        ["a · t-0", "6 min 55 s", "5", "–", "2 members finish nothing: do they hang, or wait for something?"],
    ]
    assert still(report()) == EMPTY


@pytest.mark.rule("PM-100")
@pytest.mark.parametrize(
    ("fields", "members", "words"),
    [
        ({}, None, "no member of the group was ever seen"),
        ({"timed_out": 9}, 0, "the group has no members"),
        ({"timed_out": 31}, 2, "2 members finish nothing, and 31 records timed out on this page: do they hang?"),
        ({"released": 1}, 1, "1 member finishes nothing, and released 1 record on this page"),
        ({}, 1, "1 member finishes nothing: do they hang, or wait for something?"),
    ],
)
def test_the_reason_is_what_the_group_and_the_counts_show(
    fields: dict[str, object], members: int | None, words: str
) -> None:
    group = None if members is None else {"group_id": "g", "state": "Stable", "members": members}
    assert why(standing("g", 300.0, **fields), group) == words


@pytest.mark.rule("PM-100")
def test_what_stood_still_earlier_is_not_said_to_stand_still() -> None:
    made = report(partitions=[standing("g", None)], episodes=[episode("g · t-0", "10:00:00", "10:20:00")])
    assert made.still == []
    assert still(made) == EMPTY


@pytest.mark.rule("PM-100")
def test_only_as_many_as_there_is_room_for_are_listed() -> None:
    made = still(report(partitions=[standing(f"g{number}", 300.0) for number in range(ROWS_MAX + 3)]))
    assert len(rows(made)) == ROWS_MAX
    assert f"{ROWS_MAX} of {ROWS_MAX + 3} are shown." in made


@pytest.mark.rule("PM-100")
def test_topics_without_a_reader_and_groups_with_only_configs_are_named() -> None:
    topics = [
        {"topic": "<gamma>", "records": 1_500, "oldest_s": END_S - 3_723},
        {"topic": "delta", "records": 1, "oldest_s": None},
    ]
    made = unread(report(unread=topics, configured=[f"g{number}" for number in range(53)]))
    assert rows(made) == [
        ["&lt;gamma&gt;", "1,500", "1 h 2 min", "2026-11-22 09:57:57"],
        ["delta", "1", "–", "–"],
    ]
    assert "<p>They have neither members nor share-partitions: g0, g1," in made
    assert "g49 and 3 more.</p>" in made
    assert unread(report()) == ""


@pytest.mark.rule("PM-90", "PM-102")
def test_a_lower_bound_has_its_sign_window_by_window_too() -> None:
    window = {"name": "g · t-0", "window": "2026-11-22 10:58:00", "lag": 900, "still_s": 330, "kind": "stalled"}
    run = episode("g · t-0", "10:53:00", "11:00:00") | {"lag_least": True}
    made = standstills(report(stalls=[window | {"lag_least": True}, window], episodes=[run]))
    least = "≥\N{NO-BREAK SPACE}900"
    assert rows(made) == [
        ["g · t-0", "≥\N{NO-BREAK SPACE}7", "stalled", "2026-11-22 10:54:00", "2026-11-22 11:00:00"],
        ["g · t-0", least, "2026-11-22 10:58:00", "5 min 30 s", "stalled"],
        ["g · t-0", "900", "2026-11-22 10:58:00", "5 min 30 s", "stalled"],
    ]


@pytest.mark.rule("PM-104")
def test_outages_are_said_with_their_times_and_lengths() -> None:
    made = outages([(END_S, END_S + 327), (END_S + 600, END_S + 660)])
    assert "from 2026-11-22 11:00:00 to 2026-11-22 11:05:27 (5 min 27 s), from 2026-11-22 11:10:00 to " in made
    assert outages([]) == ""
    assert "and 10 more." in outages([(number, number + 1) for number in range(60)])


@pytest.mark.rule("PM-104")
def test_only_the_part_of_an_outage_in_the_pages_time_counts() -> None:
    made = Report(
        "2026-11-22 10:00", "2026-11-22 11:00", 60, [], outages=[(END_S - 9_999, END_S - 3_500), (END_S - 9, END_S + 9)]
    )
    assert made.outage_s == 100 + 9
