"""The garbage collector is paused while a page is made, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from share_metrics.reader import EntryId, Kind, Position, Reader, ReadOptions
from share_metrics.reader.decoding import RawEntry, decode
from share_metrics.reader.decoding import rows as rows_of_pages
from share_metrics.reader.reading import collector_paused
from tests.support.pipeline_entries import STREAM, MemoryStream, epochs

from .memory_store import MemoryStore


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_it_goes_on_behind_it_whatever_happened_there() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no page"), collector_paused():
        raise ValueError("no page")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


@pytest.mark.rule("PM-79")
def test_the_collector_waits_for_each_page_and_not_for_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(MemoryStream(epochs(5)))
    amid_pages: list[bool] = []
    amid_rows: list[bool] = []

    def checked(entry: RawEntry) -> dict[str, Any]:
        amid_rows.append(gc.isenabled())
        return decode(Kind.SHARE_STATE, entry)

    monkeypatch.setattr(rows_of_pages, "decode", lambda _kind, entry, **_: checked(entry))
    store.before_page = lambda: amid_pages.append(gc.isenabled())
    reader = Reader(store, Kind.SHARE_STATE, ReadOptions(page_count=2))
    plan = reader.plan({STREAM: Position(EntryId(0, 0), 0)}, reader.tips([STREAM]))[STREAM]
    rows = []
    for batch in reader.read(plan.ranges):
        assert gc.isenabled()
        rows.append(batch.num_rows)
    assert (sum(rows), amid_pages) == (5, [False] * len(amid_pages))
    assert len(amid_pages) >= 3
    assert amid_rows == [False] * 5
