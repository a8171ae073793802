"""Why a group is behind: one case for each cause, and the neighbours that must not be mistaken for it."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroups.insight.causes import Group, short_id, why

from .samples import progress

SOME = Group("Stable", 2)
NODE = ("10.0.0.3:9092",)
MIN = 60_000
HOUR = 60 * MIN


@pytest.mark.rule("CT-155")
@pytest.mark.parametrize(
    ("figures", "group", "cause"),
    [
        ({"lag": 5, "oldest_ms": MIN, "fetching": 0}, Group("Empty", 0), "no member"),
        ({"lag": 0, "fetching": 0}, Group("Empty", 0), "nothing waits"),
        ({"lag": 0, "fetching": 0}, Group("Empty", None), "nothing waits"),
        # An older coordinator does not count members, but names the state.
        ({"lag": 5, "oldest_ms": MIN, "fetching": 0}, Group("Empty", None), "no member"),
        ({"lag": 5, "oldest_ms": MIN, "fetching": 0}, Group("Stable", None), "members, but none fetches"),
        ({"lag": 5, "oldest_ms": MIN, "fetching": 0}, Group(None, None), "none fetches; its members are unknown"),
        ({"lag": 5, "oldest_ms": MIN, "fetching": 0}, SOME, "members, but none fetches"),
        # Between two fetches a busy worker does not fetch, but it holds records.
        ({"lag": 5, "oldest_ms": MIN, "fetching": 0, "in_flight": 2}, SOME, "handlers busy"),
        ({"lag": 5, "oldest_ms": MIN, "in_flight": 2}, SOME, "handlers busy"),
        ({"lag": 5, "oldest_ms": MIN, "in_flight": 2, "recent_finished": 9}, SOME, "handlers busy"),
        ({"lag": 5, "oldest_ms": 3_000, "in_flight": 2, "recent_finished": 9}, SOME, "keeps up"),
        ({"lag": 5, "oldest_ms": 3_000, "in_flight": 0, "recent_finished": 0}, SOME, "keeps up"),
        ({"lag": 5, "oldest_ms": MIN, "in_flight": 0}, SOME, "members fetch, but get no record"),
        ({"lag": 5, "oldest_ms": MIN, "delayed": 5}, SOME, "only delayed records"),
        ({"lag": 5, "oldest_ms": MIN, "delayed": 4, "in_flight": 1}, SOME, "handlers busy"),
        ({"lag": 5, "oldest_ms": MIN, "delayed": 4, "dead_letters": 1}, SOME, "dead letters wait"),
        ({"lag": 0, "dead_letters": 1}, SOME, "dead letters wait"),
        ({"lag": 0, "dead_letters": 1}, Group("Empty", 0), "dead letters wait"),
        ({"lag": 0}, SOME, "keeps up"),
        ({"lag": None}, SOME, "unknown: a leader has not read its state yet"),
        ({"lag": None}, Group("Empty", 0), "no member"),
        ({"lag": 5}, Group("Unknown", None), "unknown: its state is in quarantine"),
        ({"lag": 5}, Group("Dead", 0), "unknown: it is being deleted"),
    ],
)
def test_each_cause_has_its_words(figures: dict[str, Any], group: Group, cause: str) -> None:
    assert why(progress(**figures), group, ()) == cause


@pytest.mark.rule("CT-155")
@pytest.mark.parametrize(
    ("figures", "cause"),
    [
        # All that is left is held.
        ({"lag": 1, "in_flight": 1, "since_finish_ms": 100, "recent_finished": 9}, "held 31 min by w-7"),
        # Nothing else has been finished since.
        ({"lag": 50, "in_flight": 1, "since_finish_ms": HOUR}, "held 31 min by w-7"),
        ({"lag": 50, "in_flight": 1, "since_finish_ms": None}, "held 31 min by w-7"),
        # Others are finished meanwhile, so one long job does not explain the other 49.
        ({"lag": 50, "in_flight": 9, "since_finish_ms": 100}, "handlers busy"),
        ({"lag": 1, "in_flight": 1, "longest_held_ms": 59_999}, "handlers busy"),
    ],
)
def test_a_holder_is_named_when_it_explains_the_lag(figures: dict[str, Any], cause: str) -> None:
    held: dict[str, Any] = {"oldest_ms": HOUR, "longest_member": "w-7", "longest_held_ms": 31 * MIN}
    assert why(progress(**(held | figures)), SOME, ()) == cause


@pytest.mark.rule("CT-155")
def test_a_leader_that_did_not_answer_makes_the_cause_unknown() -> None:
    said = "unknown: node 10.0.0.3:9092 did not answer"
    assert why(None, SOME, NODE) == said
    assert why(progress(lag=None), SOME, NODE) == said
    assert why(progress(lag=0), SOME, NODE) == said
    assert why(progress(lag=5, oldest_ms=MIN), SOME, NODE) == said
    assert why(progress(lag=0), SOME, (*NODE, "b:1", "c:1")) == "unknown: node 10.0.0.3:9092 and 2 more did not answer"
    # What is known all the same is said.
    assert why(progress(lag=5, oldest_ms=MIN), Group("Empty", 0), NODE) == "no member"


@pytest.mark.rule("CT-155")
def test_a_group_that_no_leader_counts_is_not_said_to_keep_up() -> None:
    assert why(None, Group("Empty", 0), ()) == "no member"
    assert why(None, SOME, ()) == "members, but none fetches"
    assert why(None, Group(None, None), ()) == "unknown: no leader knows of it"


def test_a_long_or_hostile_member_id_fits_into_the_sentence() -> None:
    assert short_id("w-7") == "w-7"
    assert short_id("0f9b1c2d-aaaa-bbbb-cccc-0123456789ab") == "0f9b1c2d…"
    assert short_id("a\x1b[2J") == "a\\x1b[2J"
