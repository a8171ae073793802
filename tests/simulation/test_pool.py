"""The pool: every seed is played once, and a worker that dies loses only its own seed."""

from __future__ import annotations

import io
import re

from tests.simulation.pool import Played, Summary, run, work

FAKE = "tests.simulation.fakes:play"


def test_every_seed_is_played_once_and_counted() -> None:
    heard: list[Played] = []
    summary = run(range(100, 130), workers=2, play=FAKE, say=heard.append)
    assert sorted(played.seed for played in heard) == list(range(100, 130))
    assert re.fullmatch(r"histories=30 operations=300 violations=0 seconds=\d+\.\d", summary.line())
    assert not summary.failed


def test_violations_are_counted_and_kept_with_their_story() -> None:
    summary = run([1, 900, 2], workers=1, play=FAKE)
    assert summary.line().startswith("histories=3 operations=30 violations=2 ")
    assert [(played.seed, played.story) for played in summary.failed] == [(900, "once upon a time")]


def test_a_worker_that_dies_or_falls_silent_is_a_violation_of_its_seed_and_the_rest_is_played() -> None:
    heard: list[Played] = []
    summary = run([11, 12, 13, 14, 15, 16], workers=1, play=FAKE, say=heard.append, silent_s=5)
    assert [played.seed for played in heard] == [11, 12, 13, 14, 15, 16]
    assert [played.violations for played in summary.failed] == [
        ("the worker that played seed 13 died with status 7",),
        ("the worker that played seed 14 said nothing for 5 s",),
    ]


def test_a_worker_answers_line_by_line() -> None:
    answers = io.StringIO()
    work("tests.simulation.test_pool:echo", io.StringIO("[3, 4]\n[5]\n"), answers)
    assert [line.split(",")[0] for line in answers.getvalue().splitlines()] == [
        '{"seed": 3',
        '{"seed": 4',
        '{"seed": 5',
    ]


def echo(seed: int) -> Played:
    return Played(seed)


def test_after_its_seconds_no_more_seeds_are_begun() -> None:
    summary = run(range(100, 100_100), workers=1, play=FAKE, seconds=0.5)
    assert 0 < summary.histories < 100_000
    assert run([1], workers=1, play=FAKE, seconds=0.0).histories == 0


def test_an_empty_range_closes_with_its_line() -> None:
    assert Summary().line().startswith("histories=0 operations=0 violations=0 seconds=")
