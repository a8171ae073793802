"""Sends pages again while they change, as server-sent events: one poller for all viewers of a user and page (CT-168).

Viewers are bounded. A poller ends with its last viewer, and a viewer whose session has ended is sent away.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

VIEWERS_MAX: Final = 100
#: How long a poller waits after one page before it makes the next, in seconds.
REFRESH_S: Final = 2.0
#: A viewer without news gets a comment so often, in seconds, so that one that has gone is noticed.
BEAT_S: Final = 15.0

Key = tuple[str, str]
#: Makes the page's HTML. Raises TroubleError when it cannot, EndedError when the viewers' session has ended.
Render = Callable[[], Awaitable[str]]


class TroubleError(Exception):
    """The page cannot be produced now; the message says why, for the page to show."""


class EndedError(Exception):
    """The session has ended."""


class _Viewer:
    """One stream. Holds only the newest event: a viewer that is slow misses older ones."""

    def __init__(self) -> None:
        self._event: bytes | None = None
        self._news = asyncio.Event()
        self.is_over = False

    def put(self, event: bytes) -> None:
        self._event = event
        self._news.set()

    def end(self) -> None:
        self.is_over = True
        self._news.set()

    async def get(self) -> bytes | None:
        """Return the next event, a comment after `BEAT_S` without one; None at the end."""
        if not self.is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._news.wait()
        self._news.clear()
        event, self._event = self._event, None
        if event is None and self.is_over:
            return None
        return event or b": \n\n"


class _Poller:
    def __init__(self, render: Render, refresh_s: float) -> None:
        self.viewers: set[_Viewer] = set()
        self.last = b""
        self._render, self._refresh_s = render, refresh_s
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        last: tuple[str, str] = ("", "")
        loop = asyncio.get_running_loop()
        good_s = loop.time()
        while True:
            try:
                made = ("figures", await self._render())
                good_s = loop.time()
            except TroubleError as error:
                age_s = int(loop.time() - good_s)
                made = ("trouble", f"{error} The figures below are {age_s} s older than this line.")
            except EndedError:
                for viewer in self.viewers:
                    viewer.put(_event("ended", ""))
                    viewer.end()
                return
            except Exception as error:  # else the viewers would look at old figures without knowing it
                made = ("trouble", f"The console failed: {type(error).__name__}: {error}")
                if made != last:
                    traceback.print_exception(error)
            if made != last:
                last, self.last = made, _event(*made)
                for viewer in self.viewers:
                    viewer.put(self.last)
            await asyncio.sleep(self._refresh_s)


class Live:
    """All viewers and pollers. Use it on one event loop."""

    def __init__(self, viewers_max: int = VIEWERS_MAX, refresh_s: float = REFRESH_S) -> None:
        self._viewers_max, self._refresh_s = viewers_max, refresh_s
        self._pollers: dict[Key, _Poller] = {}
        self._closed = False

    @property
    def viewers(self) -> int:
        """How many viewers there are."""
        return sum(len(poller.viewers) for poller in self._pollers.values())

    @property
    def pollers(self) -> int:
        """How many pollers run."""
        return len(self._pollers)

    @property
    def is_full(self) -> bool:
        """Whether no more viewers are taken."""
        return self._closed or self.viewers >= self._viewers_max

    async def watch(self, key: Key, render: Render) -> AsyncIterator[bytes]:
        """Yield the events of a page for one viewer, until it leaves or its session ends; none if there are too many
        viewers."""
        if self.is_full:
            return
        poller = self._pollers.get(key)
        if poller is None or poller.task.done():
            poller = self._pollers[key] = _Poller(render, self._refresh_s)
        viewer = _Viewer()
        poller.viewers.add(viewer)
        if poller.last:
            viewer.put(poller.last)
        try:
            while (event := await viewer.get()) is not None:
                yield event
        finally:
            self._leave(key, poller, viewer)

    def _leave(self, key: Key, poller: _Poller, viewer: _Viewer) -> None:
        poller.viewers.discard(viewer)
        if not poller.viewers:
            poller.task.cancel()
            if self._pollers.get(key) is poller:
                del self._pollers[key]

    def close(self) -> None:
        """End all streams, and take no more."""
        self._closed = True
        for poller in self._pollers.values():
            for viewer in poller.viewers:
                viewer.end()


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()
