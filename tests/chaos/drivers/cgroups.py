"""A control group for one node: limits its memory and its writes per second to a disk.

Both versions of the kernel's interface are supported. A group's name starts with the number of the run, so that
leftovers of a killed run can be found and removed; a group can be removed only once its processes have ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Final

from tests.chaos.deployment import Unsupported
from tests.chaos.drivers.runs import if_ownerless

ROOT: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "sgchaos"
_MIB: Final = 1 << 20
_NO_LIMIT_V1: Final = "-1"
_GONE_WAIT_S: Final = 10.0


class Cgroup:
    """A group, created when first needed. Raises Unsupported if this process may not create one."""

    def __init__(self, number: int, node: str, controller: str, root: Path = ROOT) -> None:
        self._v1 = (root / controller).is_dir()
        parent = root / controller if self._v1 else root
        self.folder = parent / f"{_PREFIX}{number}-{node}"
        try:
            if not self._v1:
                _delegate(root, "io" if controller == "blkio" else controller)
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise Unsupported(f"needs control groups: {error}") from error

    def add(self, pid: int) -> None:
        """Add a process; memory that it already has stays charged to its previous group."""
        self._write("cgroup.procs", str(pid))

    def limit_memory(self, mib: int) -> None:
        """Limit the memory beyond what its processes already had; 0 lifts the limit."""
        if self._v1:
            self._write("memory.limit_in_bytes", str(mib * _MIB) if mib else _NO_LIMIT_V1)
        else:
            self._write("memory.max", str(mib * _MIB) if mib else "max")

    def limit_writes(self, device: str, per_s: int) -> None:
        """Limit the writes per second to a device, MAJOR:MINOR; 0 lifts the limit."""
        if self._v1:
            self._write("blkio.throttle.write_iops_device", f"{device} {per_s}")
        else:
            self._write("io.max", f"{device} wiops={per_s or 'max'}")

    def remove(self) -> None:
        """Remove it once its processes have ended."""
        remove(self.folder)

    def _write(self, file: str, words: str) -> None:
        try:
            (self.folder / file).write_text(words)
        except OSError as error:
            raise Unsupported(f"needs control groups: {file} of {self.folder.name}: {error}") from error


def _delegate(root: Path, controller: str) -> None:
    """Enable the controller for groups below the root, as version 2 requires."""
    if controller not in (root / "cgroup.subtree_control").read_text().split():
        (root / "cgroup.subtree_control").write_text(f"+{controller}")


def remove_leftovers(mine: int, root: Path = ROOT) -> None:
    """Remove the groups of runs that have ended, and those that an earlier holder of the number `mine` left."""
    for parent in (root, root / "memory", root / "blkio"):
        for folder in sorted(parent.glob(f"{_PREFIX}*-*")):
            number = int(found.group(1)) if (found := re.match(rf"{_PREFIX}(\d+)-", folder.name)) else 0
            if number == mine:
                remove(folder)
            elif number:
                with if_ownerless(number) as ownerless, contextlib.suppress(OSError):  # EBUSY: still in use
                    if ownerless:
                        os.rmdir(folder)


def remove(folder: Path) -> None:
    """Remove one group, whose last process may still be ending. Raises OSError if that fails."""
    deadline = time.monotonic() + _GONE_WAIT_S
    while folder.is_dir():
        try:
            os.rmdir(folder)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
