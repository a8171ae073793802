"""Faults of the machine for single nodes: a clock that can be wrong, a disk, a memory limit. Shared by the drivers
`processes`, `proxy` and `namespaces`."""

from __future__ import annotations

from contextlib import ExitStack

from tests.chaos import false_clock
from tests.chaos.drivers import cgroups, disks
from tests.chaos.drivers.cgroups import Cgroup
from tests.chaos.drivers.disks import Disk
from tests.chaos.drivers.local import LocalDeployment, known
from tests.chaos.false_clock import ClockFile


class MachinesDeployment(LocalDeployment):
    """Implements `tests.chaos.abilities`."""

    def _open_machines(self) -> None:
        self._clocks: dict[str, ClockFile] = {}
        self._disks: dict[str, Disk] = {}
        self._groups: dict[tuple[str, str], Cgroup] = {}
        cgroups.remove_leftovers(self.run.number)
        disks.remove_leftovers(self.run.number)
        self._stack.callback(self._remove_machines)

    def _remove_machines(self) -> None:
        """Remove disks and control groups; every process has ended by now."""
        with ExitStack() as everything:
            for remove in (*(disk.remove for disk in self._disks.values()), *(g.remove for g in self._groups.values())):
                everything.callback(remove)
        self._disks.clear()
        self._groups.clear()

    def start(self, name: str) -> None:
        """Start a node that is down, in its control groups from the start."""
        self._child(name).after_launch = lambda pid: self._join(name, pid)
        super().start(name)

    def _join(self, name: str, pid: int) -> None:
        for (node, _), group in self._groups.items():
            if node == name:
                group.add(pid)

    def _group(self, name: str, controller: str) -> Cgroup:
        """Return the control group of a node, with its process in it."""
        if (name, controller) not in self._groups:
            self._groups[name, controller] = Cgroup(self.run.number, name, controller)
        group = self._groups[name, controller]
        if pid := self._child(name).pid:
            group.add(pid)
        return group

    # ---- memory

    def limit_memory(self, name: str, mib: int) -> None:
        """Limit the memory that a node may use beyond what it has; 0 lifts the limit. Raises Unsupported."""
        self._group(name, "memory").limit_memory(mib)

    # ---- disks

    def put_on_disk(self, name: str, mib: int) -> None:
        """Mount a new disk over the data of a store that is down."""
        assert self.down(name), f"{name} runs"
        if name not in self._disks:
            self._disks[name] = Disk(self.run.number, self.home / name, mib)

    def fill_disk(self, name: str) -> None:
        """Fill the store's disk completely."""
        self._disks[name].fill()

    def free_disk(self, name: str) -> None:
        """Remove what `fill_disk` wrote."""
        self._disks[name].free()

    def throttle_disk(self, name: str, writes_per_s: int) -> None:
        """Limit the store's writes; 0 lifts the limit."""
        self._group(name, "blkio").limit_writes(self._disks[name].device, writes_per_s)

    # ---- clocks

    def wear_clock(self, name: str) -> ClockFile:
        """Run the service under `tests.chaos.false_clock` from its next start on; returns the file that sets its
        clocks."""
        known([name for name, _ in self._services()], name)
        if name not in self._clocks:
            self._clocks[name] = ClockFile(self.home / f"{name}.clock")
            child, enter = self._child(name), self._places[name].enter
            python, *words = child.command[len(enter) :]
            file = str(self._clocks[name].path)
            child.command = [*enter, python, false_clock.__file__, file, python, *words]
        return self._clocks[name]

    def set_clock(self, name: str, *, wall_ms: int | None = None, rate_ppm: int | None = None) -> None:
        """Set the clocks immediately, in a process that was started after `wear_clock`."""
        known(self._clocks, name)
        self._clocks[name].set(wall_ms=wall_ms, rate_ppm=rate_ppm)
