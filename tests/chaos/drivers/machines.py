"""Nodes that have something of a machine's own: a clock that may be wrong. What `processes`, `proxy` and `namespaces`
share beyond the processes themselves."""

from __future__ import annotations

from tests.chaos import false_clock
from tests.chaos.drivers.local import LocalDeployment, known
from tests.chaos.false_clock import ClockFile


class MachinesDeployment(LocalDeployment):
    """See `tests.chaos.abilities`."""

    def _open_machines(self) -> None:
        self._clocks: dict[str, ClockFile] = {}

    # ---- clocks

    def wear_clock(self, name: str) -> None:
        """From its next start on the service runs under `tests.chaos.false_clock`."""
        known([name for name, _ in self._services()], name)
        if name not in self._clocks:
            self._clocks[name] = ClockFile(self.home / f"{name}.clock")
            child, enter = self._child(name), self._places[name].enter
            python, *words = child.command[len(enter) :]
            file = str(self._clocks[name].path)
            child.command = [*enter, python, false_clock.__file__, file, python, *words]

    def set_clock(self, name: str, *, wall_ms: int | None = None, rate_ppm: int | None = None) -> None:
        """Takes effect at once, in a process that was started after `wear_clock`."""
        known(self._clocks, name)
        self._clocks[name].tell(wall_ms=wall_ms, rate_ppm=rate_ppm)
