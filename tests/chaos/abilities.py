"""What only some drivers can do to a node's machine; for the others there is a reason."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tests.chaos.deployment import Deployment, Unsupported


@runtime_checkable
class HasClocks(Protocol):
    """Services whose clocks may be wrong, each by itself."""

    def wear_clock(self, name: str) -> None:
        """Give a service that is down, or started next, a clock that `set_clock` moves; it runs true until then."""

    def set_clock(self, name: str, *, wall_ms: int | None = None, rate_ppm: int | None = None) -> None:
        """Put the wall clock so far off, and let all clocks run so fast; None leaves it as it is."""


@runtime_checkable
class HasDisks(Protocol):
    """Stores with a small disk of their own."""

    def put_on_disk(self, name: str, mib: int) -> None:
        """Move the data of a store that is down to a new disk of this size. Raises Unsupported without the right to."""

    def fill_disk(self, name: str) -> None:
        """Leave no room on its disk."""

    def free_disk(self, name: str) -> None:
        """Take away what filled it."""

    def throttle_disk(self, name: str, writes_per_s: int) -> None:
        """Let a store that runs write so often only; 0: as often as the disk can."""


def clocks_of(deployment: Deployment) -> HasClocks:
    """The deployment, as one whose services have clocks. Raises Unsupported."""
    if not isinstance(deployment, HasClocks):
        raise Unsupported(f"nodes of the driver {deployment.driver} have the clock of this machine, all the same")
    return deployment


def disks_of(deployment: Deployment) -> HasDisks:
    """The deployment, as one whose stores may have disks. Raises Unsupported."""
    if not isinstance(deployment, HasDisks):
        raise Unsupported(f"stores of the driver {deployment.driver} have no disk of their own")
    return deployment
