"""Until when which node wants no further request: `throttle_time_ms` of its answers, RetryInfo of its statuses.

Rule CL-86. Pure arithmetic over one clock in milliseconds; who waits, and for how long, is the callers' part.
"""

from __future__ import annotations

from typing import Final

#: A node is left alone for no longer than this, ms, whatever it asks for: less than the least session timeout.
THROTTLE_MAX_MS: Final = 30_000


class Throttle:
    """What the nodes of one client have asked for. A node is known by its address."""

    __slots__ = ("_until_ms",)

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}

    def told(self, address: str, throttle_ms: int, now_ms: int) -> None:
        """The node asks for no request for `throttle_ms`; of several wishes the longest counts. 0 or less: no wish."""
        if throttle_ms <= 0:
            return
        # The clock cuts off parts of a millisecond; a request must rather be late than early.
        until_ms = max(self.until_ms(address), now_ms + min(throttle_ms, THROTTLE_MAX_MS) + 1)
        self._until_ms = {other: end_ms for other, end_ms in self._until_ms.items() if end_ms > now_ms}
        self._until_ms[address] = until_ms

    def until_ms(self, address: str | None) -> int:
        """From when on the node may be asked; a time in the past when it has asked for nothing."""
        return self._until_ms.get(address, 0) if address is not None and self._until_ms else 0
