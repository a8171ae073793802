"""How much memory the embedded store may use: a share of the machine's by default (CM-210). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kip932.sizes import size_text

#: The store gets one part in this many of the memory. The rest is for the processes around it, for its buffers, and for
#: the pages that are copied while a rewrite of its append-only file runs.
PARTS: Final = 2
#: More than any machine has: its memory is not known.
_UNKNOWN: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class StoreLimit:
    """`limit_bytes`: 0 for none. `memory_bytes`: what this machine or container has, for a limit that is a share of it;
    0 for one that was given."""

    limit_bytes: int
    memory_bytes: int = 0

    @classmethod
    def share_of(cls, memory_bytes: int) -> StoreLimit:
        """Return the default for a machine or container with this memory; no limit if that is not known."""
        return cls(memory_bytes // PARTS, memory_bytes) if memory_bytes < _UNKNOWN else cls(0)

    def with_data(self, used_bytes: int) -> StoreLimit:
        """Return the limit for a store whose data use this much memory at its start. A default leaves a quarter of that
        free, up to the whole memory: data that an earlier version wrote without a limit must not stop all writes."""
        room = min(used_bytes * 5 // 4, self.memory_bytes)
        return self if room <= self.limit_bytes else StoreLimit(room, self.memory_bytes)

    def text(self) -> str:
        """Return a sentence for the start."""
        if not self.limit_bytes:
            return "The store's memory has no limit; --store-memory sets one."
        limit = f"The store may use {size_text(self.limit_bytes)} of memory"
        if not self.memory_bytes:
            return f"{limit}; then it refuses writes."
        if self.limit_bytes == self.memory_bytes // PARTS:
            of = f"half of the {size_text(self.memory_bytes)} here"
        else:
            of = f"for the data that it has already; there are {size_text(self.memory_bytes)} here"
        return f"{limit}, {of}; then it refuses writes. --store-memory changes that."


NO_LIMIT: Final = StoreLimit(0)
