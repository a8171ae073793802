"""How long the quotas of a client make it wait, and the line that says so (CL-163)."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

#: The line is logged at most once in this time, in ms.
LINE_EVERY_MS: Final = 60_000


class QuotaWaits:
    """The waits of one client for one quota. `who`: what it calls itself in the line, such as "producer"."""

    __slots__ = ("_left_out", "_line_ms", "_quota", "_who", "count", "maximum_ms", "total_ms")

    def __init__(self, who: str, quota: str) -> None:
        self.count = self.total_ms = self.maximum_ms = 0
        self._who = who
        self._quota = quota
        self._line_ms: int | None = None
        self._left_out = 0

    @property
    def average_ms(self) -> float:
        """The mean over all responses, those that ask for no wait included; 0 without responses."""
        return self.total_ms / self.count if self.count else 0.0

    def answered(self, node_id: int, throttle_ms: int, now_ms: int) -> None:
        """Note a response and the wait that it asks for; `now_ms` is that of a clock that never jumps."""
        self.count += 1
        if throttle_ms <= 0:
            return
        self.total_ms += throttle_ms
        self.maximum_ms = max(self.maximum_ms, throttle_ms)
        if self._line_ms is not None and now_ms - self._line_ms < LINE_EVERY_MS:
            self._left_out += 1
            return
        more = f" It had to wait {self._left_out} more times since the last line." if self._left_out else ""
        log.warning(
            "node %d makes this %s wait for %.1f s, since the quota %s of its user or client id is used up; nothing is "
            "lost. An administrator can show and raise quotas with sharegroups configs.%s",
            node_id,
            self._who,
            throttle_ms / 1000,
            self._quota,
            more,
        )
        self._line_ms, self._left_out = now_ms, 0
