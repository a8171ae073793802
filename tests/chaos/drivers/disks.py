"""A small disk for one store: a file with a file system, mounted over the store's data folder.

The file's name contains the number of the run, so that a later run finds and removes what a killed run left mounted.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.chaos.deployment import Unsupported
from tests.chaos.drivers.iptables import answer, command
from tests.chaos.drivers.runs import if_ownerless

_PREFIX: Final = "sgchaos"
_FILLER: Final = "filler"
_LOOPS: Final = Path("/sys/block")
_BLOCKS: Final = (1 << 20, 1 << 12)


class Disk:
    """A disk mounted over `folder`, with the folder's files on it. Raises Unsupported if this process may not mount."""

    def __init__(self, number: int, folder: Path, mib: int) -> None:
        self._folder = folder
        image = folder.parent / f"{_PREFIX}{number}-{folder.name}.img"
        staged = folder.parent / f"{folder.name}.staged"
        image.touch()
        os.truncate(image, mib << 20)
        try:
            command(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)])
            staged.mkdir()
            command(["mount", "-o", "loop", str(image), str(staged)])
            shutil.copytree(folder, staged, dirs_exist_ok=True)
            command(["mount", "--move", str(staged), str(folder)])
        except AssertionError as error:
            answer(["umount", str(staged)])
            raise Unsupported(f"needs a disk of its own: {error}") from error
        staged.rmdir()
        self.device = f"{os.major(device := folder.stat().st_dev)}:{os.minor(device)}"

    def fill(self) -> None:
        """Fill the disk even while the store writes: first with large blocks, then with small ones, to the last
        byte."""
        with (self._folder / _FILLER).open("wb") as filler:
            size = 0
            for block in _BLOCKS:
                with _until_full():
                    while True:
                        os.posix_fallocate(filler.fileno(), size, block)
                        size += block

    def free(self) -> None:
        """Remove what `fill` wrote."""
        (self._folder / _FILLER).unlink(missing_ok=True)

    def remove(self) -> None:
        """Unmount it once it is no longer in use."""
        command(["umount", str(self._folder)])


@contextmanager
def _until_full() -> Iterator[None]:
    """Suppress the error of a full disk; every other error is raised."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def remove_leftovers(mine: int) -> None:
    """Unmount the disks of ended runs, and those of an earlier holder of the number `mine`."""
    for device, number in _disks():
        if number == mine:
            command(["umount", device])
            continue
        with if_ownerless(number) as ownerless:
            if ownerless:
                answer(["umount", device])  # one in use belongs to a run in another network


def _disks() -> list[tuple[str, int]]:
    """Return every loop device with one of our files, and the number in the file's name."""
    found = []
    for backing in sorted(_LOOPS.glob("loop*/loop/backing_file")):
        match = re.search(rf"/{_PREFIX}(\d+)-[^/]*\.img", backing.read_text())
        if match:
            found.append((f"/dev/{backing.parts[3]}", int(match.group(1))))
    return found
