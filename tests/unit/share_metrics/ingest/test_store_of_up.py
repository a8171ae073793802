"""The store of an `up`, which is elsewhere after each restart, and what a job reports of that."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from share_metrics.ingest.store_of_up import NoStoreError, UpWatch, url_of_up
from share_metrics.ingest.writing import Source
from share_metrics.reader import Kind


class Up:
    """The data directory of an `up`, and the socket of its store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._starts = 0
        self._listener: socket.socket | None = None

    def start(self) -> str:
        """Listen at a new path; returns its URL."""
        self._starts += 1
        there = self.folder / f"sharegroups-{self._starts}"
        there.mkdir()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(there / "store.sock"))
        self._listener.listen()
        (self.folder / "store.socket-dir").write_text(f"{there}\n")
        return f"unix://{there}/store.sock"

    def kill(self) -> None:
        """End; the socket's file stays."""
        assert self._listener is not None
        self._listener.close()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path)
    yield up
    up.kill()


@pytest.mark.rule("PM-109")
def test_each_query_and_sample_uses_the_store_as_of_then(up: Up) -> None:
    with pytest.raises(NoStoreError):
        url_of_up(up.folder)
    first = up.start()
    source = Source(first, up=up.folder)
    assert source.options(Kind.GROUP)["url"] == source.address() == first
    up.kill()
    second = up.start()
    assert source.options(Kind.GROUP)["url"] == source.address() == second
    assert Source(first).address() == first
    (up.folder / "store.socket-dir").unlink()
    assert source.address() == first, "which does not answer, as the query then reports"


@pytest.mark.rule("PM-106", "PM-109")
def test_a_store_that_goes_and_comes_back_is_reported_once(up: Up) -> None:
    up.start()
    reported: list[str] = []
    away: list[bool] = []
    watch = UpWatch(up.folder, 300, reported.append, lambda: away.append(True))
    watch.check()
    assert (reported, away) == ([], [])
    up.kill()
    watch.check()
    watch.check()
    assert len(away) == 2
    gone = f"the store of `sharegroups up` on {up.folder} is gone; from the next trigger on, the ingest waits for it"
    assert reported == [f"{gone} for up to 300 s"]
    (up.folder / "store.socket-dir").unlink()
    watch.check()
    again = up.start()
    watch.check()
    watch.check()
    assert reported[1:] == [f"the store of `sharegroups up` on {up.folder} is at {again} now"]
    up.kill()
    last = up.start()
    watch.check()
    assert reported[2:] == [f"the store of `sharegroups up` on {up.folder} is at {last} now"], "restarted in between"
    assert len(away) == 3
