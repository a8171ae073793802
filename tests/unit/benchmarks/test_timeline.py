"""The hops of `benchmarks.timeline`: that they are still there, and how notes become ways. Nothing here is timed."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.timeline import WAY, Hop, Notes, journeys, table


@pytest.mark.parametrize("hop", WAY, ids=lambda hop: hop.name)
def test_every_hop_names_a_method_of_the_product(hop: Hop) -> None:
    found: object = importlib.import_module(hop.module)
    for part in hop.method.split("."):
        found = getattr(found, part)
    assert inspect.isfunction(found)


def test_a_way_counts_only_when_it_ends_before_the_next_begins() -> None:
    whole = [(1000 * number, number) for number in range(len(WAY))]
    broken = [(50_000 + 1000 * number, number) for number in range(4)]
    again = [(90_000 + 2000 * number, number) for number in range(len(WAY))]
    others = [(500, 5), (89_000, 5), (91_000, 12)]  # of a state write, and of a job that came late
    assert journeys(sorted(whole + broken + again + others)) == [[at for at, _ in whole], [at for at, _ in again]]
    text = table([[at for at, _ in whole], [at for at, _ in again], [at for at, _ in whole]])
    assert text.splitlines()[1].split()[-2:] == ["1", "2"]
    assert text.splitlines()[-1].split()[-2:] == [str(len(WAY) - 1), str(2 * (len(WAY) - 1))]


def test_notes_are_taken_on_entry_and_after_the_end_of_messages_of_the_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("a_stream")

    class Stream:
        async def read(self) -> object:
            await asyncio.sleep(0)
            return 1

        def write(self, message: object) -> None:
            """Send it."""

    monkeypatch.setattr(module, "Stream", Stream, raising=False)
    monkeypatch.setitem(sys.modules, "a_stream", module)
    notes = Notes()
    notes.wrap(0, Hop("read", "a_stream", "Stream.read"))
    notes.wrap(1, Hop("has read", "a_stream", "Stream.read", after=True, kind="int"))
    notes.wrap(2, Hop("writes", "a_stream", "Stream.write", kind="str"))
    notes.wrap(3, Hop("has written", "a_stream", "Stream.write", after=True))
    assert asyncio.run(Stream().read()) == 1
    Stream().write(b"")
    Stream().write("")
    notes.write(tmp_path / "notes")
    lines = (tmp_path / "notes").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["0", "1", "3", "2", "3"]
    assert lines == sorted(lines)
