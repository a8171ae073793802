"""Calls the application's function for bearer tokens (CL-158): before the first call, before a token expires, and when
one was refused."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kip932.rpc.transport import TransportError, TransportStatus

log = logging.getLogger("sharegroups.connection")

#: Seconds that a call to a node waits for the function, and between two calls of the function.
WAIT_S: Final = 10.0
PAUSE_S: Final = 1.0
#: A token is replaced after this part of its time. One that was got for a refused one, and is refused within
#: `FRESH_S` seconds, is refused for good: another would not be better.
RENEWED_AFTER: Final = 0.8
FRESH_S: Final = 30.0

Metadata = tuple[tuple[str, str], ...]


class TokenFunction:
    """The newest token of a function. `metadata_of` turns it into a call's metadata, and raises ValueError for anything
    that is not a token.

    The function runs in a thread of its own, one call at a time, so one that hangs stops nothing but renewals.
    """

    def __init__(self, function: Callable[[], Any], metadata_of: Callable[[str], Metadata]) -> None:
        self._function = function
        self._metadata_of = metadata_of
        self._metadata: Metadata = ()
        self._renew_at_s = -math.inf
        self._called_s = -math.inf
        self._refused = self._for_refused = False
        self._failure = ""
        self._running: asyncio.Future[None] | None = None

    def __call__(self) -> Metadata:
        """Return the metadata with the newest token; empty before the first `prepare`."""
        return self._metadata

    async def prepare(self, address: str) -> None:
        """Get a token where one is needed: wait for the first one, and for one after a refusal; renew in the
        background. Raises TransportError, UNAUTHENTICATED, while there is none."""
        now_s = time.monotonic()
        if now_s >= self._renew_at_s or self._refused:
            if self._running is None and now_s - self._called_s >= PAUSE_S:
                self._start(now_s)
            if self._running is not None and (self._refused or not self._metadata):
                await asyncio.wait({self._running}, timeout=WAIT_S)
        if not self._metadata:
            why = self._failure or f"it has not returned within {WAIT_S:.0f} s"
            text = f"sasl.oauthbearer.token has returned no token yet: {why}"
            raise TransportError(TransportStatus.UNAUTHENTICATED, address, text, sent=False)

    def refused(self) -> bool:
        """Note that a node has refused the newest token. Returns whether another one may be better."""
        fresh = self._for_refused and time.monotonic() - self._called_s < FRESH_S
        self._refused = True
        return not fresh

    def _start(self, now_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._called_s, self._for_refused = now_s, self._refused
        running = self._running = loop.create_future()

        def run() -> None:
            try:
                found: Any = self._function()
            except BaseException as error:
                found = error
            try:
                loop.call_soon_threadsafe(self._take, found, running)
            except RuntimeError:
                return  # the loop was closed meanwhile

        threading.Thread(target=run, name="sharegroups-token", daemon=True).start()

    def _take(self, found: Any, running: asyncio.Future[None]) -> None:
        self._running = None
        try:
            if isinstance(found, BaseException):
                raise ValueError(f"it raised {type(found).__name__}: {found}")
            if not isinstance(found, str) or not found:
                raise ValueError(f"it returned {type(found).__name__}; expected a str that is not empty")
            self._metadata = self._metadata_of(found)
        except ValueError as error:
            if str(error) != self._failure:
                log.warning("sasl.oauthbearer.token failed: %s; trying again, with the last token until then", error)
            self._failure = str(error)
        else:
            self._refused, self._failure = False, ""
            left_s = seconds_left(found, time.time())
            self._renew_at_s = math.inf if left_s is None else time.monotonic() + RENEWED_AFTER * max(0.0, left_s)
        if not running.done():
            running.set_result(None)


def seconds_left(token: str, now_s: float) -> float | None:
    """Return how long a JWT is still valid by its `exp`, at `now_s` since 1970; None for a token that does not say."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"]) - now_s
    except (IndexError, ValueError, KeyError, TypeError, OverflowError):
        return None
