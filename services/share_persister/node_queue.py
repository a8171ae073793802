"""The queue to one node for one kind of command: one batch in flight; later calls form the next (PL-721, P-2).

There is no linger. A batch has a share-partition at most once (PL-705). It is sent as one request per group, all at the
same time; the next batch is sent when all of them are answered. The queue never retries; `client` does. When the node
does not answer, for example because its process is stopped, calls whose shard another node now owns fail at once: their
outcome is unknown, as after a broken connection (PL-707).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from kip932.errors import CoordinatorNotAvailableError, InvalidRequestError, NetworkError, UnknownServerError
from kip932.ids import STATE_BATCHES_MAX, SharePartitionKey
from kip932.rpc.transport import TransportError
from kip932.state_values import ReadSummary, StateCommand, StateOutcome, WriteState
from kip932.telemetry import traceparent_of
from share_persister.messages import build_request, method_of, read_response
from share_persister.retry_rules import from_transport
from share_persister.settings import PersisterSettings

log = structlog.get_logger(__name__)

_REASON_FIELDS: Final = 5  # the message and its four fields

#: Sends one group's request, with the traceparent of its sender if it is traced, and returns its response. Raises
#: TransportError.
Send = Callable[..., Awaitable[Any]]


class QueuedCall:
    """One command in a queue. `sent`: it may have reached the node (PL-707)."""

    __slots__ = ("command", "outcome", "sent")

    def __init__(self, command: StateCommand) -> None:
        self.command = command
        self.sent = False
        self.outcome: asyncio.Future[StateOutcome] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: StateOutcome) -> None:
        """Set the outcome, unless the caller has stopped waiting."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class NodeQueue:
    """One node's queue for one kind of command. `moved(key)` returns whether another node now coordinates the key."""

    def __init__(
        self,
        kind: type[StateCommand],
        send: Send,
        settings: PersisterSettings,
        moved: Callable[[SharePartitionKey], bool] = lambda key: False,
    ) -> None:
        self._kind = kind
        self._send = send
        self._settings = settings
        self._moved = moved
        self._check_timer: asyncio.TimerHandle | None = None
        self._queue: list[QueuedCall] = []
        self._worker: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether no call is waiting or in flight."""
        return self._worker is None

    def add(self, entry: QueuedCall) -> None:
        """Queue a call. Raises CoordinatorNotAvailableError when too many wait already; then it was not sent."""
        if len(self._queue) >= self._settings.queue_max:
            raise CoordinatorNotAvailableError(f"{len(self._queue)} operations wait for the coordinator; try again")
        self._queue.append(entry)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def close(self) -> None:
        """Send nothing more; fail the waiting calls."""
        if self._worker is not None:
            self._worker.cancel()
        for entry in self._queue:
            entry.settle(CoordinatorNotAvailableError("the persister was closed"))
        self._queue.clear()

    async def _work(self) -> None:
        batch: list[QueuedCall] = []
        try:
            while batch := self._take():
                self._schedule_check(batch, self._settings.silence_ms)
                await self._flush(batch)
                self._cancel_check()
        finally:
            self._worker = None
            self._cancel_check()
            for entry in batch:
                entry.settle(CoordinatorNotAvailableError("the persister was closed"))

    def _schedule_check(self, batch: list[QueuedCall], after_ms: int) -> None:
        self._check_timer = asyncio.get_running_loop().call_later(after_ms / 1000, self._check_moved, batch)

    def _cancel_check(self) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None

    def _check_moved(self, batch: list[QueuedCall]) -> None:
        """After a time without a response, fail the calls whose shard another node now owns; check again later."""
        gone = NetworkError("the coordinator did not answer, and another one owns the shard now")
        for entry in [*batch, *self._queue]:
            if not entry.outcome.done() and self._moved(entry.command.key):
                entry.settle(gone)
        self._schedule_check(batch, self._settings.silence_ms // 3)

    def _take(self) -> list[QueuedCall]:
        """Take the next batch, oldest calls first; a second call of a share-partition waits for a later batch."""
        waiting = [entry for entry in self._queue if not entry.outcome.done()]
        batch: dict[SharePartitionKey, QueuedCall] = {}
        self._queue, held = [], 0
        for entry in waiting:
            key, size = entry.command.key, _batches(entry.command)
            full = len(batch) >= self._settings.keys_per_request or (batch and held + size > STATE_BATCHES_MAX)
            if full or key in batch:
                self._queue.append(entry)
            else:
                batch[key] = entry
                held += size
        return list(batch.values())

    async def _flush(self, batch: list[QueuedCall]) -> None:
        groups: dict[str, list[QueuedCall]] = {}
        for entry in batch:
            groups.setdefault(entry.command.key.group_id, []).append(entry)
        if len(groups) == 1:
            await self._request(*groups.popitem())
        else:
            await asyncio.gather(*(self._request(group_id, entries) for group_id, entries in groups.items()))

    async def _request(self, group_id: str, entries: list[QueuedCall]) -> None:
        """Send one group's calls and settle each. A call missing in the response has an unknown outcome (PL-722)."""
        try:
            request = build_request(self._kind, group_id, [entry.command for entry in entries])
        except (TypeError, ValueError) as error:
            for entry in entries:  # for example, a number too large for its field: nothing was sent
                entry.settle(InvalidRequestError(f"{method_of(self._kind).name} of group {group_id!r}: {error}"))
            return
        for entry in entries:
            entry.sent = True
        try:
            outcomes = read_response(self._kind, await self._send(request, *_sender(entries)))
        except TransportError as error:
            failure = from_transport(error)
            for entry in entries:
                entry.settle(failure)
            return
        except Exception:
            log.exception("share_coordinator_reply_malformed", rpc=method_of(self._kind).name, group=group_id)
            outcomes = {}
        for entry in entries:
            key = entry.command.key
            if (name := key.topic_partition) in outcomes:
                entry.settle(outcomes[name])
            else:
                entry.settle(UnknownServerError(f"the reply holds no result for {key.text}"))


def _sender(entries: list[QueuedCall]) -> tuple[str, ...]:
    """Return the traceparent of the first traced write, if there is one."""
    for entry in entries:
        if isinstance(entry.command, WriteState) and entry.command.trace is not None:
            return (traceparent_of(entry.command.trace.get_span_context()),)
    return ()


def _batches(command: StateCommand) -> int:
    """Return how many state batches a call contains, or its response may contain: one for each offset (CM-91).

    A reason of a failure counts as one for each of its fields and for every 100 bytes, so that a request of any of them
    has neither more fields nor more bytes than a node accepts.
    """
    if isinstance(command, WriteState):
        return len(command.batches) + sum(_REASON_FIELDS + len(one.reason.encode()) // 100 for one in command.failures)
    if isinstance(command, ReadSummary) and command.span is not None:
        return command.span.last_offset - command.span.first_offset + 1
    return 0
