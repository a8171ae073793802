"""Positions, their checkpoint form, and the ids a user gives."""

from __future__ import annotations

import json

import pytest

from share_metrics.reader import EntryId, Gap, Position, Tip
from share_metrics.reader.offsets import entry_id, from_offsets, read_ids, to_offsets


@pytest.mark.rule("PM-8", "SR-27")
def test_offsets_come_back_from_a_checkpoint() -> None:
    positions = {"{sgs:1}:log": Position(EntryId(7, 3), 12), "{sgs:0}:log": Position(EntryId(0, 0), 4)}
    stored = json.dumps(to_offsets(positions))
    assert stored == '{"{sgs:0}:log": {"id": "0-0", "n": 4}, "{sgs:1}:log": {"id": "7-3", "n": 12}}'
    assert from_offsets(json.loads(stored)) == positions


@pytest.mark.rule("PM-8")
def test_the_earliest_position_counts_what_was_trimmed_before() -> None:
    tip = Tip(EntryId(3, 9), 40, 15, EntryId(2, 5))
    assert tip.earliest == Position(EntryId(0, 0), 25)
    assert tip.latest == Position(EntryId(3, 9), 40)


@pytest.mark.rule("PM-7")
def test_an_id_has_one_before_it() -> None:
    assert EntryId(3, 4).before == EntryId(3, 3)
    assert EntryId(3, 0).before == EntryId(2, 2**64 - 1)
    assert EntryId(0, 0).before == EntryId(0, 0)


@pytest.mark.rule("PM-7")
def test_ids_are_ordered_as_numbers() -> None:
    assert entry_id(b"9-2") < entry_id("9-10") < entry_id("10-0")


@pytest.mark.parametrize("text", ["", "7", "7-", "-1", "7-x", "7-1-2", "7--1"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not <epoch>-<seq>"):
        entry_id(text)


@pytest.mark.parametrize("stored", [{"s": {"id": "1-1"}}, {"s": 5}, {"s": None}])
def test_what_is_no_checkpoint_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="offsets"):
        from_offsets(stored)


@pytest.mark.rule("PM-5")
def test_ids_of_an_option_are_read() -> None:
    assert read_ids('{"{gc:0}:log": "5-1"}') == {"{gc:0}:log": EntryId(5, 1)}
    for wrong in ("", "[]", '{"a": 5}'):
        with pytest.raises(ValueError, match="ids"):
            read_ids(wrong)


@pytest.mark.rule("PM-11")
def test_a_gap_shows_its_story_as_json() -> None:
    gap = Gap("{sgs:0}:log", EntryId(1, 4), EntryId(2, 0), 3, "trimmed")
    assert json.loads(gap.text) == {"from_id": "1-4", "to_id": "2-0", "lost": 3, "reason": "trimmed"}
