"""Hooks: which functions they may be, and that what they raise stays with them."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from sharegroups import Worker
from sharegroups.worker.hooks import Hooks

calls: list[str] = []


def first() -> None:
    calls.append("first")
    raise SystemExit(3)


def second() -> None:
    calls.append("second")


class Nasty(Exception):  # noqa: N818 - a user's exception
    def __str__(self) -> str:
        raise ValueError("no text")


def nasty() -> None:
    raise Nasty


def worker() -> Worker:
    return Worker(bootstrap_servers="127.0.0.1:1", group_id="g")


@pytest.mark.rule("CL-178")
def test_what_a_hook_raises_is_logged_once_and_keeps_no_other_hook_from_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = Hooks()
    for function in (first, nasty, second):
        hooks.add("start", function)
    calls.clear()
    hooks.run("start")
    hooks.run("start")
    assert calls == ["first", "second"] * 2
    logged = [record.getMessage() for record in caplog.records]
    assert [text.split(" raised")[0] for text in logged] == ["the hook first for 'start'", "the hook nasty for 'start'"]
    assert all(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


@pytest.mark.rule("CL-178")
def test_each_process_logs_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    hooks = Hooks()
    hooks.add("start", first)
    hooks.run("start")
    copy = pickle.loads(pickle.dumps(hooks))
    assert copy
    assert copy.has("start")
    copy.run("start")
    assert len(caplog.records) == 2


@pytest.mark.rule("CL-178")
@pytest.mark.parametrize(
    ("event", "function", "message"),
    [
        ("fail", lambda job, error: None, r"event is 'fail'; expected one of start, stop, before, after, failed"),
        (None, lambda: None, "event is None"),
        ("failed", lambda job: None, r"write def <lambda>\(job, error\)"),
        ("start", lambda job: None, r"write def <lambda>\(\)"),
        ("before", 5, "decorates 5; expected a function"),
    ],
)
def test_a_hook_that_cannot_be_called_is_refused(event: Any, function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        worker().on(event)(function)


@pytest.mark.rule("CL-178")
def test_an_async_function_is_refused() -> None:
    async def before(job: object) -> None: ...

    with pytest.raises(ValueError, match="is async; expected a plain function"):
        worker().on("before")(before)


def test_a_hook_is_still_the_function_that_it_decorates() -> None:
    assert worker().on("start")(second) is second


def test_a_function_without_a_known_signature_is_taken() -> None:
    worker().on("stop")(dict)
