"""Workloads: what clients do to a simulated cluster while faults strike it."""

from __future__ import annotations

from typing import Protocol


class Workload(Protocol):
    """One client or several of them, created on a simulated world, with its own random source.

    `name` is unique in a run. If a workload is left out, the others still draw the same values.
    """

    name: str

    async def work(self) -> None:
        """Work until `world.phase` is no longer "work", then close everything that was opened, within a bounded
        time."""
        ...

    async def drain(self) -> None:
        """Consume the remaining records, without faults, so that everything is finished at the end. May do nothing."""
        ...
