"""Until when each node wants no request: from `throttle_time_ms` of its answers and RetryInfo of its gRPC statuses.

Rule CL-86. Pure arithmetic over one clock in milliseconds; the callers do the waiting.
"""

from __future__ import annotations

from typing import Final

#: The client spares a node for no longer than this, ms, whatever it asks for: less than the shortest session time-out.
THROTTLE_MAX_MS: Final = 30_000


class Throttle:
    """Until when each node of one client wants no request. A node is known by its address.

    `latest_ms` is the latest of these times; 0 while no node has ever had a wish.
    """

    __slots__ = ("_since_ms", "_until_ms", "latest_ms")

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}
        #: By address: when the first of the wishes that have followed each other without a gap was told.
        self._since_ms: dict[str, int] = {}
        self.latest_ms = 0

    def told(self, address: str, throttle_ms: int, now_ms: int) -> None:
        """The node wants no request for `throttle_ms`; 0 or less: no wish. Of several wishes the latest end counts, but
        a request that waits goes when THROTTLE_MAX_MS have passed since the first of them, whatever is told meanwhile.
        """
        if throttle_ms <= 0:
            return
        self._until_ms = {other: end_ms for other, end_ms in self._until_ms.items() if end_ms > now_ms}
        self._since_ms = {other: self._since_ms[other] for other in self._until_ms}
        since_ms = self._since_ms.setdefault(address, now_ms)
        # The clock rounds down to whole milliseconds; a request should rather be late than early.
        until_ms = min(now_ms + throttle_ms, since_ms + THROTTLE_MAX_MS) + 1
        self._until_ms[address] = until_ms = max(self.until_ms(address), until_ms)
        self.latest_ms = max(self.latest_ms, until_ms)

    def until_ms(self, address: str | None) -> int:
        """From when on the node may be sent a request; 0 when it has no wish."""
        return self._until_ms.get(address, 0) if address is not None else 0
