"""The hops of `benchmarks.timeline`: they still exist, and noted times are combined into paths. Nothing here is
timed."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.timeline import WAY, Hop, Note, Notes, journeys, table


@pytest.mark.parametrize("hop", WAY, ids=lambda hop: hop.name)
def test_every_hop_names_a_method_of_the_product(hop: Hop) -> None:
    found: object = importlib.import_module(hop.module)
    for part in hop.method.split("."):
        found = getattr(found, part)
    assert inspect.isfunction(found)


#: The numbers of the hops whose notes count records, and of the calls to the store.
COUNTED = [number for number, hop in enumerate(WAY) if hop.records is not None]
SENT, ANSWERED = 5, 6


def test_records_that_overlap_are_distinguished_by_counting() -> None:
    """The first record comes alone, the next two in one batch. All notes except the sender's include two earlier
    records."""
    notes = [Note(1, number, 2) for number in COUNTED if number > 2]
    notes += [Note(start, 0, 1) for start in (10, 20, 30)]
    for start, records in ((10, 1), (5_000, 2)):
        for number in range(1, len(WAY)):
            notes.append(Note(start + 1_000 * number, number, records if number in COUNTED else 0, whose=7))
    first, second, third = journeys(sorted(notes))
    assert first == [10 + 1_000 * number for number in range(len(WAY))]
    assert second[2:] == third[2:] == [5_000 + 1_000 * number for number in range(2, len(WAY))]
    assert (second[0], third[0]) == (20, 30)
    text = table([first, first, first])
    assert text.splitlines()[1].split()[-2:] == ["1", "1"]
    assert text.splitlines()[-1].split()[-2:] == [str(len(WAY) - 1)] * 2


def test_of_calls_to_the_store_the_last_answered_one_counts_with_its_own_beginning() -> None:
    notes = [Note(1_000 * number, number, 1 if number in COUNTED else 0, whose=7) for number in range(len(WAY))]
    notes += [Note(5_400, SENT, 0, whose=8), Note(6_400, SENT, 0, whose=7), Note(7_500, ANSWERED, 0, whose=8)]
    (way,) = journeys(sorted(notes))
    assert (way[SENT], way[ANSWERED]) == (5_000, 6_000)
    notes.append(Note(6_900, ANSWERED, 0, whose=8))  # the response on another connection, in the same turn of the loop
    (way,) = journeys(sorted(notes))
    assert (way[SENT], way[ANSWERED]) == (5_400, 6_900)


def test_a_hop_that_was_not_needed_takes_no_time() -> None:
    notes = [Note(1_000 * number, number, 1 if number in COUNTED else 0) for number in range(len(WAY)) if number != 8]
    (way,) = journeys(notes)
    assert way[8] == way[9]


def test_what_did_not_reach_the_end_is_left_out() -> None:
    notes = [Note(1_000 * number, number, 1 if number in COUNTED else 0) for number in range(len(WAY))]
    assert len(journeys(sorted([*notes, Note(500, 0, 1)]))) == 1


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
    notes.wrap(2, Hop("writes", "a_stream", "Stream.write", kind="str", records=len))
    notes.wrap(3, Hop("has written", "a_stream", "Stream.write", after=True))
    assert asyncio.run(Stream().read()) == 1
    Stream().write(b"")
    Stream().write("four")
    notes.write(tmp_path / "notes")
    lines = (tmp_path / "notes").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["0", "1", "3", "2", "3"]
    assert [line.split()[2] for line in lines] == ["0", "0", "0", "4", "0"]
    assert lines == sorted(lines)
