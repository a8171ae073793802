"""Which origins of dead letters were met already, within bounded memory (CT-121)."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

#: Offsets in one block, and how many blocks are kept: about 65 MB.
BLOCK_OFFSETS: Final = 64
BLOCKS_MAX: Final = 100_000
_SCOPES_MAX: Final = 10_000
#: How many different contents of one origin are kept; where letters do not name its topic's id, a topic that was
#: created again has other records at the same offsets.
CONTENTS_MAX: Final = 16


class Scope(NamedTuple):
    """Where an offset belongs: the letters of one group about a partition. `topic_id`: "" when it is not known."""

    group: str
    topic: str
    partition: int
    topic_id: str = ""


class MetOrigins:
    """A set of (scope, offset, content): content is a number of 64 bits above 0, as `content_of` makes it.

    It keeps them in blocks of neighbouring offsets, and forgets the block that was begun first when it has too many: so
    a million letters whose offsets lie close together take little, and no forged ones take more.
    """

    def __init__(self, blocks_max: int = BLOCKS_MAX) -> None:
        self._blocks_max = blocks_max
        self._blocks: dict[tuple[Scope, int, int], array[int]] = {}
        self._scopes: dict[Scope, Scope] = {}

    def add(self, scope: Scope, offset: int, content: int) -> bool:
        """Note an origin. Returns whether it is new."""
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
        """Forget an origin; what was noted after it at the same offset stays."""
        found = self._contents(scope, offset)
        if content in found:
            found.remove(content)
            for generation, other in enumerate([*found, 0]):
                block, place = self._at(scope, offset, generation)
                self._blocks[block][place] = other

    def has(self, scope: Scope, offset: int, content: int) -> bool:
        """Whether the origin was noted with this content, and not forgotten."""
        return content in self._contents(scope, offset)

    def has_any(self, scope: Scope, offset: int) -> bool:
        """Whether the origin was noted with any content, and not forgotten."""
        return bool(self._contents(scope, offset))

    def _block(self, key: tuple[Scope, int, int]) -> array[int]:
        """A block, begun if need be."""
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
        if shared is None:  # one object for all blocks of a scope, not one for each letter that brought it
            if len(self._scopes) >= _SCOPES_MAX:
                self._scopes.clear()
            shared = self._scopes[scope] = scope
        block, place = divmod(offset, BLOCK_OFFSETS)
        return (shared, generation, block), place
