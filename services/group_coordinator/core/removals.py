"""Keeps the removed members that partition leaders are still to be notified of (GC-39b).

Pure and bounded. It keeps one order per leader and member, that of the newest removal. An order that was not delivered
within half a minute is dropped: the locks that it would have freed have run out by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

#: The most orders that wait for one leader, and the most in one call.
ORDERS_MAX: Final = 10_000
CALL_ORDERS_MAX: Final = 1_000
#: For how long an order is worth sending: the default duration of a lock.
WORTH_MS: Final = 30_000


class Order(NamedTuple):
    """An order to end a removed member's sessions. `at_ms`: the time of the removal; `group_epoch`: the epoch after
    it."""

    group_id: str
    member_id: str
    group_epoch: int
    at_ms: int


class Removals:
    """The waiting orders, by leader. `dropped` counts those that were never delivered."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[tuple[str, str], Order]] = {}
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def removed(self, order: Order, leaders: Iterable[str]) -> None:
        """Add a removed member's order for each of `leaders`: the addresses of those that may have its sessions."""
        for leader in leaders:
            self._wait(leader, order)

    def take(
        self, leaders: Collection[str], now_ms: int, calling: Collection[str] = ()
    ) -> Mapping[str, Sequence[Order]]:
        """Remove and return the orders to send now, by leader, oldest first. Orders that are too old, or whose leader
        is not in `leaders`, are dropped. Orders for the leaders in `calling` continue to wait."""
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
        """Queue the orders again, since the leader was not reached. A newer waiting order of the same member stays."""
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
