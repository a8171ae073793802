"""Where a node has its keys and tokens from: files, and a key set at an https URL, read again while the node runs
(CM-186 (e) to (g)).

Contents that cannot be used change nothing: the node goes on with what it has, and reports why, once for each reason.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import stat
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import structlog

from shard_runtime.rpc.rereading import RELOAD_S, REPLACED_S, REPLACING_S, read_for_ever
from shard_runtime.rpc.tokens import CONTENTS_MAX, ContentsError

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: How long a server of keys may take in all, and the pauses after failures, in seconds.
FETCH_S: Final = 10.0
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
#: How often an unknown key id makes a node read the keys again, in seconds.
ASK_AGAIN_S: Final = 10.0
_CHUNK: Final = 1 << 16

#: Returns contents and, for a file, its permissions. Raises ContentsError.
Read = Callable[[], tuple[bytes, int]]


class Source(Generic[T]):
    """A file or URL whose contents are parsed, and read again periodically. `current`: the last usable ones; None
    before the first.

    `what`: their name in the log. `every_s`: how often they are read again; `retry_max_s`: the longest pause after a
    failure. `changed` is called on the event loop after each change. `failures`: how often new contents were unusable.
    """

    def __init__(
        self,
        what: str,
        where: str,
        read: Read,
        parse: Callable[[bytes, int], T],
        changed: Callable[[], None],
        *,
        every_s: float = RELOAD_S,
        retry_s: float = REPLACED_S,
        retry_max_s: float = RELOAD_S,
    ) -> None:
        self.what: Final = what
        self.where: Final = where
        self.current: T | None = None
        self.failures = 0
        self.reason = "they were not read yet"
        self._read = read
        self._parse = parse
        self._changed = changed
        self._every_s, self._retry_s, self._retry_max_s = every_s, retry_s, retry_max_s
        self._contents: tuple[bytes, int] | None = None
        self._reported = ""
        self._reading: asyncio.Task[bool] | None = None
        self._asked_s = -ASK_AGAIN_S

    def load(self) -> None:
        """Read for the first time, without an event loop. Raises ContentsError."""
        self._use(*self._read_and_parse(None))

    async def reload(self, *, report: bool = True) -> bool:
        """Read again, in a thread, and return whether the contents are usable. Callers at the same time share one
        reading. With `report` a new reason for a failure is logged."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._reload(report=report))
        return await asyncio.shield(self._reading)

    async def ask_again(self) -> None:
        """Read again for what is not in the contents yet; at most every `ASK_AGAIN_S`, otherwise do nothing but wait
        for a reading that is under way."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._asked_s >= ASK_AGAIN_S:
            self._asked_s = now_s
            await self.reload()
        elif self._reading is not None and not self._reading.done():
            await asyncio.shield(self._reading)

    async def watch(self) -> None:
        """Read again for ever: every `every_s`, and sooner after a failure. That of a URL is reported at once."""
        await read_for_ever(
            lambda report: self.reload(report=report),
            first_s=0.0 if self.current is None else self._every_s,
            every_s=self._every_s,
            retry_s=self._retry_s,
            retry_max_s=self._retry_max_s,
            patience_s=0.0 if self._retry_s >= RETRY_S else REPLACING_S,
        )

    async def _reload(self, *, report: bool) -> bool:
        try:
            contents, parsed = await asyncio.to_thread(self._read_and_parse, self._contents)
        except Exception as error:  # contents of any kind: one that escapes would end the watch for good
            shown = str(error) if isinstance(error, ContentsError) else f"{type(error).__name__}: {error}"
            self.reason = f"{self.where}: {shown}"
            if report and self.reason != self._reported:
                self._reported = self.reason
                self.failures += 1
                effect = "this node keeps those that it has" if self.current is not None else "it accepts none of them"
                log.error("credentials_unusable", what=self.what, cause=self.reason, effect=effect)
            return False
        self._reported = ""
        if parsed is not None:
            again = self.current is not None
            self._use(contents, parsed)
            log.info("credentials_read", what=self.what, where=self.where, again=again)
            self._changed()
        return True

    def _read_and_parse(self, before: tuple[bytes, int] | None) -> tuple[tuple[bytes, int], T | None]:
        """Return the contents, and what they mean; None if they are as before."""
        contents = self._read()
        if contents == before:
            return contents, None
        return contents, self._parse(*contents)

    def _use(self, contents: tuple[bytes, int], parsed: T | None) -> None:
        self._contents, self.current = contents, parsed
        for remark in getattr(parsed, "remarks", ()):
            log.warning("credentials_questionable", what=self.what, where=self.where, cause=remark)


def file_reader(path: Path) -> Read:
    """Return what reads a file of at most `CONTENTS_MAX` bytes, with its permissions."""

    def read() -> tuple[bytes, int]:
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                contents = file.read(CONTENTS_MAX + 1)
        except OSError as error:
            raise ContentsError(f"it cannot be read: {error.strerror}") from None
        if len(contents) > CONTENTS_MAX:
            raise ContentsError(f"it has more than {CONTENTS_MAX} bytes")
        return contents, mode

    return read


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirections to https URLs alone."""

    def redirect_request(self, *args: Any) -> Any:
        """Return the next request. Raises ContentsError for one that is not encrypted."""
        new_url = args[-1]
        if urlsplit(new_url).scheme != "https":
            raise ContentsError("it leads to a URL that is not https")
        return super().redirect_request(*args)


def https_reader(url: str) -> Read:
    """Return what fetches an https URL: at most `CONTENTS_MAX` bytes, within about `FETCH_S`."""
    opener = urllib.request.build_opener(_HttpsOnly())
    request = urllib.request.Request(url, headers={"Accept": "application/json"})

    def read() -> tuple[bytes, int]:
        until_s = time.monotonic() + FETCH_S
        contents = b""
        try:
            with opener.open(request, timeout=FETCH_S) as got:
                while chunk := got.read1(_CHUNK):
                    contents += chunk
                    if len(contents) > CONTENTS_MAX:
                        raise ContentsError(f"it has more than {CONTENTS_MAX} bytes")
                    if time.monotonic() > until_s:
                        raise ContentsError(f"it was not read within {FETCH_S:g} s")
        except ContentsError:
            raise
        except (OSError, ValueError) as error:  # an odd URL is a ValueError
            raise ContentsError(f"it cannot be fetched: {getattr(error, 'reason', None) or error}") from None
        except http.client.HTTPException as error:
            raise ContentsError(f"it cannot be fetched: {type(error).__name__}") from None
        return contents, 0

    return read
