"""Files are read again while a node runs: a failure counts only once it has lasted."""

from __future__ import annotations

import asyncio

import pytest

from shard_runtime.rpc.rereading import RELOAD_S, REPLACED_S, REPLACING_S, read_for_ever
from tests.support.virtual_time import now_s, virtual


class Files:
    """Files that are unusable for some time. `reported`: when a failure was to be reported, s after the begin."""

    def __init__(self, bad_from_s: float, bad_until_s: float) -> None:
        self.bad_s = bad_from_s, bad_until_s
        self._begin_s = now_s()
        self.read_s: list[float] = []
        self.reported: list[float] = []

    async def read(self, report: bool) -> bool:
        begin_s, end_s = self.bad_s
        now = now_s() - self._begin_s
        self.read_s.append(now)
        bad = begin_s <= now < end_s
        if bad and report:
            self.reported.append(now)
        return not bad


async def watched(files: Files, **given: float) -> None:
    watching = asyncio.create_task(read_for_ever(files.read, **given))
    await asyncio.sleep(60)
    watching.cancel()


@pytest.mark.rule("CM-207", "CM-60")
@virtual
async def test_files_that_are_removed_and_written_again_are_no_failure_and_used_soon() -> None:
    files = Files(3, 3 + RELOAD_S - 0.5)
    await watched(files)
    assert files.reported == []
    assert any(files.bad_s[1] <= when < files.bad_s[1] + RELOAD_S for when in files.read_s)


@pytest.mark.rule("CM-207", "CM-60")
@virtual
async def test_a_failure_that_lasts_is_reported_and_the_next_one_not_before_it_has_lasted_too() -> None:
    files = Files(3, 23)
    await watched(files)
    first_s = next(when for when in files.read_s if when >= 3)
    assert REPLACING_S <= files.reported[0] - first_s <= REPLACING_S + RELOAD_S
    assert files.read_s[files.read_s.index(first_s) + 1] - first_s == pytest.approx(REPLACED_S)
    gaps = [after - before for before, after in zip(files.read_s, files.read_s[1:], strict=False)]
    assert max(gaps) <= RELOAD_S + 0.001, "the pauses between failures are bounded"


@pytest.mark.rule("CM-207", "CM-186")
@virtual
async def test_without_patience_the_first_failure_is_reported() -> None:
    files = Files(3, 9)
    await watched(files, first_s=0, patience_s=0, retry_s=1, retry_max_s=60)
    assert files.reported[0] == pytest.approx(RELOAD_S)
