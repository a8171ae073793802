"""Tracks how long each node throttles this client, from `throttle_time_ms` in its responses and RetryInfo in its gRPC
statuses.

Rule CL-86. Pure arithmetic over one clock in milliseconds; the callers do the waiting.
"""

from __future__ import annotations

from typing import Final

#: The client holds back requests to a node for at most this long, in ms, even if the node asks for more. This is less
#: than the shortest session time-out.
THROTTLE_MAX_MS: Final = 30_000


class Throttle:
    """By node address, the time until which requests to that node are held back, for one client.

    `latest_ms` is the latest of these times; 0 while no node has asked for a pause.
    """

    __slots__ = ("_since_ms", "_until_ms", "latest_ms")

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}
        #: By address: when the current uninterrupted series of pauses began.
        self._since_ms: dict[str, int] = {}
        self.latest_ms = 0

    def note(self, address: str, throttle_ms: int, now_ms: int) -> None:
        """Note that the node asks for a pause of `throttle_ms`; 0 or less changes nothing. If pauses overlap, the
        latest end applies, but requests are held back for at most THROTTLE_MAX_MS from the start of the first pause."""
        if throttle_ms <= 0:
            return
        self._until_ms = {other: end_ms for other, end_ms in self._until_ms.items() if end_ms > now_ms}
        self._since_ms = {other: self._since_ms[other] for other in self._until_ms}
        since_ms = self._since_ms.setdefault(address, now_ms)
        # The clock rounds down to whole milliseconds; a late request is better than an early one.
        until_ms = min(now_ms + throttle_ms, since_ms + THROTTLE_MAX_MS) + 1
        self._until_ms[address] = until_ms = max(self.until_ms(address), until_ms)
        self.latest_ms = max(self.latest_ms, until_ms)

    def until_ms(self, address: str | None) -> int:
        """Return the time until which requests to the node are held back; 0 if no pause was noted."""
        return self._until_ms.get(address, 0) if address is not None else 0
