"""Passes a request's commands to their shards' hosts, and collects the outcomes (SC-5, SC-12, SC-14, SC-63, P-2).

All keys of one shard go to its host as one command, so that they share one flush; shards do not wait for each other.
It handles values only; `service` translates the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

import structlog

from kip932.errors import CoordinatorNotAvailableError, FencedError, KafkaError, NotCoordinatorError, UnknownServerError
from kip932.ids import SharePartitionKey, state_shard
from kip932.state_values import (
    MovedStateError,
    ReadState,
    StateCommand,
    StateOutcome,
    StoredState,
    TopicStarts,
    WriteState,
)
from shard_runtime.clock import Clock
from shard_runtime.cluster.owners import OwnerAddress
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.tracing import failed, tracing
from share_coordinator.core.commands import CommandBatch, DeleteTopics, ListStarts, Removed, ShareCommand
from share_coordinator.core.plausible import ImplausibleError
from share_coordinator.metrics import CoordinatorMeter

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = structlog.get_logger(__name__)

#: Attempts to tombstone one shard's keys of deleted topics, with a pause of 1 s, 2 s, … 30 s after a refused one.
_DELETE_ATTEMPTS: Final = 10
_DELETE_PAUSE_MAX_S: Final = 30


class StateHost(Protocol):
    """One shard's host, as the dispatcher sees it; `ShardHost` is one."""

    @property
    def shard(self) -> object | None:
        """The shard while it is owned and replayed here, otherwise None, and then the host refuses commands itself."""
        ...

    def post(self, command: ShareCommand) -> asyncio.Future[object]:
        """Decide now; the future gets the reply, or a KafkaError, once the records are durable. Raises KafkaError when
        the command is not accepted at all."""
        ...


#: Returns a shard's owner by the hints, for NOT_COORDINATOR responses; None when it is not known (CM-14).
Owner = Callable[[int], OwnerAddress | None]


class Begun(NamedTuple):
    """Commands passed to their shards. `parts`: indexes of commands, with their shard's future or its refusal."""

    commands: Sequence[StateCommand]
    started_ms: int
    parts: Sequence[tuple[list[int], asyncio.Future[object] | KafkaError]]

    def futures(self) -> list[asyncio.Future[object]]:
        """Return the futures of the shards' replies."""
        return [result for _, result in self.parts if isinstance(result, asyncio.Future)]

    def leave(self) -> None:
        """Stop waiting. Nothing is rolled back: the records may still commit (SC-63)."""
        for future in self.futures():
            future.cancel()


class Dispatcher:
    """Runs commands on their shards: those of other nodes' requests by `begin` and `finish`, those of the persister in
    the same process by `run_one` (P-12).

    `hosts` has a host for every shard (SC-3); the hosts of the shards that this process owns serve. `active`: whether
    requests are served at all; while False, each gets COORDINATOR_NOT_AVAILABLE (SC-5). `write_timeout_ms` is
    `share.coordinator.write.timeout.ms`.
    """

    def __init__(
        self, hosts: Sequence[StateHost], owner: Owner, clock: Clock, meter: CoordinatorMeter, write_timeout_ms: int
    ) -> None:
        self.active = False
        self._hosts = hosts
        self._owner = owner
        self._clock = clock
        self._meter = meter
        self._write_timeout_ms = write_timeout_ms
        self._faults = RateLimitedLog(log)

    def serves(self, shard: int) -> bool:
        """Return whether requests for the shard are served here."""
        return self.active and self._hosts[shard].shard is not None

    def served(self) -> Collection[int]:
        """Return the shards that are owned and replayed here."""
        return [index for index, host in enumerate(self._hosts) if host.shard is not None]

    def owner(self, key: SharePartitionKey) -> OwnerAddress | None:
        """Return the owner of the key's shard by the hints."""
        return self._owner(state_shard(key, len(self._hosts)))

    def begin(self, commands: Sequence[StateCommand]) -> Begun:
        """Pass commands to their shards, now and in this order; a key may appear twice. Pass the result to `finish`."""
        parts: list[tuple[list[int], asyncio.Future[object] | KafkaError]] = [
            (
                indexes,
                self._post(shard, _together(commands, indexes)) if self.active else _stopped(),
            )
            for shard, indexes in self._plan(commands)
        ]
        return Begun(commands, self._clock.now_ms(), parts)

    async def finish(self, begun: Begun) -> list[StateOutcome]:
        """Wait for the outcomes of the commands begun; return them in the same order. After `write_timeout_ms`, a
        command without an outcome gets the error for a write that the store did not confirm."""
        outcomes: list[StateOutcome] = [None] * len(begun.commands)
        waiting = [future for future in begun.futures() if not future.done()]
        try:
            if waiting:
                left_ms = max(begun.started_ms + self._write_timeout_ms - self._clock.now_ms(), 0)
                await asyncio.wait(waiting, timeout=left_ms / 1000)
            for indexes, result in begun.parts:
                for index, outcome in zip(indexes, self._collect(result, len(indexes)), strict=True):
                    outcomes[index] = outcome
        finally:
            begun.leave()
        self._report(begun.commands, outcomes, self._clock.now_ms() - begun.started_ms)
        return outcomes

    async def run_one(self, command: StateCommand, within_ms: int) -> StateOutcome:
        """Run one command and wait for its outcome, for at most `within_ms`. A refusal has the owner's address, if it
        is known."""
        if not tracing.on or not isinstance(command, WriteState) or command.trace is None:
            return await self._run_one(command, within_ms)
        with tracing.step("WriteShareGroupState", command.trace) as span:
            outcome = await self._run_one(command, within_ms, span)
            if isinstance(outcome, KafkaError):
                failed(span, outcome)
            return outcome

    async def _run_one(self, command: StateCommand, within_ms: int, span: Span | None = None) -> StateOutcome:
        started_ms = self._clock.now_ms()
        shard = state_shard(command.key, len(self._hosts))
        outcome: StateOutcome
        timer = None
        try:
            post = self._hosts[shard].post
            result = post(command) if span is None else tracing.within(span, post, command)
            limit_ms = min(within_ms, self._write_timeout_ms)
            timer = asyncio.get_running_loop().call_later(limit_ms / 1000, _expire, result, limit_ms)
            outcome = cast(StateOutcome, await result)
        except KafkaError as error:
            # Drop the traceback, which refers to this frame and so makes a reference cycle with its `outcome`.
            outcome = self._with_owner(shard, error.with_traceback(None))
        except Exception as error:
            outcome = UnknownServerError()
            if timer is None:
                self._submission_failed(shard, error)
            else:
                name = type(command).__name__
                self._faults.error("shard_request_failed", key=(name, type(error)), command=name, exc_info=error)
        finally:
            if timer is not None:
                timer.cancel()
        self._report((command,), (outcome,), self._clock.now_ms() - started_ms)
        return outcome

    async def topic_starts(self, topic_ids: frozenset[bytes]) -> Mapping[int, TopicStarts | KafkaError]:
        """Return every group's start offsets in these topics, by shard served here (SC-116). Each shard's result
        arrives within `write_timeout_ms` and is either complete, with durable offsets only, or an error."""
        asked: dict[int, asyncio.Future[object] | KafkaError] = {}
        waiting: list[asyncio.Future[object]] = []
        try:
            for shard in self.served() if self.active else ():
                result = asked[shard] = self._post(shard, ListStarts(topic_ids))
                if isinstance(result, asyncio.Future):
                    waiting.append(result)
                await asyncio.sleep(0)  # each shard goes through all its keys
            if waiting:
                await asyncio.wait(waiting, timeout=self._write_timeout_ms / 1000)
            found = {shard: self._collect(result, 1)[0] for shard, result in asked.items()}
        finally:
            for future in waiting:
                future.cancel()
        return cast("Mapping[int, TopicStarts | KafkaError]", found)

    async def delete_topics(self, topic_ids: frozenset[bytes]) -> int:
        """Tombstone every key of deleted topics on the shards served here (SC-80). Returns how many.

        A shard that loads or moves in the meantime is swept after its next replay.
        """
        return sum([await self._delete_topics(shard, topic_ids) for shard in self.served()])

    async def _delete_topics(self, shard: int, topic_ids: frozenset[bytes]) -> int:
        removed = failures = 0
        while failures < _DELETE_ATTEMPTS and self._hosts[shard].shard is not None:
            try:
                async with asyncio.timeout(self._write_timeout_ms / 1000):
                    reply = cast(Removed, await self._hosts[shard].post(DeleteTopics(topic_ids)))
            except (KafkaError, TimeoutError) as error:
                failures += 1
                log.warning(
                    "deleted_topic_state_kept",
                    shard=shard,
                    cause=str(error),
                    attempt=failures,
                    effect="the state of deleted topics stays for now",
                )
                await asyncio.sleep(min(2 ** (failures - 1), _DELETE_PAUSE_MAX_S))
                continue
            removed += reply.keys
            if not reply.remaining:
                break
        return removed

    def _plan(self, commands: Sequence[StateCommand]) -> Iterable[tuple[int, list[int]]]:
        """Group commands by shard, as indexes, each group with different keys; repeats go into later ones (SC-13)."""
        plan: list[tuple[int, list[int]]] = []
        last: dict[int, tuple[list[int], set[SharePartitionKey]]] = {}
        for index, command in enumerate(commands):
            shard = state_shard(command.key, len(self._hosts))
            found = last.get(shard)
            if found is None or command.key in found[1]:
                found = last[shard] = ([], set())
                plan.append((shard, found[0]))
            found[0].append(index)
            found[1].add(command.key)
        return plan

    def _post(self, shard: int, command: ShareCommand) -> asyncio.Future[object] | KafkaError:
        try:
            return self._hosts[shard].post(command)
        except KafkaError as error:
            return error
        except Exception as error:
            self._submission_failed(shard, error)
            return UnknownServerError()

    def _submission_failed(self, shard: int, error: Exception) -> None:
        self._faults.error("shard_submission_failed", key=shard, shard=shard, exc_info=error)

    def _with_owner(self, shard: int, error: KafkaError) -> KafkaError:
        owner = self._owner(shard) if isinstance(error, NotCoordinatorError) else None
        return error if owner is None else MovedStateError(error.message, f"{owner.host}:{owner.port}")

    def _collect(self, result: asyncio.Future[object] | KafkaError, size: int) -> Sequence[StateOutcome]:
        if isinstance(result, KafkaError):
            return [result] * size
        if not result.done():
            return [_unconfirmed(self._write_timeout_ms)] * size
        if result.cancelled():
            return [NotCoordinatorError("the shard was given up; look up its owner")] * size
        failure = result.exception()
        if failure is not None:
            return [failure if isinstance(failure, KafkaError) else UnknownServerError()] * size
        reply = result.result()
        return [cast(StateOutcome, reply)] if size == 1 else cast("tuple[StateOutcome, ...]", reply)

    def _report(self, commands: Sequence[StateCommand], outcomes: Sequence[StateOutcome], elapsed_ms: int) -> None:
        if not commands:
            return
        if isinstance(commands[0], WriteState):
            self._meter.wrote(len(commands), elapsed_ms)
        elif isinstance(commands[0], ReadState):
            self._meter.raised(sum(1 for outcome in outcomes if isinstance(outcome, StoredState) and outcome.recorded))
        fenced = sum(1 for outcome in outcomes if isinstance(outcome, FencedError))
        if fenced:
            self._meter.fenced(fenced)
        implausible = [outcome for outcome in outcomes if isinstance(outcome, ImplausibleError)]
        if implausible:
            self._meter.implausible(len(implausible))
            name = type(commands[0]).__name__
            self._faults.error(
                "implausible_value_refused",
                cause="no correct node sends such a value",
                key=(name, ImplausibleError),
                sums={"keys": len(implausible)},
                command=name,
                first_error=implausible[0].message,
            )


def _together(commands: Sequence[StateCommand], indexes: Sequence[int]) -> ShareCommand:
    return commands[indexes[0]] if len(indexes) == 1 else CommandBatch(tuple(commands[index] for index in indexes))


def _stopped() -> CoordinatorNotAvailableError:
    return CoordinatorNotAvailableError("the share coordinator is not running on this node")


def _expire(result: asyncio.Future[object], limit_ms: int) -> None:
    """End the wait with an error. Nothing is rolled back: the records may still commit (SC-63)."""
    if not result.done():
        result.set_exception(_unconfirmed(limit_ms))


def _unconfirmed(limit_ms: int) -> CoordinatorNotAvailableError:
    return CoordinatorNotAvailableError(f"the store did not confirm within {limit_ms} ms; try again")
