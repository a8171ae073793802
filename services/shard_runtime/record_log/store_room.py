"""Decides how many more records a store node takes below its memory limit, so that acknowledgements, deletions and
metadata still find room there (CM-214, CM-215). Pure: the store watch reads the memory, topic logs ask.

Between two readings a process knows only what it has appended itself, and other leaders share the store. So of what was
left at a reading each leader takes its part, and asks for the next reading long before that is used up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip932.sizes import size_text
from shard_runtime.record_log.store_usage import MAKE_ROOM, MORE_MEMORY, StoreUsage

#: The part of the limit, in percent, at which records are no longer taken; 100: no such check.
PERCENT: Final = 95
SETTING: Final = "store.produce.memory.percent"
#: How far below that the memory must fall before records are taken again, in percent of the limit.
FALLS_BY: Final = 2
_OFF: Final = 100
#: The part of the limit, in percent, from which the memory is read more often.
NEAR: Final = 80
#: A reading is requested when a leader has used one part in this many of its share.
_ASKS_AT: Final = 8
#: What the store needs for a batch besides its bytes; its allocator rounds these up by as much as a quarter.
_OVERHEAD: Final = 256


#: Called with a node, its usage, and whether it is full.
Reported = Callable[[str, StoreUsage, bool], None]


class StoreFullError(Exception):
    """A store node takes no more records now; the message is for the producer."""


class Charge:
    """Bytes that were taken and are not known to be stored yet. Call it when the append has ended; the argument is
    ignored."""

    __slots__ = ("_bytes", "_node")

    def __init__(self, node: _Node, size: int) -> None:
        self._node = node
        self._bytes = size

    def __call__(self, _: object) -> None:
        """Note that the append has ended."""
        self._node.pending -= self._bytes


class _Node:
    """One node: its last reading, and what this process has taken since."""

    __slots__ = ("asked", "carried", "closed", "pending", "reported", "taken", "taken_at", "usage")

    def __init__(self, usage: StoreUsage) -> None:
        self.usage = usage
        #: All that was ever taken here; the unsettled part, and the total, when the last reading was sent.
        self.taken = 0
        self.carried = 0
        self.taken_at = 0
        #: Taken, and not known to be stored.
        self.pending = 0
        #: `pending` and `taken` when the reading that has not come yet was sent.
        self.asked = (0, 0)
        self.closed = False
        self.reported = False

    @property
    def spent(self) -> int:
        """What may have been added to the last reading by this process."""
        return self.carried + self.taken - self.taken_at


class StoreRoom:
    """One process's view of the room for records. `node_of`: the node that holds a key, None or "" while it is not
    known. `wanted`: called when a new reading is needed soon. Nothing is limited before `serve`."""

    def __init__(
        self,
        node_of: Callable[[str], str | None] = lambda _: None,
        *,
        percent: int = PERCENT,
        wanted: Callable[[], None] = lambda: None,
    ) -> None:
        self._node_of = node_of
        self._percent = percent
        self._wanted = wanted
        self._leaders: Callable[[], int] | None = None
        self._reported: Reported | None = None
        self._nodes: dict[str, _Node] = {}
        self._parts = 1

    def serve(self, leaders: Callable[[], int], reported: Reported | None = None) -> None:
        """Limit what is taken, from the next reading on. `leaders`: how many partition leaders append to this store;
        `reported`: called once for each time that a node becomes full or has room again."""
        self._leaders = leaders
        self._reported = reported

    # -- for the watch ------------------------------------------------------------------------------------------------

    def ask(self, node: str) -> None:
        """Note that a reading of the node is being sent."""
        known = self._nodes.get(node)
        if known is not None:
            known.asked = (known.pending, known.taken)

    def read(self, node: str, usage: StoreUsage) -> None:
        """Take a reading; what was taken after `ask`, or was on its way then, may not be in it."""
        if self._leaders is None or not usage.limit_bytes or self._percent >= _OFF:
            self.forget(node)
            return
        self._parts = max(self._leaders(), 1)
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = _Node(usage)
        known.usage = usage
        known.carried, known.taken_at = known.asked
        used = usage.used_bytes * 100
        if used >= usage.limit_bytes * self._percent:
            known.closed = True
        elif used < usage.limit_bytes * (self._percent - FALLS_BY):
            known.closed = False
        if known.closed != known.reported:
            known.reported = known.closed
            self._report(node, usage, full=known.closed)

    def forget(self, node: str) -> None:
        """Forget a node that has no limit any more, or does not belong to the store."""
        known = self._nodes.pop(node, None)
        if known is not None and known.reported:
            self._report(node, known.usage, full=False)

    def near(self) -> tuple[str, ...]:
        """Return the nodes whose memory is to be read more often."""
        return tuple(
            node
            for node, known in self._nodes.items()
            if known.closed or (known.usage.used_bytes + known.spent) * 100 >= known.usage.limit_bytes * NEAR
        )

    def asking(self) -> tuple[str, ...]:
        """Return the nodes that need a new reading now."""
        return tuple(node for node, known in self._nodes.items() if self._asks(known))

    # -- for topic logs -----------------------------------------------------------------------------------------------

    def take(self, key: str, size: int, batches: int) -> Charge | None:
        """Take room for batches of `size` bytes on the node that holds `key`; call the result when their append has
        ended. None where nothing is limited. Raises StoreFullError."""
        if not self._nodes:
            return None
        name = self._node_of(key) or ""
        node = self._nodes.get(name)
        if node is None:
            return None
        needed = size + size // 4 + batches * _OVERHEAD
        if node.closed or not self._fits(node, needed):
            # Until the next reading: else a later and smaller batch would pass this one.
            node.closed = True
            self._wanted()
            raise StoreFullError(self._message(name, node.usage))
        node.taken += needed
        node.pending += needed
        if self._asks(node):
            self._wanted()
        return Charge(node, needed)

    def _left(self, node: _Node) -> int:
        return node.usage.limit_bytes * self._percent // 100 - node.usage.used_bytes

    def _fits(self, node: _Node, needed: int) -> bool:
        """A leader may take its part of what was left, and always one request that fits as a whole."""
        left, spent = self._left(node), node.spent
        return needed <= left if not spent else (spent + needed) * self._parts <= left

    def _asks(self, node: _Node) -> bool:
        if node.closed:
            return not node.reported
        return (node.taken - node.taken_at) * self._parts * _ASKS_AT >= self._left(node)

    def _report(self, node: str, usage: StoreUsage, *, full: bool) -> None:
        if self._reported is not None:
            self._reported(node, usage, full)

    def _message(self, name: str, usage: StoreUsage) -> str:
        return (
            f"the store node {name} uses {size_text(usage.used_bytes)} of its memory limit of "
            f"{size_text(usage.limit_bytes)}, and takes no records beyond {self._percent} % of it ({SETTING}), so that "
            "what it holds can still be acknowledged and deleted. Nothing was written; the producer tries again until "
            f"its delivery.timeout.ms. {MAKE_ROOM[0].upper()}{MAKE_ROOM[1:]}. Or {MORE_MEMORY}"
        )
