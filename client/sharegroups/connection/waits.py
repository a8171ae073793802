"""What the clients of this process wait for now, so that a command that takes long can say so (CT-90).

A wait is noted where a call or its retries begin, and removed where these end, so there are no more of them than calls.
Any thread may read them.
"""

from __future__ import annotations

import time
from typing import Final

_waits: Final[set[Wait]] = set()


class Wait:
    """Something that a client waits for. `last`: why it has not got it yet; "" if that is not known."""

    def __init__(self, what: str) -> None:
        self.what, self.last = what, ""
        self.since_s = time.monotonic()
        _waits.add(self)

    def end(self) -> None:
        """Remove it."""
        _waits.discard(self)


def longest() -> Wait | None:
    """Return what has been waited for the longest; None if nothing is."""
    return min(_waits.copy(), key=lambda wait: wait.since_s, default=None)
