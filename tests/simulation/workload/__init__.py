"""Workloads: what clients do to a simulated cluster while faults strike it."""

from __future__ import annotations

from typing import Protocol


class Workload(Protocol):
    """One client or a crew of them, made over a world and a random source of its own.

    `name` is unique in a run. Leaving a workload out changes nothing of what the others draw.
    """

    name: str

    async def work(self) -> None:
        """Work until `world.phase` is no longer "work", then close what was opened. Bounded behind that."""
        ...

    async def drain(self) -> None:
        """With no fault any more: consume what is left, so that everything is finished at the end. May do nothing."""
        ...
