"""The share consumer for asyncio: subscription, poll, acknowledgements, commits, callbacks, close.

Rules CL-20 to CL-29. It is the application's side of membership (`heartbeats`) and sessions (`fetcher`); the blocking
consumer wraps this one. Callbacks run in the task that is inside poll, commit or close.
"""

from __future__ import annotations

import asyncio
import base64
import random
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from kip932.errors import KafkaError
from kip932.rpc.transport import Transport
from sharegroups.aio.ack_ledger import AckCallback, AckLedger, Commit, CommitResult
from sharegroups.aio.ack_outbox import PendingAck
from sharegroups.aio.machinery import Machinery
from sharegroups.aio.share_session import Member
from sharegroups.config import consumer_config
from sharegroups.core.membership import Membership
from sharegroups.errors import ConcurrentModificationError, IllegalStateError, WakeupError
from sharegroups.messages import AcknowledgeType, Delivered, Message, Messages, delivered_of


class ShareConsumer:
    """A member of a share group. Settings as a dict, or as keywords with `_` for `.` (CL-44).

    Raises ConfigError for settings, InvalidGroupIdError without a group. Use it as `async with`, or call `close`.
    """

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, transport: Transport | None = None, **keywords: Any
    ) -> None:
        self._config = consumer_config(settings, keywords)
        self._config.bootstrap  # noqa: B018 - a wrong address is told now, not at the first poll
        self._ledger = AckLedger(self._config["share.acknowledgement.mode"] == "explicit")
        self._member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self._given_transport = transport
        self._membership = Membership(
            self._config["client.rack"],
            self._config["max.poll.interval.ms"],
            self._config["retry.backoff.ms"],
            self._config["retry.backoff.max.ms"],
            random.random,
        )
        self._machinery: Machinery | None = None
        self._subscription: list[str] = []
        self._errors: deque[KafkaError] = deque(maxlen=100)
        self._busy = False
        self._closed = False
        self._wakeup = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Subscription.

    @property
    def member_id(self) -> str:
        """The member id, constant for the life of this object."""
        return self._member_id

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; empty means unsubscribe (CL-20). Raises ValueError for None or a blank name."""
        with self._exclusive():
            if topics is None or isinstance(topics, str):
                raise ValueError(f"subscribe needs a list of topic names, found {topics!r}")
            names = list(topics)
            for name in names:
                if not isinstance(name, str) or not name.strip():
                    raise ValueError(f"topic name {name!r} is blank; expected the name of a topic")
            if not names:
                self._unsubscribe()
                return
            self._subscription = list(dict.fromkeys(names))
            self._membership.subscribe(self._subscription)

    def unsubscribe(self) -> None:
        """Leave the group; the heartbeat that says so leaves at once (CL-8)."""
        with self._exclusive():
            self._unsubscribe()

    def subscription(self) -> list[str]:
        """The topics subscribed to."""
        self._check_open()
        return list(self._subscription)

    # Polling and acknowledging.

    async def poll(self, timeout: float | None = None) -> Messages:
        """Records as soon as there are any, else empty after `timeout` seconds; None waits without end (CL-21)."""
        with self._exclusive():
            deadline = self._begin_poll(timeout)
            while True:
                messages = await self._poll_until(deadline)
                if messages is not None:
                    return messages
                self._ledger.run_callbacks()

    def _begin_poll(self, timeout: float | None) -> float | None:
        """Everything of CL-21 before the waiting."""
        self._raise_background()
        self._ledger.run_callbacks()
        self._ledger.check_all_acknowledged()
        acks = self._ledger.take(accept_rest=not self._ledger.explicit)
        self._ledger.send(acks, self._config["default.api.timeout.ms"], flush=False)
        if not self._subscription:
            raise IllegalStateError("Consumer is not subscribed to any topics.")
        machinery = self._start()
        now_s = asyncio.get_running_loop().time()
        machinery.metrics.polled(now_s)
        self._membership.poll(int(now_s * 1000))
        machinery.heartbeats.wake()
        return None if timeout is None or timeout < 0 else now_s + timeout

    async def _poll_until(self, deadline: float | None) -> Messages | None:
        """Wait for records. None when results of acknowledgements want their callback first."""
        machinery = self._start()
        fetcher = machinery.fetcher
        loop = asyncio.get_running_loop()
        keep_alive_s = self._config["max.poll.interval.ms"] / 3000
        while True:
            self._raise_background()
            if delivered := fetcher.collect():
                fetcher.flush()  # data was there, so what is pending travels by itself (P-5)
                self._ledger.hand_out(delivered)
                return Messages(delivered, self._config["key.deserializer"], self._config["value.deserializer"])
            if self._ledger.has_results:
                return None
            now_s = loop.time()
            self._membership.poll(int(now_s * 1000))
            fetcher.send_fetches(int(now_s * 1000))
            remaining = keep_alive_s if deadline is None else deadline - now_s
            if remaining <= 0:
                await asyncio.sleep(0)
                return Messages()
            await fetcher.wait(min(remaining, keep_alive_s), int(now_s * 1000))
            machinery.metrics.idle_s += loop.time() - now_s

    def acknowledge(self, message: Message, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what became of a record; sent by the next poll or commit (CL-23). Raises IllegalStateError."""
        with self._exclusive():
            self._ledger.acknowledge(delivered_of(message), message.offset(), AcknowledgeType(type))

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """As `acknowledge`, for any record in flight by its place (CL-23)."""
        with self._exclusive():
            self._ledger.acknowledge_offset(topic, partition, offset, AcknowledgeType(type))

    async def commit_sync(self, timeout: float | None = None) -> CommitResult:
        """Send what is acknowledged and wait (CL-24): per partition None or the error; {} when nothing is pending.

        `timeout` is in seconds, default.api.timeout.ms by default, below 0 without end.
        """
        with self._exclusive():
            self._raise_wakeup()
            seconds = self._config["default.api.timeout.ms"] / 1000 if timeout is None else timeout
            acks = self._ledger.take(accept_rest=not self._ledger.explicit)
            commit = Commit(ack.delivered.key for ack in acks)
            self._ledger.send(acks, None if seconds < 0 else int(seconds * 1000), commit)
            await self._wait_commit(commit, None if seconds < 0 else seconds)
            self._ledger.run_callbacks()
            return commit.results

    def commit_async(self) -> None:
        """Send what is acknowledged; the outcome goes to the callback (CL-25). Must run inside the event loop."""
        with self._exclusive():
            self._ledger.run_callbacks()
            acks = self._ledger.take(accept_rest=not self._ledger.explicit)
            self._ledger.send(acks, self._config["default.api.timeout.ms"])

    def set_acknowledgement_commit_callback(self, callback: AckCallback | None) -> None:
        """Called once per partition result inside poll, commit or close; None clears it and what is queued (CL-26)."""
        with self._exclusive():
            self._ledger.set_callback(callback)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records stay acquired, as a leader last told; None before that (CL-27)."""
        return self._machinery.fetcher.acquisition_lock_timeout_ms() if self._machinery is not None else None

    def metrics(self) -> dict[tuple[str, str], float]:
        """Metrics by (group, name) (CL-41); empty before the first poll. Must run inside the event loop."""
        if self._machinery is None:
            return {}
        return self._machinery.metrics.snapshot(asyncio.get_running_loop().time(), self._membership.rebalances)

    def wakeup(self) -> None:
        """Make a waiting poll or commit_sync, or the next one, raise WakeupError (CL-29)."""
        self._wakeup = True
        if self._machinery is not None:
            self._machinery.fetcher.wake()

    async def close(self, timeout: float = 30.0) -> None:
        """Send acknowledgements, close sessions, leave the group (CL-28). Again is a no-op. Raises the first error.

        In implicit mode the records of the last poll are not accepted: they are released.
        """
        if self._closed:
            return
        with self._exclusive():
            self._closed = True
            errors: list[Exception] = []
            if self._machinery is not None:
                budget_s = max(0.0, min(timeout, self._config["request.timeout.ms"] / 1000))
                acks = self._ledger.take(accept_rest=False)
                self._ledger.send(acks, int(budget_s * 1000), flush=False)
                await self._machinery.close(budget_s)
            try:
                self._ledger.run_callbacks()
            except Exception as error:
                errors.append(error)
            if self._membership.fatal is not None:
                errors.append(self._membership.fatal)
            if errors:
                raise errors[0]

    # Steps.

    def _start(self) -> Machinery:
        if self._machinery is None:
            self._machinery = Machinery(
                member=Member(self._config["group.id"], self._member_id, self._config),
                membership=self._membership,
                transport=self._given_transport,
                settled=self._settled,
                failed=self._errors.append,
                in_use=self._ledger.uses,
            )
        return self._machinery

    def _unsubscribe(self) -> None:
        self._subscription = []
        self._membership.leave()
        if self._machinery is not None:
            self._machinery.heartbeats.wake()

    async def _wait_commit(self, commit: Commit, timeout_s: float | None) -> None:
        if commit.is_done:
            return
        fetcher = self._start().fetcher
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not commit.is_done:
            self._raise_wakeup()
            remaining = 60.0 if deadline is None else deadline - loop.time()
            if remaining <= 0:
                commit.time_out()
                return
            await fetcher.wait(remaining, int(loop.time() * 1000))

    def _settled(self, ack: PendingAck, error: KafkaError | None) -> None:
        """The fate of acknowledgements is known; renewed records come back with the next poll (CL-27)."""
        renewed = self._ledger.settled(ack, error)
        if self._machinery is not None:
            self._machinery.metrics.acknowledgements += 1
            self._machinery.metrics.acknowledgement_errors += error is not None
            if renewed is not None:
                self._machinery.fetcher.put_back([renewed])

    def _return_to_buffer(self, delivered: Iterable[Delivered]) -> None:
        """The blocking consumer was interrupted before it could return these records."""
        if self._machinery is not None:
            self._machinery.fetcher.put_back(self._ledger.take_back(delivered))

    def _raise_background(self) -> None:
        self._raise_wakeup()
        if self._errors:
            raise self._errors.popleft()
        if (error := self._membership.take_error()) is not None:
            raise error

    def _raise_wakeup(self) -> None:
        if self._wakeup:
            self._wakeup = False
            raise WakeupError("wakeup() was called")

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("This consumer has already been closed.")

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One caller at a time (CL-29), none from inside a callback (CL-26), none after close (CL-28)."""
        if self._ledger.in_callback:
            raise IllegalStateError("The consumer cannot be used from inside its acknowledgement callback.")
        if self._busy:
            raise ConcurrentModificationError("the consumer is in use elsewhere; only wakeup() may be called now")
        self._check_open()
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
