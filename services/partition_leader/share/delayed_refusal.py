"""A refusal that is answered when its timer fires, so that the client does not retry at once (PL-506)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class DelayedRefusal:
    """`answer` sends the refusal; a caller that calls it earlier cancels `timer`."""

    answer: Callable[[], None]
    timer: asyncio.TimerHandle = field(init=False)
