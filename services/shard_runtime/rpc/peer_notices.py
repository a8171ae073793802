"""Notices to other nodes that no caller waits for (PL-527, GC-39b): without them the same happens, only later.

They are gathered for a moment, sent to each node with one call at a time, and tried again until they are too old to be
useful. A node that does not answer delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

import structlog

from kip932.rpc.transport import TransportError
from shard_runtime.clock import Clock

log = structlog.get_logger(__name__)

#: How long notices are gathered: several members are often lost, or removed, at about the same time.
GATHER_S: Final = 0.05
RETRY_S: Final = 0.5
CALL_S: Final = 3.0
#: The maximum number of notices that wait for one node, and in one call (CM-91).
NOTICES_MAX: Final = 10_000
CALL_NOTICES_MAX: Final = 1_000
#: The outcomes that are counted.
REPORTED: Final = "reported"
REFUSED: Final = "refused"
DROPPED: Final = "dropped"


class Notice(Protocol):
    """The part of a notice that decides whether it is sent."""

    @property
    def key(self) -> Hashable:
        """The subject of the notice."""
        ...

    @property
    def newness(self) -> int:
        """Of two notices about the same subject, the one with the higher number is kept."""
        ...

    @property
    def at_ms(self) -> int:
        """When it was made."""
        ...


NoticeT = TypeVar("NoticeT", bound=Notice)


class WaitingNotices(Generic[NoticeT]):
    """Pending notices, keyed by address. Pure and bounded. `dropped` counts those that were never delivered."""

    def __init__(self, worth_ms: int) -> None:
        self._worth_ms = worth_ms
        self._waiting: dict[str, dict[Hashable, NoticeT]] = {}
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, address: str, notice: NoticeT) -> None:
        """Keep the notice, unless a newer one about the same subject waits for this address."""
        waiting = self._waiting.setdefault(address, {})
        known = waiting.get(notice.key)
        if known is None and len(waiting) >= NOTICES_MAX:
            self.dropped += 1
        elif known is None or known.newness < notice.newness:
            waiting[notice.key] = notice

    def discard(self, key: Hashable) -> None:
        """Drop the waiting notices about `key`, for every address."""
        for address, waiting in list(self._waiting.items()):
            if waiting.pop(key, None) is not None and not waiting:
                del self._waiting[address]

    def take(
        self, now_ms: int, calling: Collection[str], is_gone: Callable[[str], bool]
    ) -> Mapping[str, Sequence[NoticeT]]:
        """Remove and return the notices to send now, by address, oldest first. Drops those that are too old, or whose
        node is gone; those for the addresses in `calling` continue to wait."""
        taken: dict[str, list[NoticeT]] = {}
        for address, waiting in [one for one in self._waiting.items() if one[0] not in calling]:
            notices = list(islice(waiting.values(), CALL_NOTICES_MAX))
            gone = is_gone(address)
            fresh = [one for one in notices if not gone and now_ms - one.at_ms < self._worth_ms]
            self.dropped += len(notices) - len(fresh)
            for notice in notices:
                del waiting[notice.key]
            if not waiting:
                del self._waiting[address]
            if fresh:
                taken[address] = fresh
        return taken


class PeerNotices(Generic[NoticeT]):
    """Sends the notices, with one task and one more for each node being called.

    `send` calls one node and returns the notices to try again; it may raise TransportError. `again` adds those that
    failed; by default for the same address. `is_gone`: whether a node will not be back. `count` counts notices by
    outcome. `worth_ms`: how long a notice is worth sending.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        worth_ms: int,
        send: Callable[[str, Sequence[NoticeT]], Awaitable[Sequence[NoticeT]]],
        count: Callable[[str, int], None],
        *,
        again: Callable[[Iterable[NoticeT]], None] | None = None,
        is_gone: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._name = name
        self._clock = clock
        self._send = send
        self._count = count
        self._again = again
        self._is_gone = is_gone
        self._waiting: WaitingNotices[NoticeT] = WaitingNotices(worth_ms)
        self._counted = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._calling: dict[str, asyncio.Task[None]] = {}

    def add(self, address: str, notice: NoticeT) -> None:
        """Queue a notice. Never blocks, never raises."""
        self._waiting.add(address, notice)
        self._wake.set()

    def discard(self, key: Hashable) -> None:
        """Drop the waiting notices about `key`."""
        self._waiting.discard(key)

    def start(self) -> None:
        """Start sending; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Stop; waiting notices are not sent."""
        tasks = [*self._calling.values()] + ([self._task] if self._task is not None else [])
        self._task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_S)
            self._wake.clear()
            try:
                self._round()
            except Exception:
                log.exception("peer_notice_round_failed", notices=self._name)
                self._wake.set()
                await asyncio.sleep(RETRY_S)

    def _round(self) -> None:
        """Call all nodes for which notices wait, except those being called."""
        loop = asyncio.get_running_loop()
        for address, notices in self._waiting.take(self._clock.now_ms(), self._calling, self._is_gone).items():
            name = f"{self._name} {address}"
            self._calling[address] = loop.create_task(self._call(address, notices), name=name)
        dropped, self._counted = self._waiting.dropped - self._counted, self._waiting.dropped
        if dropped:
            self._count(DROPPED, dropped)

    async def _call(self, address: str, notices: Sequence[NoticeT]) -> None:
        """Send one node its notices; if some failed, wait `RETRY_S` before the next call to it."""
        try:
            failed = await self._failed(address, notices)
            if failed:
                if self._again is not None:
                    self._again(failed)
                else:
                    for notice in failed:
                        self._waiting.add(address, notice)
                await asyncio.sleep(RETRY_S)
        finally:
            del self._calling[address]
            if self._waiting:
                self._wake.set()

    async def _failed(self, address: str, notices: Sequence[NoticeT]) -> Sequence[NoticeT]:
        """Send one node its notices, and count them. Return those to try again."""
        try:
            failed = await self._send(address, notices)
        except TransportError as error:
            if error.retriable:
                return notices
            log.debug("peer_notices_refused", notices=self._name, address=address, cause=str(error))
            self._count(REFUSED, len(notices))
            return ()
        except Exception:
            log.exception("peer_notices_failed", notices=self._name, address=address)
            return notices
        if len(failed) < len(notices):
            self._count(REPORTED, len(notices) - len(failed))
        return failed
