"""An in-memory directory of shards, whose hosts respond when a test lets them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from kip932.errors import KafkaError, NotCoordinatorError
from shard_runtime.cluster.owners import OwnerAddress
from share_coordinator.core.commands import ShareCommand
from share_coordinator.core.shard import ShareStateShard
from share_coordinator.dispatch import Dispatcher
from share_coordinator.metrics import CoordinatorMeter
from share_coordinator.service import ShareCoordinatorService
from tests.support.clocks import LoopClock
from tests.support.share_state import COLD_MS, Metadata

SHARDS = 4


class Host:
    """Decides and replays at once, as ShardHost does; also responds at once, unless `held`."""

    def __init__(self, metadata: Metadata, serves: Callable[[], bool]) -> None:
        self.states = ShareStateShard(metadata, 100, COLD_MS)
        self._serves = serves
        self.commands: list[ShareCommand] = []
        self.held = False
        self.refusal: KafkaError | None = None
        self._waiting: list[tuple[asyncio.Future[object], object]] = []

    @property
    def shard(self) -> ShareStateShard | None:
        return self.states if self._serves() else None

    def post(self, command: ShareCommand) -> asyncio.Future[object]:
        if not self._serves():
            raise NotCoordinatorError
        if self.refusal is not None:
            raise self.refusal
        self.commands.append(command)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            decision = self.states.decide(command, 0, 0)
        except KafkaError as error:
            self._waiting.append((future, error))
        else:
            for record in decision.records:
                self.states.replay(record)
            self._waiting.append((future, decision.reply))
        if not self.held:
            self.commit()
        return future

    def commit(self) -> None:
        """Confirm writes as the store would, and so complete the waiting commands."""
        for future, reply in self._waiting:
            if not future.done():
                if isinstance(reply, KafkaError):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        self._waiting.clear()

    def lose(self) -> None:
        """Refuse the waiting commands, as if the shard had been lost to another node."""
        for future, _ in self._waiting:
            future.set_exception(NotCoordinatorError())
        self._waiting.clear()


class Directory:
    """All shards of one coordinator process; those in `elsewhere` are owned by another node."""

    def __init__(self, shards: int = SHARDS) -> None:
        self.metadata = Metadata()
        self.elsewhere: dict[int, OwnerAddress] = {}
        self.hosts = [Host(self.metadata, partial(self._serves, index)) for index in range(shards)]

    def _serves(self, shard_index: int) -> bool:
        return shard_index not in self.elsewhere

    def owner(self, shard_index: int) -> OwnerAddress | None:
        return self.elsewhere.get(shard_index)


class Meter(CoordinatorMeter):
    """Counts its calls."""

    def __init__(self) -> None:
        self.written = self.raises = self.fences = self.refused = 0

    def wrote(self, keys: int, elapsed_ms: int) -> None:
        self.written += keys

    def raised(self, keys: int) -> None:
        self.raises += keys

    def fenced(self, keys: int) -> None:
        self.fences += keys

    def implausible(self, keys: int) -> None:
        self.refused += keys


class CoordinatorProcess:
    """A coordinator with its dispatcher and service."""

    def __init__(self, write_timeout_ms: int = 5_000) -> None:
        self.directory = Directory()
        self.meter = Meter()
        self.dispatcher = Dispatcher(
            self.directory.hosts, self.directory.owner, LoopClock(), self.meter, write_timeout_ms
        )
        self.dispatcher.active = True
        self.service = ShareCoordinatorService(self.dispatcher)
