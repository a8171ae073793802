"""The earlier histories of the embedded store that prove that nothing was lost: an unbroken series of clean
shutdowns."""

from __future__ import annotations

from pathlib import Path

import pytest

from share_node.store.data_directory import DataDirectory
from share_node.store.embedded_store import StoreEndings


class Life:
    """Successive runs ("lives") of one store, in one data directory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.history = ""
        self.asked: list[bool] = []

        async def ask(url: str, *, flush: bool) -> str:
            self.asked.append(flush)
            return self.history

        monkeypatch.setattr(StoreEndings, "_ask", staticmethod(ask))

    async def lived(self, history: str, *, ends: str = "well") -> tuple[str, ...]:
        """Start, serve and end; return the histories that the processes were given as whole."""
        endings = StoreEndings(DataDirectory(self.folder))
        endings.begin()
        self.history = history
        reported = await endings.began("unix:///s")
        if ends == "died and came back":
            endings.broken()
            self.history = f"{history}'"
            reported = await endings.began("unix:///s")
        if ends != "killed":
            self.history = "" if ends == "not flushed" else self.history
            endings.ended(await endings.flushed("unix:///s"))
        return reported


@pytest.mark.rule("CM-104")
@pytest.mark.asyncio
async def test_histories_are_named_newest_first_as_long_as_every_ending_was_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path, monkeypatch)
    assert await life.lived("h1") == ("h1",)
    assert await life.lived("h2") == ("h2", "h1")
    assert await life.lived("h3") == ("h3", "h2", "h1")
    assert life.asked == [False, True] * 3, "at each end it must say that all is on disk"


@pytest.mark.rule("CM-104")
@pytest.mark.asyncio
@pytest.mark.parametrize("ends", ["killed", "not flushed"])
async def test_one_ending_that_is_not_known_to_be_good_breaks_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    life = Life(tmp_path, monkeypatch)
    await life.lived("h1")
    assert await life.lived("h2", ends=ends) == ("h2", "h1")
    assert await life.lived("h3") == ("h3",)
    assert await life.lived("h4") == ("h4", "h3")


@pytest.mark.rule("CM-104")
@pytest.mark.asyncio
async def test_a_store_that_died_meanwhile_proves_nothing_of_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path, monkeypatch)
    await life.lived("h1")
    assert await life.lived("h2", ends="died and came back") == ("h2'",)
    assert await life.lived("h3") == ("h3", "h2'")
