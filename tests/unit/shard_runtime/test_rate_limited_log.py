"""Log lines that others can cause: the first is written at once, then one per key and interval, which counts those held
back."""

from __future__ import annotations

import asyncio
import io
import json

import structlog
from structlog.testing import capture_logs

from shard_runtime.logs import configure_logs
from shard_runtime.rate_limited_log import RateLimitedLog
from tests.support.virtual_time import run

log = structlog.get_logger(__name__)


def test_a_flood_is_one_line_at_once_and_one_for_each_interval() -> None:
    async def main() -> None:
        limited = RateLimitedLog(log, every_s=10)
        for number in range(1_000):
            limited.warning("bad", key=("peer", "cause"), sums={"records": 2}, number=number)
            await asyncio.sleep(0.025)
        await asyncio.sleep(60)
        limited.warning("bad", key=("peer", "cause"), number=0)

    with capture_logs() as lines:
        run(main())
    reported = sum(line.get("held_back", 1) for line in lines)
    assert reported == 1_001, lines
    assert len(lines) == 5
    assert sum(line.get("records", 0) for line in lines) == 2_000
    assert lines[1]["number"] > lines[0]["number"], "the newest fields are logged"


def test_each_key_has_its_line_and_those_beyond_the_bound_share_one() -> None:
    async def main() -> None:
        limited = RateLimitedLog(log, every_s=10, keys_max=3)
        for peer in range(100):
            limited.error("bad", key=peer, peer=peer, exc_info=ValueError("once"))
        limited.close()

    with capture_logs() as lines:
        run(main())
    assert [line["peer"] for line in lines] == [0, 1, 2, 99]
    assert (lines[3]["held_back"], lines[3]["and_others"]) == (97, True)
    assert ["exc_info" in line for line in lines] == [True, True, True, False]


def test_what_is_held_back_is_reported_when_the_process_ends() -> None:
    async def main() -> None:
        limited = RateLimitedLog(log)
        for _ in range(3):
            limited.info("bad", key=1)
        limited.close()
        limited.close()

    with capture_logs() as lines:
        run(main())
    assert [line.get("held_back") for line in lines] == [None, 2]


def test_names_with_control_characters_reach_neither_form_of_log_raw() -> None:
    name = "g\x1b[2J\u202e\nlevel=error"
    for form in ("json", "console"):
        out = io.StringIO()
        configure_logs("info", form, out)
        try:
            structlog.get_logger().warning("archived", group=name, names=[name])
            try:
                raise ValueError(f"group {name}")
            except ValueError:
                structlog.get_logger().exception("failed")
        finally:
            structlog.reset_defaults()
        text = out.getvalue()
        assert "\x1b[2J" not in text
        assert "\u202e" not in text
        first = text.splitlines()[0]
        if form == "json":
            assert json.loads(first)["group"] == name
        else:
            assert r"g\x1b[2J\u202e\nlevel=error" in first
