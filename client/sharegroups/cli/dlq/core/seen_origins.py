"""Remembers which origins of dead letters have been seen, within bounded memory (CT-121)."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

#: The number of offsets in a block, and the maximum number of blocks: about 65 MB.
BLOCK_OFFSETS: Final = 64
BLOCKS_MAX: Final = 100_000
_SCOPES_MAX: Final = 10_000
#: The maximum number of contents kept for one origin. An origin can have several if the dead letters do not name the
#: topic's id, since a re-created topic has other records at the same offsets.
CONTENTS_MAX: Final = 16


class Scope(NamedTuple):
    """The partition and group that an offset of an origin belongs to. `topic_id`: "" when it is not known."""

    group: str
    topic: str
    partition: int
    topic_id: str = ""


class SeenOrigins:
    """A set of (scope, offset, content); content is a 64-bit number above 0, as `content_of` returns it.

    Entries are kept in blocks of neighbouring offsets; when there are too many blocks, the oldest is dropped. So a
    million dead letters with close offsets take little memory, and forged ones cannot exceed the bound.
    """

    def __init__(self, blocks_max: int = BLOCKS_MAX) -> None:
        self._blocks_max = blocks_max
        self._blocks: dict[tuple[Scope, int, int], array[int]] = {}
        self._scopes: dict[Scope, Scope] = {}

    def add(self, scope: Scope, offset: int, content: int) -> bool:
        """Add an origin. Returns whether it is new."""
        for generation in range(CONTENTS_MAX):
            block, place = self._at(scope, offset, generation)
            held = self._block(block)
            if held[place] == content:
                return False
            if not held[place]:
                break
        held[place] = content
        return True

    def discard(self, scope: Scope, offset: int, content: int) -> None:
        """Remove an origin; contents that were added after it at the same offset stay."""
        found = self._contents(scope, offset)
        if content in found:
            found.remove(content)
            for generation, other in enumerate([*found, 0]):
                block, place = self._at(scope, offset, generation)
                self._blocks[block][place] = other

    def has(self, scope: Scope, offset: int, content: int) -> bool:
        """Return whether the set contains the origin with this content."""
        return content in self._contents(scope, offset)

    def has_any(self, scope: Scope, offset: int) -> bool:
        """Return whether the set contains the origin, whatever its content."""
        return bool(self._contents(scope, offset))

    def _block(self, key: tuple[Scope, int, int]) -> array[int]:
        """Return a block, created if necessary."""
        held = self._blocks.get(key)
        if held is None:
            if len(self._blocks) >= self._blocks_max:
                del self._blocks[next(iter(self._blocks))]
            held = self._blocks[key] = array("Q", bytes(8 * BLOCK_OFFSETS))
        return held

    def _contents(self, scope: Scope, offset: int) -> list[int]:
        found: list[int] = []
        for generation in range(CONTENTS_MAX):
            block, place = self._at(scope, offset, generation)
            held = self._blocks.get(block)
            if held is None or not held[place]:
                break
            found.append(held[place])
        return found

    def _at(self, scope: Scope, offset: int, generation: int) -> tuple[tuple[Scope, int, int], int]:
        shared = self._scopes.get(scope)
        if shared is None:  # all blocks of a scope share one object, to save memory
            if len(self._scopes) >= _SCOPES_MAX:
                self._scopes.clear()
            shared = self._scopes[scope] = scope
        block, place = divmod(offset, BLOCK_OFFSETS)
        return (shared, generation, block), place
