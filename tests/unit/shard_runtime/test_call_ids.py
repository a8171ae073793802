"""Log lines say for which call they are written, and no other line says so."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator

import pytest
import structlog

from shard_runtime.call_ids import CLIENT_ID_MAX, REQUEST_ID_MAX, begin_call, call_fields, current_request_id
from shard_runtime.logs import configure_logs
from shard_runtime.rate_limited_log import RateLimitedLog

pytestmark = pytest.mark.asyncio


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    out = io.StringIO()
    configure_logs("info", "json", out)
    yield out
    structlog.reset_defaults()


def ids(out: io.StringIO) -> list[tuple[str | None, str | None]]:
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return [(line.get("request_id"), line.get("client_id")) for line in lines]


@pytest.mark.rule("CM-240")
async def test_lines_of_a_calls_task_have_its_ids_and_those_of_tasks_that_it_starts_have_none(
    out: io.StringIO,
) -> None:
    log = structlog.get_logger("a.test")
    log.info("before")

    async def later() -> None:
        await asyncio.sleep(0)
        log.info("for_others")

    async def call(request_id: str, client_id: str) -> asyncio.Task[None]:
        begin_call(request_id, client_id)
        log.info("begun")
        started = asyncio.create_task(later())
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, call_fields)
        log.info("answered", client_id="as the line says")
        return started

    await (await asyncio.create_task(call("abc", "me")))
    log.info("after")
    assert ids(out) == [
        (None, None), ("abc", "me"), (None, None), ("abc", "as the line says"), (None, None),
    ]  # fmt: skip


@pytest.mark.rule("CM-240")
async def test_without_an_id_of_the_caller_one_is_made_for_all_lines_of_the_call(out: io.StringIO) -> None:
    log = structlog.get_logger("a.test")
    for _ in range(2):
        begin_call("", "")
        log.info("begun")
        log.info("answered")
    first, again, other, _ = ids(out)
    assert first == again != other
    assert first[1] is None, "without a client.id there is no such field"
    assert len(first[0] or "") == 16
    assert current_request_id() == other[0]


@pytest.mark.rule("CM-240")
async def test_ids_of_callers_are_bounded_and_escaped(out: io.StringIO) -> None:
    begin_call("x\x1b[2J\n" + "y" * 1_000, "\u202e" + "z" * 1_000)
    structlog.get_logger("a.test").info("begun")
    (line,) = out.getvalue().splitlines()
    assert "\x1b" not in line
    assert "\u202e" not in line
    fields = call_fields()
    assert (len(fields["request_id"]), len(fields["client_id"])) == (REQUEST_ID_MAX, CLIENT_ID_MAX)


@pytest.mark.rule("CM-240")
async def test_a_line_for_those_that_were_held_back_has_the_ids_of_the_newest(out: io.StringIO) -> None:
    limited = RateLimitedLog(structlog.get_logger("a.test"))
    for number in range(3):
        begin_call(f"r{number}", "me")
        limited.warning("refused", key="k")
    await asyncio.create_task(_closed(limited))
    assert ids(out) == [("r0", "me"), ("r2", "me")]


async def _closed(limited: RateLimitedLog) -> None:
    limited.close()


@pytest.mark.rule("CM-240")
async def test_no_call_no_ids() -> None:
    assert (call_fields(), current_request_id()) == ({}, "")
