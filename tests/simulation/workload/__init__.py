"""Workloads: what clients do to a simulated cluster while faults strike it."""

from __future__ import annotations

from typing import Protocol


class Workload(Protocol):
    """One client or a crew of them, created over a world with a random source of its own.

    `name` is unique in a run. Leaving a workload out does not change what the others draw.
    """

    name: str

    async def work(self) -> None:
        """Work until `world.phase` is no longer "work", then close what was opened. The time after that is bounded."""
        ...

    async def drain(self) -> None:
        """Consume the remaining records, without faults, so that everything is finished at the end. May do nothing."""
        ...
