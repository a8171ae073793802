"""What the asyncio and blocking share consumers have in common: everything except the handling of callers, callbacks
and threads.

Rules CL-20 to CL-28. All coroutines run in one event loop. Plain methods may be called from the application's thread,
but only while no coroutine of this object runs; the two consumers guarantee that (CL-29).
"""

from __future__ import annotations

import asyncio
import base64
import random
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from kip932.errors import KafkaError
from kip932.rpc import grpc_transport
from kip932.rpc.transport import Transport
from sharegroups import arguments
from sharegroups.config import consumer_config
from sharegroups.consuming.ack_ledger import AckLedger, Commit, CommitResult
from sharegroups.consuming.ack_outbox import PendingAck
from sharegroups.consuming.consumer_runtime import ConsumerRuntime
from sharegroups.consuming.core.membership import Membership
from sharegroups.consuming.lock_renewals import Keeper
from sharegroups.consuming.lock_watch import HoldWatch
from sharegroups.consuming.member import Member
from sharegroups.errors import IllegalStateError, WakeupError
from sharegroups.forks import check_grpc
from sharegroups.messages import Delivered, Messages
from sharegroups.tracing.consuming import ConsumerTracing


class ConsumerEngine:
    """The state of one consumer. Raises ConfigError for invalid settings, InvalidGroupIdError without a group."""

    def __init__(self, settings: Mapping[str, Any] | None, keywords: Mapping[str, Any], transport: Transport | None):
        self._config = consumer_config(settings, keywords)
        self._config.check_bootstrap()
        if transport is None:
            check_grpc(grpc_transport.used_in)
        self.ledger = AckLedger(self._config["share.acknowledgement.mode"] == "explicit")
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self.tracing = ConsumerTracing(
            self._config["opentelemetry.enable"], self._config["client.id"], self._config["group.id"], self.member_id
        )
        self.subscription: list[str] = []
        self._transport = transport
        self._member = Member(self._config["group.id"], self.member_id, self._config)
        self._membership = Membership(
            self._config["client.rack"],
            self._config["max.poll.interval.ms"],
            self._config["retry.backoff.ms"],
            self._config["retry.backoff.max.ms"],
            random.random,
        )
        self._member.epoch = lambda: self._membership.epoch
        self._runtime: ConsumerRuntime | None = None
        self._holding = HoldWatch(self.ledger, self._member)
        self.keeper = Keeper(self.ledger, self._membership)
        self._errors: deque[KafkaError] = deque(maxlen=100)
        self._last_polled: list[Delivered] = []
        self._wakeup = False
        self._keep_alive_s = self._config["max.poll.interval.ms"] / 3000
        self._deserializers = self._config["key.deserializer"], self._config["value.deserializer"]

    @property
    def group_id(self) -> str:
        """The share group."""
        return self._member.group_id

    @property
    def has_begun(self) -> bool:
        """True once the application has polled."""
        return self._runtime is not None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; empty means unsubscribe (CL-20). Raises ValueError for None or a blank name."""
        names = arguments.items("subscribe", topics, "topic names", str, 'subscribe(["orders"])')
        for name in names:
            if not name.strip():
                raise ValueError(f"topic name {name!r} is blank; expected the name of a topic")
        if not names:
            self.unsubscribe()
            return
        if self._runtime is not None:
            self._runtime.cluster.forget(set(self.subscription) - set(names))
        self.subscription = list(dict.fromkeys(names))
        self._membership.subscribe(self.subscription)

    def unsubscribe(self) -> None:
        """Leave the group; the leave heartbeat is sent immediately (CL-8). Call it on the event loop once polling has
        started."""
        self.subscription = []
        self._membership.leave()
        if self._runtime is not None:
            self._runtime.heartbeats.wake()

    def limit_records(self, count: int) -> None:
        """Limit later fetches to `count` records, from 1 to max.poll.records."""
        self._member.records_cap = max(1, min(count, self._config["max.poll.records"]))

    def raise_background(self) -> None:
        """Raise WakeupError after wakeup(), or a pending error of a session or the membership (CL-21); a fatal one on
        every call, any other once (CL-9, CL-143)."""
        if self._wakeup:
            self._raise_wakeup()
        if self._errors:
            raise self._errors.popleft()
        if self._membership.fatal is not None:
            # Every poll raises this error: if its traceback were kept, it would hold the frames of all those polls.
            raise self._membership.fatal.with_traceback(None)

    async def poll(self, timeout_s: float | None, max_records: int | None = None) -> Messages | None:
        """Send the acknowledgements of the previous poll, then wait for records (CL-21).

        Returns None when results wait for the callback: run the callbacks, then call `wait_records`. Raises the errors
        documented for the consumers' poll().
        """
        self._last_polled = []
        self.ledger.check_all_acknowledged()
        self._member.poll_cap = max_records
        now_s = asyncio.get_running_loop().time()
        self._holding.check(int(now_s * 1000))
        self.tracing.refresh()
        if self.tracing.on:
            self.ledger.on_send = self.tracing.settling
            self.tracing.poll_began()
        self._send_acknowledged(int(now_s * 1000), polls=True)
        if not self.subscription:
            raise IllegalStateError("Consumer is not subscribed to any topics.")
        machinery = self._runtime or self._start()
        machinery.metrics.polled(now_s)
        return await self.wait_records(timeout_s)

    async def wait_records(self, timeout_s: float | None) -> Messages | None:
        """Wait for records; empty after `timeout_s`. Returns None when results wait for the callback: run it, then call
        again."""
        machinery = self._runtime or self._start()
        fetcher = machinery.fetcher
        clock = asyncio.get_running_loop().time
        now_s = clock()
        deadline = None if timeout_s is None else now_s + timeout_s
        if self._membership.poll(int(now_s * 1000)):
            machinery.heartbeats.wake()  # join again now, since the callback may also have taken max.poll.interval.ms
        while True:
            try:
                self.raise_background()
            except Exception:
                fetcher.flush()  # it may be long before the application polls again
                raise
            now_ms = int(now_s * 1000)
            if delivered := fetcher.collect(now_ms):
                fetcher.handed_out(now_ms)
                machinery.watch.heard(now_s)
                self.ledger.hand_out(delivered)
                self._holding.handed(delivered, now_ms)
                self._last_polled = delivered
                if self.tracing.on:
                    self.tracing.polled(delivered)
                return Messages(delivered, *self._deserializers)
            fetcher.send_fetches(now_ms)  # before callbacks run, since one may take long or raise
            if self.ledger.has_results:
                return None
            remaining = self._keep_alive_s if deadline is None else deadline - now_s
            if remaining <= 0:
                await asyncio.sleep(0)
                return Messages()
            await fetcher.wait(min(remaining, self._keep_alive_s), now_ms)
            began_s, now_s = now_s, clock()
            machinery.metrics.idle_s += now_s - began_s
            self._membership.poll(int(now_s * 1000))

    async def commit(self, timeout_s: float | None) -> CommitResult:
        """Send acknowledgements and wait for their results (CL-24); the caller runs the callbacks.

        `timeout_s`: None means default.api.timeout.ms, below 0 no limit.
        """
        self._raise_wakeup()
        seconds = self._config["default.api.timeout.ms"] / 1000 if timeout_s is None else timeout_s
        limit = None if seconds < 0 else seconds
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        self._holding.check(now_ms)
        acks = self.ledger.take(accept_rest=not self.ledger.explicit)
        self._holding.over(now_ms, polls=False)
        commit = Commit(ack.delivered.key for ack in acks)
        self.ledger.send(acks, None if limit is None else int(limit * 1000), now_ms, commit)
        if not commit.is_done:
            await self._wait_commit(commit, limit)
        return commit.results

    def send_acknowledged(self) -> None:
        """Send the acknowledgements; in implicit mode, accept all records of the last poll (CL-25). Call it on the
        event loop."""
        self._send_acknowledged(int(asyncio.get_running_loop().time() * 1000), polls=False)

    def _send_acknowledged(self, now_ms: int, *, polls: bool) -> None:
        ledger = self.ledger
        acks = ledger.take(accept_rest=not ledger.explicit)
        self._holding.over(now_ms, polls=polls)
        if acks:
            flush = not polls or not self.subscription  # otherwise the next ShareFetch carries them
            ledger.send(acks, self._config["default.api.timeout.ms"], now_ms, flush=flush)

    def wakeup(self) -> None:
        """Make a waiting call, or the next one, raise WakeupError (CL-29). After the first poll, call it on the event
        loop."""
        self._wakeup = True
        if self._runtime is not None:
            self._runtime.fetcher.wake()

    def take_back(self) -> None:
        """Take back the records of an interrupted poll, so that the next poll returns them. Call it on the event
        loop."""
        if self._runtime is not None:
            returned = self.ledger.take_back(self._last_polled)
            self._holding.taken_back(returned)
            self._runtime.fetcher.put_back(returned)
        self._last_polled = []

    def delivery_count_limit(self) -> int | None:
        """Return the number of deliveries after which the group archives a record, as a leader last reported it."""
        return self._member.delivery_count_limit

    def dead_letter_topic(self) -> str | None:
        """Return the group's dead-letter topic, as a leader last reported."""
        return self._member.dead_letter_topic

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return how long records are locked, in ms, as a leader last reported it; None before the first response
        (CL-27)."""
        return self._runtime.fetcher.acquisition_lock_timeout_ms() if self._runtime is not None else None

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return metrics by (group, name) (CL-41); empty before the first poll. Call it on the event loop."""
        if self._runtime is None:
            return {}
        now_s = asyncio.get_running_loop().time()
        return self._runtime.metrics.snapshot(now_s, self._membership.rebalances)

    async def close(self, timeout_s: float) -> None:
        """Close sessions and leave the group (CL-28). Call `finish_close` next, which runs the callbacks.

        In implicit mode the records of the last poll are not accepted; closing the session releases them.
        """
        if self._runtime is not None:
            if not self.ledger.explicit:
                self._holding.log_unaccepted()
            budget_s = max(0.0, min(timeout_s, self._config["request.timeout.ms"] / 1000))
            now_ms = int(asyncio.get_running_loop().time() * 1000)
            self.ledger.send(self.ledger.take(accept_rest=False), int(budget_s * 1000), now_ms, flush=False)
            await self._runtime.close(budget_s)
        self._holding.close()
        self.keeper.close()

    def finish_close(self) -> None:
        """Run the last callbacks. Raises the callback's first error, otherwise the membership's fatal error (CL-28)."""
        errors: list[Exception] = []
        try:
            self.ledger.run_callbacks()
        except Exception as error:
            errors.append(error)
        if self._membership.fatal is not None:
            errors.append(self._membership.fatal)
        if errors:
            raise errors[0]

    # Steps.

    def _start(self) -> ConsumerRuntime:
        if self._runtime is None:
            self._runtime = ConsumerRuntime(
                member=self._member,
                membership=self._membership,
                transport=self._transport,
                settled=self._settled,
                failed=self._errors.append,
                expired=self._expired,
                in_use=self.ledger.uses,
            )
        return self._runtime

    async def _wait_commit(self, commit: Commit, timeout_s: float | None) -> None:
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
        """Handle the final outcome of acknowledgements; the next poll returns renewed records again (CL-27)."""
        if ack.trace is not None:
            self.tracing.settled(ack, error)
        if ack.on_outcome is not None:
            ack.on_outcome(ack, error)
            return
        renewed = self.ledger.settled(ack, error)
        self._holding.settled(ack, error)
        if self._runtime is not None:
            self._runtime.metrics.acknowledgements += 1
            self._runtime.metrics.acknowledgement_errors += error is not None
            if renewed is not None:
                self._runtime.fetcher.renewed(renewed)

    def _expired(self, part: Delivered) -> None:
        self._holding.expired(part)
        if self._runtime is not None:
            self._runtime.metrics.expired_records += part.records

    def _raise_wakeup(self) -> None:
        if self._wakeup:
            self._wakeup = False
            raise WakeupError("wakeup() was called")
