"""The record of origins that were seen is exact while there is room, and never exceeds its memory bound."""

from __future__ import annotations

import pytest

from sharegroups.cli.dlq.core.seen_origins import BLOCK_OFFSETS, CONTENTS_MAX, Scope, SeenOrigins

A, B = Scope("g", "orders", 0), Scope("g", "orders", 1)
END = 2**63 - 1


@pytest.mark.rule("CT-121")
def test_each_offset_is_new_once_in_its_scope() -> None:
    met = SeenOrigins()
    offsets = [0, 1, BLOCK_OFFSETS - 1, BLOCK_OFFSETS, 5 * BLOCK_OFFSETS + 7, END]
    for scope in (A, B, A._replace(group="h"), A._replace(topic="jobs")):
        assert [met.add(scope, offset, 1) for offset in offsets] == [True] * 6
        assert [met.add(scope, offset, 1) for offset in offsets] == [False] * 6
        assert [met.has_any(scope, offset) for offset in (2, END - 1)] == [False, False]
        assert all(met.has(scope, offset, 1) for offset in offsets)


@pytest.mark.rule("CT-121")
def test_different_contents_of_an_offset_are_different_origins() -> None:
    met = SeenOrigins()
    contents = range(1, CONTENTS_MAX + 1)
    assert all(met.add(A, 7, content) for content in contents)
    assert not any(met.add(A, 7, content) for content in contents)
    assert not met.has(A._replace(topic_id="another"), 7, 1)
    for content in (3, 16, 99):
        met.discard(A, 7, content)
    assert [content for content in contents if not met.has(A, 7, content)] == [3, 16]
    assert met.add(A, 7, 3)
    assert met.add(A, 7, 2**64 - 1)
    assert met.add(A, 7, 500), "the last one gives way when there are too many"
    assert [met.has(A, 7, content) for content in (1, 2**64 - 1, 500)] == [True, False, True]


def test_an_offset_that_is_forgotten_is_new_again_and_its_neighbours_are_not() -> None:
    met = SeenOrigins()
    for offset in (4, 5):
        met.add(A, offset, 1)
    met.discard(A, 4, 1)
    met.discard(A, 4, 1)
    met.discard(B, 4, 1)
    assert (met.has(A, 4, 1), met.has(A, 5, 1), met.add(A, 4, 1)) == (False, True, True)


@pytest.mark.rule("CT-121")
def test_the_stretch_that_was_begun_first_is_forgotten_when_there_is_no_room() -> None:
    met = SeenOrigins(blocks_max=3)
    for block in range(4):
        assert met.add(A, block * BLOCK_OFFSETS, 1)
    assert [met.has(A, block * BLOCK_OFFSETS, 1) for block in range(4)] == [False, True, True, True]
    assert len(met._blocks) == 3
    for number in range(30_000):
        met.add(Scope(str(number), "t", 0), 0, 1)
    assert (len(met._blocks), len(met._scopes) <= 10_000) == (3, True)
