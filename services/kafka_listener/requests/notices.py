"""Log lines about what a client wants and does not get, where the answer has no room for the reason.

Clients cause them, so they are limited for each event loop, that is for each node (`RateLimitedLog`).
"""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

import structlog

from shard_runtime.rate_limited_log import RateLimitedLog

log = structlog.get_logger(__name__)

_LINES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, RateLimitedLog]] = WeakKeyDictionary()


def notices() -> RateLimitedLog:
    """Return the limited log of the running event loop."""
    loop = asyncio.get_running_loop()
    lines = _LINES.get(loop)
    if lines is None:
        lines = _LINES[loop] = RateLimitedLog(log)
    return lines
