"""A test bench for one share-partition core: a log to read from, a coordinator that responds, and short names for
events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from kip932.errors import KafkaError
from kip932.failures import Failure
from kip932.ids import STATE_ACQUIRED
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.share_partition import SharePartition
from shard_runtime.config.group_config import GroupConfig
from tests.support.batch_headers import Header

E = TypeVar("E")
LOCK_MS = 30_000


class Bench:
    """Drives a SharePartition by hand. Writes wait in `writes` until a test lets them succeed or fail."""

    def __init__(
        self,
        start: int = 0,
        *,
        batches: tuple[StateBatch, ...] = (),
        failures: tuple[Failure, ...] = (),
        resolved: bool = False,
        settings: GroupConfig | None = None,
        log: list[tuple[int, int]] | None = None,
        generation: int = 1,
        chance: Callable[[], float] = float,
    ) -> None:
        self.now = 1_000
        self.settings = settings or GroupConfig(lock_ms=LOCK_MS)
        self.log = [Header(*span) for span in log or []]
        self.core = SharePartition(generation, chance=chance)
        self.op = 0
        self.writes: list[fx.Persist] = []
        self.replies: dict[int, fx.Reply] = {}
        self.dead: list[fx.DeadLetter] = []
        self.seen: list[fx.Effect] = []
        self.do(ev.Initialized(7, start, batches, resolved, self.settings, failures))

    def do(self, event: ev.Event) -> list[fx.Effect]:
        effects = self.core.handle(event, self.now)
        self.seen += effects
        for effect in effects:
            if isinstance(effect, fx.Persist):
                assert not self.writes, "a second write left while one was outstanding (PL-705)"
                self.writes.append(effect)
            elif isinstance(effect, fx.Reply):
                self.replies[effect.op_id] = effect
            elif isinstance(effect, fx.DeadLetter):
                self.dead.append(effect)
        return effects

    # Fetching.

    def fetch(
        self,
        member: str = "M",
        *,
        max_records: int = 500,
        mode: int = 0,
        batch_size: int = 500,
        until: int | None = None,
        committed: bool = False,
        aborted: tuple[ev.AbortedTransaction, ...] = (),
    ) -> list[tuple[int, int, int]]:
        """Fetch as the host does; return the acquired ranges as plain tuples."""
        order = self.lock(1, max_records)
        if order is None:
            return []
        offset = order.first_offset
        read = tuple(b for b in self.log if b.last_offset >= offset and (until is None or b.base_offset <= until))
        last = read[-1].last_offset if read else -1
        event = ev.Acquire(
            1, member, mode, batch_size, max_records, offset, read, last, committed, aborted, self.settings
        )
        effects = self.do(event)
        return [(first, last, count) for first, last, count in one(effects, fx.Acquired).ranges]

    def lock(self, fetch_id: int, max_records: int = 500) -> fx.ReadLog | None:
        """Ask for the fetch lock; return what to read, or None if the fetch did not get it."""
        effects = self.do(ev.TakeFetchLock(fetch_id, max_records, self.settings))
        return next((effect for effect in effects if isinstance(effect, fx.ReadLog)), None)

    # Operations: each returns its id, under which `replies` has the reply.

    def ack(self, member: str, *batches: Any) -> int:
        """Acknowledge `batches`. Each is a first and a last offset, an acknowledge type or one for each offset, and
        optionally a delay or one for each offset, whether the delivery is taken back, and a reason."""
        self.op += 1
        listed: Any = [(first, last, *map(_listed, rest)) for first, last, *rest in batches]
        acks = tuple(ev.AckBatch(*one) for one in listed)
        self.do(ev.Acknowledge(self.op, member, acks, self.settings))
        return self.op

    def holds(self, member: str, offset: int) -> bool:
        batch = self.core._state.window.floor(offset)
        return batch is not None and offset <= batch.last and batch.lock_at(offset)[::2] == (STATE_ACQUIRED, member)

    def release(self, member: str, ranges: tuple[tuple[int, int, int], ...] | None = None) -> int:
        self.op += 1
        self.do(ev.Release(self.op, member, self.settings, ranges))
        return self.op

    def persisted(self) -> fx.Persist:
        write = self.writes.pop(0)
        self.do(ev.Persisted(write.write_id))
        return write

    def failed(self, error: KafkaError, unknown: bool = False) -> fx.Persist:
        write = self.writes.pop(0)
        self.do(ev.PersistFailed(write.write_id, error, unknown))
        return write

    def acked(self, member: str, *batches: Any) -> KafkaError | None:
        """Acknowledge and let every write succeed; return the error in the reply."""
        op = self.ack(member, *batches)
        while self.writes:
            self.persisted()
        return self.replies[op].error

    def pass_time(self, ms: int) -> list[fx.Effect]:
        self.now += ms
        return self.do(ev.Tick(self.settings))

    def set(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)

    # The core's state.

    @property
    def spso(self) -> int:
        return self.core.start_offset

    def records(self) -> list[tuple[int, int, int, int]]:
        return [plain(batch) for batch in self.core.overview().records]

    def error(self, op: int) -> KafkaError | None:
        return self.replies[op].error


def _listed(given: int | str | tuple[int, ...]) -> str | tuple[int, ...]:
    return (given,) if isinstance(given, int) else given


def one(effects: list[fx.Effect], kind: type[E]) -> E:
    """Return the one effect of this kind."""
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, f"expected one {kind.__name__} in {effects}"
    return found[0]


def plain(batch: StateBatch) -> tuple[int, int, int, int]:
    return batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count


def written(write: fx.Persist) -> tuple[int, int, list[tuple[int, int, int, int]]]:
    """Return a write's start_offset, delivery_complete_count and state batches, in the form of the specification's
    tables."""
    return write.start_offset, write.delivery_complete_count, [plain(batch) for batch in write.state_batches]
