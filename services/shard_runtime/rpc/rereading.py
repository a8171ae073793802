"""Reads files again while a node runs, and decides when a failure is worth a line: the one way in which certificates,
keys and tokens are watched (CM-207).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

#: How often files are read again, how long after the first failure, and for how long they may be unusable before that
#: is reported, in seconds: a file may be renewed by removing the old one before the new one is written.
RELOAD_S: Final = 5.0
REPLACED_S: Final = 0.2
REPLACING_S: Final = 5.0


async def read_for_ever(
    read: Callable[[bool], Awaitable[bool]],
    *,
    first_s: float = RELOAD_S,
    every_s: float = RELOAD_S,
    retry_s: float = REPLACED_S,
    retry_max_s: float = RELOAD_S,
    patience_s: float = REPLACING_S,
) -> None:
    """Call `read` for ever: after `first_s`, then every `every_s`; after a failure sooner, with doubling pauses from
    `retry_s` to `retry_max_s`.

    It is given whether to report a failure: whether `patience_s` or more have passed since the first one in a row. It
    returns whether what it read is usable.
    """
    clock = asyncio.get_running_loop().time
    pause_s, failed, since_s = first_s, 0, 0.0
    while True:
        await asyncio.sleep(pause_s)
        now_s = clock()
        since_s = since_s if failed else now_s
        if await read(now_s - since_s >= patience_s):
            failed, pause_s = 0, every_s
        else:
            pause_s = min(retry_s * 2 ** min(failed, 10), retry_max_s)
            failed += 1
