"""When an answer is held back (KL-16, KL-25).

Some clients send a refused fetch again at once, without end: after a topic was deleted one sent 26,000 in six seconds.
"""

from __future__ import annotations

from typing import Final

#: How long an answer that has nothing but errors is held back, ms.
PAUSE_MS: Final = 200
#: How long the answer to wrong credentials is delayed, in ms.
REFUSED_CREDENTIALS_MS: Final = 100


def bounded_ms(delay_ms: int) -> int:
    """Return a handler's delay within its bounds."""
    return min(max(delay_ms, 0), PAUSE_MS)
