"""A user who experiments with back-offs and maximum delays, changing them while a group works."""

from __future__ import annotations

from random import Random

from tests.simulation.shape import DELAYS_MAX_MS
from tests.simulation.workload import configs
from tests.simulation.workload.cast import DELAY_MAX, Cast
from tests.simulation.workload.topics import admin_of
from tests.simulation.workload.witness import Witness

_RETRY = "sharegroups.retry."
#: Short enough that the last delay ends while a group is drained.
_CONFIGS = (
    (f"{_RETRY}backoff.initial.ms", ("0", "150", "600", "600")),
    (f"{_RETRY}backoff.multiplier", ("1", "2", "3")),
    (f"{_RETRY}backoff.max.ms", ("400", "3000")),
    (f"{_RETRY}backoff.jitter", ("0", "0.1", "0.5")),
    (f"{_RETRY}delayed.max", ("1", "5", "5000")),
    (DELAY_MAX, DELAYS_MAX_MS),
)


class Tuner:
    """Changes one or two of these configs of a group at a time."""

    def __init__(self, cast: Cast, rng: Random, name: str) -> None:
        self.name = name
        self._cast = cast
        self._rng = rng
        self._witness = Witness(cast.world, name)

    async def work(self) -> None:
        """From time to time change a config, until the work is over."""
        if not await self._cast.topic(next(iter(self._cast.topics))):
            return
        async with admin_of(self._witness) as admin:
            while await self._cast.pause(self._rng.uniform(0.2, 2)):
                group = self._rng.choice(self._cast.groups)
                chosen = self._rng.sample(_CONFIGS, self._rng.choice([1, 2]))
                changes = tuple((name, self._rng.choice(values)) for name, values in chosen)
                await configs.alter(self._witness, admin, group.name, changes)

    async def drain(self) -> None:
        """Do nothing: the last values stay in effect."""
