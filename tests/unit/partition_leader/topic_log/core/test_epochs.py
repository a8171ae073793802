"""The offsets at which epochs begin in a log, and how they are rebuilt."""

from __future__ import annotations

import pytest

from partition_leader.topic_log.core.epochs import EpochStarts, rebuild


@pytest.mark.rule("CM-40")
def test_an_offset_belongs_to_the_last_epoch_that_began_at_or_below_it() -> None:
    starts = EpochStarts([(3, 0), (5, 10), (6, 10), (9, 20)])
    assert [starts.epoch_at(offset) for offset in (0, 9, 10, 19, 20, 99)] == [3, 3, 6, 6, 9, 9]
    starts.trim(15)
    assert starts.as_list() == [(6, 10), (9, 20)]
    with pytest.raises(ValueError, match="cannot follow"):
        starts.begin(9, 30)
    with pytest.raises(ValueError, match="cannot follow"):
        starts.begin(10, 19)
    assert EpochStarts().epoch_at(5) == 0


@pytest.mark.rule("CM-40")
def test_a_bare_claim_does_not_shorten_the_log() -> None:
    starts, end = rebuild({4: 10, 7: 0, 8: 12, 9: 0})
    assert starts.as_list() == [(4, 0), (7, 10), (8, 10), (9, 12)]
    assert end == 12
