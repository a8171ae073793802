"""When a stream is compacted, which keys are copied again, and from which entry on the stream is still needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from shard_runtime.hosting.compaction_plan import CompactionLimits, Position, Positions
from shard_runtime.hosting.shard import Anchor
from shard_runtime.record_log.protocol import StreamId

SERVICES = Path(__file__).resolve().parents[4] / "services"
LIMITS = CompactionLimits(entries_min=4, entries_per_key=2, slice_keys=2)


def stream(text: str, limits: CompactionLimits = LIMITS) -> Positions:
    """A stream with one entry per character: a lower-case letter is a copy of that key, an upper-case letter its
    tombstone, and `-` an update."""
    positions = Positions(limits)
    for ordinal, letter in enumerate(text):
        anchor = None if letter == "-" else Anchor(letter.lower(), letter.islower())
        positions.note(StreamId(1, ordinal), anchor)
    return positions


@pytest.mark.rule("CM-18")
def test_the_bounds_are_those_of_the_rule_and_no_entry_is_ever_deleted_by_itself() -> None:
    limits = CompactionLimits()
    assert (limits.entries_min, limits.entries_per_key) == (5_000, 4)
    sources = [path for path in SERVICES.rglob("*") if path.suffix in (".py", ".lua")]
    assert len(sources) > 100
    assert [path.name for path in sources if "XDEL" in path.read_text(encoding="utf-8")] == []


@pytest.mark.rule("CM-18")
def test_a_stream_is_due_above_the_larger_of_both_bounds() -> None:
    assert not stream("a---").due()
    assert stream("a----").due(), "more than entries_min"
    assert not stream("abc---").due(), "two for each of three keys"
    assert stream("abc----").due()


@pytest.mark.rule("CM-18", "SR-13", "SC-70", "SC-71")
def test_it_is_needed_from_the_oldest_newest_copy_on() -> None:
    assert stream("ab-a").needed_from() == Position(1, StreamId(1, 1))
    assert stream("ab-aB").needed_from() == Position(3, StreamId(1, 3)), "a tombstone needs no copy"
    assert stream("-abcbcbc").needed_from() == Position(1, StreamId(1, 1)), "one idle key holds all back"
    assert stream("-abcbcbca").needed_from() == Position(6, StreamId(1, 6)), "until it is written again"
    assert stream("aA").needed_from() == Position(1, StreamId(1, 1)), "without keys, from the last entry on"


@pytest.mark.rule("SR-17")
def test_keys_of_the_older_half_are_written_again_in_slices() -> None:
    plan = stream("abcde---e-")
    assert plan.stale() == [["a", "b"], ["c", "d"]], "e has a younger copy already"
    assert plan.alive(["a", "x", "e"]) == ["a", "e"]


def test_what_was_trimmed_counts_no_more() -> None:
    plan = stream("a---b-")
    assert (plan.entries, plan.alive(["a", "b"])) == (6, ["a", "b"])
    plan.note(StreamId(1, 6), Anchor("a", True))
    plan.trimmed(plan.needed_from())
    assert plan.entries == 3
    plan.trimmed(Position(1, StreamId(1, 1)))
    assert plan.entries == 3, "never back"


@pytest.mark.rule("CM-18")
def test_a_stream_with_an_entry_of_a_later_build_is_never_compacted() -> None:
    plan = stream("a---------")
    assert plan.due()
    plan.note_unknown(StreamId(1, 99))
    assert not plan.due()
