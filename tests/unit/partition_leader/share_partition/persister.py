"""A persister that stores like the share coordinator and responds by script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kip932.errors import (
    FencedStateEpochError,
    InvalidRequestError,
    KafkaError,
    RequestTimedOutError,
)
from kip932.failures import Failure, merge_failures
from kip932.ids import SharePartitionKey, TopicIdPartition
from kip932.state_batches import StateBatch, combine
from kip932.state_values import (
    ReadState,
    ReadSummary,
    StaleLeaderError,
    StateSpan,
    StateSummary,
    StoredState,
    WriteState,
)
from share_persister.values import PersisterError

OPERATION_TIMEOUT_S = 15.0
WHOLE = StateSpan(0, 2**62)


@dataclass(slots=True)
class Stored:
    """The state that the coordinator stores for one share-partition."""

    start: int
    state_epoch: int = 1
    fence: tuple[int, int] = (0, 0)
    ranks: dict[int, tuple[int, int]] = field(default_factory=dict)
    until_ms: dict[int, int] = field(default_factory=dict)
    dcc: int = 0
    failures: tuple[Failure, ...] = ()

    def take(self, at: int, rank: tuple[int, int], until_ms: int) -> None:
        """Keep an offset's highest (count, state, end of the delay) (SC-104, SC-115)."""
        if (*rank, until_ms) > (*self.ranks.get(at, (-1, -1)), self.until_ms.get(at, 0)):
            self.ranks[at], self.until_ms[at] = rank, until_ms

    def batches(self, span: StateSpan = WHOLE) -> tuple[StateBatch, ...]:
        """Return the stored state batches for the offsets in a span."""
        return tuple(
            combine(
                (),
                [
                    StateBatch(at, at, code, count, self.until_ms.get(at, 0))
                    for at, (count, code) in self.ranks.items()
                    if span.first_offset <= at <= span.last_offset
                ],
            )
        )


@dataclass(slots=True)
class Fault:
    """One scripted response: wait, perhaps apply the operation, then fail."""

    error: KafkaError | None = None
    unknown: bool = True
    applied: bool = False
    delay_s: float = 0.0


class ScriptedPersister:
    """Stores state as the share coordinator does (SC-104 … SC-107), and responds by script."""

    def __init__(self) -> None:
        self.stored: dict[SharePartitionKey, Stored] = {}
        self.missing: set[SharePartitionKey] = set()
        self.first_offset = 0
        self.faults: dict[str, list[Fault]] = {"read": [], "write": [], "summary": []}
        self.chance: Callable[[str], Fault | None] = lambda _: None
        self.held: dict[str, asyncio.Event] = {}
        self.calls: list[tuple[str, SharePartitionKey, int]] = []
        self.writes: list[WriteState] = []
        self.running = 0
        self.attempts = 1

    def hold(self, kind: str) -> None:
        """Leave operations of this kind without a response until `let_go` or the operation's time-out."""
        self.held[kind] = asyncio.Event()

    def let_go(self, kind: str) -> None:
        self.held.pop(kind).set()

    def fail(self, kind: str, error: KafkaError, **how: Any) -> None:
        self.faults[kind].append(Fault(error, **how))

    async def read(self, command: ReadState) -> StoredState:
        name, leader_epoch, generation = command
        self.calls.append(("read", name, generation))

        def apply() -> StoredState:
            if name in self.missing:
                raise PersisterError(InvalidRequestError("not initialised"), outcome_unknown=False)
            state = self.stored.setdefault(name, Stored(self.first_offset))
            self._fence(state, (leader_epoch, generation))
            return StoredState(state.state_epoch, state.start, state.batches(), failures=state.failures)

        result: StoredState = await self._perform("read", apply)
        return result

    async def write(self, write: WriteState) -> None:
        name = write.key
        self.calls.append(("write", name, write.generation))

        def apply() -> None:
            state = self.stored.setdefault(name, Stored(self.first_offset))
            self._fence(state, (write.leader_epoch, write.generation))
            if write.state_epoch != state.state_epoch:
                raise PersisterError(FencedStateEpochError("old state epoch"), outcome_unknown=False)
            self.writes.append(write)
            state.start = max(state.start, write.start_offset)
            for first, last, code, n, until_ms in write.batches:
                for at in range(first, last + 1):
                    state.take(at, (n, code), until_ms)
            state.ranks = {at: rank for at, rank in state.ranks.items() if at >= state.start}
            state.failures = merge_failures(state.failures, write.failures, state.start)

        await self._perform("write", apply)

    async def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        raise NotImplementedError

    async def delete(
        self, group_id: str, partitions: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        raise NotImplementedError

    async def summary(
        self, group_id: str, partitions: Collection[TopicIdPartition], delayed_at_ms: int | None = None
    ) -> dict[TopicIdPartition, StateSummary | PersisterError]:
        raise NotImplementedError

    async def read_summary(self, command: ReadSummary) -> StateSummary:
        name = command.key
        assert command.span is not None
        self.calls.append(("summary", name, 0))
        state = self.stored.get(name)
        if state is None or name in self.missing:
            return StateSummary()
        batches, (first, last) = state.batches(command.span), command.span
        failures = tuple(
            one._replace(first_offset=max(first, one.first_offset), last_offset=min(last, one.last_offset))
            for one in state.failures
            if one.first_offset <= last and first <= one.last_offset
        )

        def apply() -> StateSummary:
            return StateSummary(
                state.state_epoch, state.fence[0], state.start, state.dcc, batches=batches, failures=failures
            )

        result: StateSummary = await self._perform("summary", apply)
        return result

    def write_attempts(self, name: SharePartitionKey) -> int:
        return self.attempts

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _fence(self, state: Stored, pair: tuple[int, int]) -> None:
        if pair < state.fence:
            raise PersisterError(StaleLeaderError("fenced", state.fence[0]), False)
        state.fence = pair

    async def _perform(self, kind: str, apply: Callable[[], Any]) -> Any:
        self.running += 1
        try:
            fault = self.faults[kind].pop(0) if self.faults[kind] else self.chance(kind)
            if kind in self.held:
                try:
                    await asyncio.wait_for(self.held[kind].wait(), OPERATION_TIMEOUT_S)
                except TimeoutError:
                    raise PersisterError(RequestTimedOutError("no answer"), True) from None
            else:
                await asyncio.sleep(fault.delay_s if fault else 0)
            result = apply() if fault is None or fault.error is None or fault.applied else None
            if fault is not None and fault.error is not None:
                raise PersisterError(fault.error, fault.unknown)
            return result
        finally:
            self.running -= 1
