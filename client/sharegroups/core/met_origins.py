"""Which origins of dead letters were met already, within bounded memory (CT-121)."""

from __future__ import annotations

from typing import Final, NamedTuple

#: Offsets in one block, and how many blocks are kept: about 35 MB.
BLOCK_OFFSETS: Final = 1_024
BLOCKS_MAX: Final = 100_000
_SCOPES_MAX: Final = 10_000


class Scope(NamedTuple):
    """What offsets are told apart in: the letters of one group about one partition."""

    group: str
    topic: str
    partition: int


class MetOrigins:
    """A set of offsets by scope. It keeps bits in blocks, and forgets the block that was begun first when it has too
    many: so a million letters whose offsets lie close together take little, and no forged ones take more."""

    def __init__(self, blocks_max: int = BLOCKS_MAX) -> None:
        self._blocks_max = blocks_max
        self._blocks: dict[tuple[Scope, int], int] = {}
        self._scopes: dict[Scope, Scope] = {}

    def add(self, scope: Scope, offset: int) -> bool:
        """Note an offset. Returns whether it is new."""
        key, bit = self._at(scope, offset)
        held = self._blocks.get(key)
        if held is None:
            if len(self._blocks) >= self._blocks_max:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[key] = bit
            return True
        self._blocks[key] = held | bit
        return not held & bit

    def discard(self, scope: Scope, offset: int) -> None:
        """Forget an offset."""
        key, bit = self._at(scope, offset)
        if (held := self._blocks.get(key, 0)) & bit:
            self._blocks[key] = held ^ bit

    def has(self, scope: Scope, offset: int) -> bool:
        """Whether the offset was noted, and not forgotten."""
        key, bit = self._at(scope, offset)
        return bool(self._blocks.get(key, 0) & bit)

    def _at(self, scope: Scope, offset: int) -> tuple[tuple[Scope, int], int]:
        shared = self._scopes.get(scope)
        if shared is None:  # one object for all blocks of a scope, not one for each letter that brought it
            if len(self._scopes) >= _SCOPES_MAX:
                self._scopes.clear()
            shared = self._scopes[scope] = scope
        block, place = divmod(offset, BLOCK_OFFSETS)
        return (shared, block), 1 << place
