"""The demo worker's verdicts on records, and the length of its program."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from contextvars import copy_context
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from share_node.demo import worker as program
from share_node.demo.jobs import BrokenRecordError, fails_first_attempt
from sharegroups import Reject
from sharegroups.worker.core.policy import Kind, Verdict
from sharegroups.worker.job import JobInfo, enter, run_blocking

FAILING = next(key for key in map(str, count()) if fails_first_attempt(key))
SOUND = next(key for key in map(str, count()) if not fails_first_attempt(key))
SOURCE = b"def f(): ...\n"

Run = Callable[..., tuple[Verdict, dict[str, Any]]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the demo's job for a record, as a worker does, and returns the verdict and the report
    to the demo."""
    spec = program.worker.jobs["demo"]

    def work(key: str, value: bytes, times: int) -> Verdict:
        enter(lambda: JobInfo("demo", 1, 7, times, key.encode(), []))
        return run_blocking(spec, value)

    def once(key: str, value: bytes, times: int = 1) -> tuple[Verdict, dict[str, Any]]:
        verdict = copy_context().run(work, key, value, times)  # afterwards no job is current
        return verdict, json.loads(capfd.readouterr().out)

    return once


def test_a_sound_record_is_done_and_reported_with_its_tally(run: Run) -> None:
    verdict, reported = run(SOUND, SOURCE)
    assert verdict.kind is Kind.DONE
    tally = {"functions": 1, "lines": 1}
    assert reported == {"partition": 1, "offset": 7, "count": 1, "outcome": "accepted", "tally": tally}


def test_a_planted_failure_is_tried_again_after_a_while_and_then_done(run: Run) -> None:
    verdict, reported = run(FAILING, SOURCE)
    assert (verdict.kind, reported["outcome"], reported["tally"]) == (Kind.FAILED, "released", {})
    assert program.worker.jobs["demo"].retry.delay_of(1, chance=1.0) > 0.1
    verdict, reported = run(FAILING, SOURCE, times=2)
    assert (verdict.kind, reported["outcome"], reported["count"]) == (Kind.DONE, "accepted", 2)


def test_what_cannot_be_parsed_is_rejected(run: Run) -> None:
    verdict, reported = run(SOUND, b"def broken(:\n")
    assert (verdict.kind, reported["outcome"], reported["tally"]) == (Kind.REJECTED, "rejected", {})
    assert verdict.why.startswith("BrokenRecordError: SyntaxError")
    assert program.worker.jobs["demo"].outcomes == {BrokenRecordError: Reject}


def test_the_program_has_twenty_lines_at_most() -> None:
    """Imports, blank lines and docstrings do not count: only lines that the author of a worker writes."""
    text = Path(program.__file__).read_text()
    lines = {number for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    for node in ast.walk(ast.parse(text)):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (is_docstring or isinstance(node, ast.Import | ast.ImportFrom)):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    assert len(lines) <= 20
