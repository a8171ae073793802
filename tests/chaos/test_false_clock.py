"""A process under `false_clock` has the clocks that its file sets, and no other process is affected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import false_clock
from tests.chaos.false_clock import ClockFile, Error, follow

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("error", "shift_ns"),
    [
        (Error(), 0),
        (Error(since_ns=SECOND, rate_ppm=100_000), SECOND // 10),
        (Error(since_ns=SECOND, rate_ppm=-100_000), -SECOND // 10),
        (Error(since_ns=SECOND, shift_ns=7, rate_ppm=0), 7),
    ],
)
def test_clocks_are_off_by_their_rate_since_it_was_set(error: Error, shift_ns: int) -> None:
    assert error.shift(2 * SECOND) == shift_ns


def test_a_rate_that_changes_leaves_what_it_has_made_and_a_jump_is_of_the_wall_clock_alone(tmp_path: Path) -> None:
    clock = ClockFile(tmp_path / "clock")
    read = follow(clock.path)
    assert read() == Error()
    clock.set(rate_ppm=100_000)
    first = read()
    clock.set(wall_ms=60_000)
    second = read()
    assert (second.rate_ppm, second.wall_ns) == (100_000, 60 * SECOND)
    assert second.shift_ns == first.shift(second.since_ns) > 0
    clock.set(wall_ms=0, rate_ppm=0)
    assert read().shift(read().since_ns + SECOND) == second.shift(read().since_ns)


_ASKS = """
import asyncio, json, sys, time
async def loop_s():
    return asyncio.get_running_loop().time()
sys.stdin.readline()
print(json.dumps([time.time(), time.monotonic(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), asyncio.run(loop_s())]))
"""


def test_every_clock_of_a_process_is_false_while_the_others_are_true(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(_ASKS)
    clock = ClockFile(tmp_path / "clock")
    words = [sys.executable, false_clock.__file__, str(clock.path), sys.executable, "-m", "asks"]
    clock.set(wall_ms=3_600_000, shift_ms=-1_000_000)
    asked = subprocess.run(words, input="\n", capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60)
    code = "import json, time; print(json.dumps([time.time(), time.monotonic(), " + (
        "time.clock_gettime_ns(time.CLOCK_BOOTTIME)]))"
    )
    true = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    wall_s, mono_s, boot_ns, loop_s = map(float, asked.stdout.strip("[]\n").split(","))
    true_wall_s, true_mono_s, true_boot_ns = map(float, true.stdout.strip("[]\n").split(","))
    # Off by an hour and by 1,000 s; a pause of the machine between the two readings is less than half of that.
    assert round((wall_s - true_wall_s + 1_000) / 3_600) == 1
    assert round((mono_s - true_mono_s) / 1_000) == -1
    assert round((loop_s - true_mono_s) / 1_000) == -1
    assert round((boot_ns - true_boot_ns) / SECOND / 1_000) == -1
