"""A sample of log ends is stored whole or not at all, and an hour's samples are merged after the hour has ended."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from share_metrics.ingest import log_samples
from share_metrics.ingest.log_samples import Sampler, newest_sample, sample, stored_samples
from share_metrics.ingest.store_clock import StoreClock
from share_metrics.reader import Store, StoreReplyError, StoreUnreachableError
from share_metrics.reader.log_ends import LogEnd

STORE: Any = None
AT = datetime(2026, 11, 22, 23, 58, 30, tzinfo=UTC)


class Unasked(StoreClock):
    """This machine's clock."""

    def ask(self, store: Store) -> None:
        """Do nothing: there is no store."""


class Logs:
    """A store whose log is one record longer at each call, or which raises an error."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.end = 0
        self.error: Exception | None = None
        patched.setattr(log_samples, "log_ends", self._ends)

    def _ends(self, _store: object) -> list[LogEnd]:
        if self.error is not None:
            raise self.error
        self.end += 1
        return [LogEnd("t", 0, 0, self.end, self.end)]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return Logs(monkeypatch)


def names(data: Path) -> list[str]:
    return sorted(str(path.relative_to(data / "log_ends")) for path in data.rglob("*") if path.is_file())


def ends(table: Any) -> list[int]:
    return sorted(row["high_watermark"] for row in table.to_pylist())


@pytest.mark.rule("PM-18")
def test_a_sample_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(table: object, path: Path, **_: object) -> None:
        path.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(OSError, match="No space left"):
        sample(STORE, tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.rule("PM-18")
def test_the_samples_of_an_hour_that_is_over_are_one_file(tmp_path: Path, logs: Logs) -> None:
    for minutes in range(0, 64):
        sample(STORE, tmp_path, AT + timedelta(minutes=minutes))
    day = "dt=2026-11-23"
    assert names(tmp_path) == ["dt=2026-11-22/23.parquet", f"{day}/00.parquet",
                               *(f"{day}/01{minute:02}30000000.parquet" for minute in range(2))]  # fmt: skip
    assert ends(stored_samples(tmp_path)) == list(range(1, 65))
    assert ends(stored_samples(tmp_path, AT + timedelta(minutes=1), AT + timedelta(minutes=4))) == [2, 3, 4]


@pytest.mark.rule("PM-18")
@pytest.mark.parametrize("killed", ["before it shows", "amid the removals"])
def test_a_job_that_is_killed_while_it_puts_samples_together_loses_none(
    tmp_path: Path, logs: Logs, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    for minutes in range(2):
        sample(STORE, tmp_path, AT + timedelta(minutes=minutes))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace" if killed == "before it shows" else "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log_samples.put_together(tmp_path, AT + timedelta(minutes=2))
    assert set(ends(stored_samples(tmp_path))) == {1, 2}
    log_samples.put_together(tmp_path, AT + timedelta(minutes=2))
    assert names(tmp_path) == ["dt=2026-11-22/23.parquet"]
    assert set(ends(stored_samples(tmp_path))) == {1, 2}


def interrupted(self: Path, *_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.rule("PM-18")
def test_the_newest_sample_up_to_a_time_is_found(tmp_path: Path, logs: Logs) -> None:
    assert newest_sample(tmp_path, AT) is None
    for minutes in (0, 1, 5):
        sample(STORE, tmp_path, AT + timedelta(minutes=minutes))
    for minutes, found in ((0, (0, 1)), (4, (1, 2)), (5, (5, 3)), (99, (5, 3))):
        at, end = AT + timedelta(minutes=found[0]), LogEnd("t", 0, 0, found[1], found[1])
        assert newest_sample(tmp_path, AT + timedelta(minutes=minutes)) == (at, [end])
    assert newest_sample(tmp_path, AT - timedelta(microseconds=1)) is None


@pytest.mark.rule("PM-18", "PM-121")
def test_a_sample_that_fails_is_raised_and_one_that_finds_no_store_is_noticed(tmp_path: Path, logs: Logs) -> None:
    took: list[Any] = []
    away: list[str] = []
    sampler = Sampler(
        lambda: nullcontext(STORE),  # type: ignore[arg-type,return-value] # no store
        tmp_path,
        Unasked(print),
        lambda at, found: took.append(found),
        lambda: away.append("away"),
    )
    for error in (StoreReplyError("no"), StoreUnreachableError("away"), StoreUnreachableError("away")):
        logs.error = error
        with pytest.raises(type(error)):
            sampler()
    assert away == ["away", "away"]
    logs.error = None
    sampler()
    assert took == [[LogEnd("t", 0, 0, 1, 1)]]
