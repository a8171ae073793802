"""Faults of a node's machine that only some drivers can cause; the others raise Unsupported with the reason."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tests.chaos.deployment import Deployment, Unsupported


@runtime_checkable
class HasClocks(Protocol):
    """Services whose clocks can be set wrong, individually."""

    def wear_clock(self, name: str) -> None:
        """Give a service that is down, or not yet started, a clock that `set_clock` can change; it is right until
        then."""

    def set_clock(self, name: str, *, wall_ms: int | None = None, rate_ppm: int | None = None) -> None:
        """Set the wall clock's offset and the rate of all clocks; None leaves either as it is."""


@runtime_checkable
class HasDisks(Protocol):
    """Stores that can have a separate, small disk."""

    def put_on_disk(self, name: str, mib: int) -> None:
        """Move the data of a store that is down to a new disk of this size. Raises Unsupported without permission to
        mount."""

    def fill_disk(self, name: str) -> None:
        """Fill the store's disk completely."""

    def free_disk(self, name: str) -> None:
        """Remove what `fill_disk` wrote."""

    def throttle_disk(self, name: str, writes_per_s: int) -> None:
        """Limit the writes of a running store; 0 lifts the limit."""


def clocks_of(deployment: Deployment) -> HasClocks:
    """Return the deployment as one whose services have clocks. Raises Unsupported."""
    if not isinstance(deployment, HasClocks):
        raise Unsupported(f"nodes of the driver {deployment.driver} have the clock of this machine, all the same")
    return deployment


def disks_of(deployment: Deployment) -> HasDisks:
    """Return the deployment as one whose stores can have disks. Raises Unsupported."""
    if not isinstance(deployment, HasDisks):
        raise Unsupported(f"stores of the driver {deployment.driver} have no disk of their own")
    return deployment
