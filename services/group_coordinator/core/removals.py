"""Which partition leaders are still to be told of which removed members (GC-39b).

Pure: for each leader and member one order, that of the newest removal; all of it bounded. An order that a leader did
not get in half a minute is dropped: the locks that it would have freed have run out by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

#: How many orders wait for one leader at most, and how many one call has.
ORDERS_MAX: Final = 10_000
CALL_ORDERS_MAX: Final = 1_000
#: For how long an order is worth telling: the default of a lock's duration.
WORTH_MS: Final = 30_000


class Order(NamedTuple):
    """A member was removed at `at_ms`, which gave its group this epoch."""

    group_id: str
    member_id: str
    group_epoch: int
    at_ms: int


class Removals:
    """The orders that wait, by leader. `dropped` counts those that were never told."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[tuple[str, str], Order]] = {}
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def removed(self, order: Order, leaders: Iterable[str]) -> None:
        """A member was removed; `leaders` are the addresses of those that may have a session of it."""
        for leader in leaders:
            self._wait(leader, order)

    def take(
        self, leaders: Collection[str], now_ms: int, calling: Collection[str] = ()
    ) -> Mapping[str, Sequence[Order]]:
        """What to tell now, by leader, oldest first. It waits no more; orders to leaders that are listed no longer, and
        those that are too old, are dropped. What is for the leaders of `calling` goes on waiting."""
        taken: dict[str, list[Order]] = {}
        for leader, waiting in [one for one in self._waiting.items() if one[0] not in calling]:
            orders = list(islice(waiting.values(), CALL_ORDERS_MAX))
            fresh = [order for order in orders if leader in leaders and now_ms - order.at_ms < WORTH_MS]
            self.dropped += len(orders) - len(fresh)
            for order in orders:
                del waiting[order.group_id, order.member_id]
            if not waiting:
                del self._waiting[leader]
            if fresh:
                taken[leader] = fresh
        return taken

    def failed(self, leader: str, orders: Iterable[Order]) -> None:
        """The leader was not reached: these wait again, unless a newer one of their member does."""
        for order in orders:
            self._wait(leader, order)

    def _wait(self, leader: str, order: Order) -> None:
        waiting = self._waiting.setdefault(leader, {})
        key = (order.group_id, order.member_id)
        known = waiting.get(key)
        if known is None and len(waiting) >= ORDERS_MAX:
            self.dropped += 1
        elif known is None or known.group_epoch < order.group_epoch:
            waiting[key] = order
