"""Reference cycles are searched for among new objects, and among all objects only when memory has grown (CM-95)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from share_node.node.serve import run
from share_node.process_memory.memory_checks import GROWN_BYTES, SCARCE_BYTES, CycleSearches

MIB = 1024 * 1024


class Ring:
    """An object in a reference cycle: once it is unreachable, only a search for cycles finds it."""

    def __init__(self) -> None:
        self.me = self


@dataclass
class Searching:
    """A process whose memory use is set by a test, and its searches for cycles."""

    resident: int
    searches: CycleSearches


@pytest.fixture
def searching() -> Iterator[Searching]:
    thresholds = gc.get_threshold()
    found = Searching(100 * MIB, CycleSearches(lambda: found.resident, 1_000 * MIB))
    found.searches.start()
    try:
        yield found
    finally:
        found.searches.stop()
        assert gc.get_threshold() == thresholds
        assert gc.get_freeze_count() == 0


@pytest.mark.rule("CM-95")
def test_what_survived_a_search_is_checked_again_only_when_memory_has_grown(searching: Searching) -> None:
    old = Ring()
    gc.collect()
    gone = weakref.ref(old)
    del old
    gc.collect()
    assert gone() is not None, "the search went through what had survived one"

    searching.resident = 100 * MIB + GROWN_BYTES - 1
    assert not searching.searches.check()
    assert gone() is not None
    searching.resident += 1
    assert searching.searches.check()
    assert gone() is None
    assert not searching.searches.check(), "it has not grown since"


@pytest.mark.rule("CM-95")
def test_rings_that_are_new_are_found_as_ever(searching: Searching) -> None:
    ring = Ring()
    gone = weakref.ref(ring)
    del ring
    gc.collect()
    assert gone() is None
    assert not searching.searches.check()


@pytest.mark.rule("CM-95")
@pytest.mark.parametrize(
    ("least", "grown"),
    [
        (100, 100 + GROWN_BYTES // MIB),
        (300, 600),
        (700, 850),  # half of what is left below the limit
        (990, 990 + SCARCE_BYTES // MIB),
    ],
)
def test_memory_has_grown_by_as_much_again_or_by_half_of_what_was_left(
    searching: Searching, least: int, grown: int
) -> None:
    searching.resident = 2_000 * MIB
    assert searching.searches.check()
    searching.resident = least * MIB
    assert not searching.searches.check(), "memory that was returned to the system does not count as growth"
    searching.resident = grown * MIB - 1
    assert not searching.searches.check()
    searching.resident = grown * MIB
    assert searching.searches.check()


@pytest.mark.rule("CM-95")
def test_a_process_searches_so_from_its_start_to_its_end() -> None:
    before = len(gc.callbacks)

    async def body() -> None:
        assert len(gc.callbacks) == before + 1
        assert gc.get_freeze_count() > 0

    run(body)
    assert len(gc.callbacks) == before
    assert gc.get_freeze_count() == 0
