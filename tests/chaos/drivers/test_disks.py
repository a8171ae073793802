"""A store's small disk contains the folder's files, can fill up, and is removed with its run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.deployment import Unsupported
from tests.chaos.drivers import disks
from tests.chaos.drivers.disks import Disk
from tests.chaos.drivers.runs import Run


def disk(run: Run, folder: Path) -> Disk:
    """Return a disk of 8 MiB over a folder with one file, or skip with the reason."""
    folder.mkdir()
    (folder / "kept").write_text("kept")
    try:
        return Disk(run.number, folder, 8)
    except Unsupported as reason:
        pytest.skip(str(reason))


def test_a_full_disk_takes_nothing_until_it_is_freed(tmp_path: Path) -> None:
    with Run() as run:
        made = disk(run, tmp_path / "store-0")
        try:
            assert (tmp_path / "store-0" / "kept").read_text() == "kept"
            made.fill()
            with pytest.raises(OSError, match="No space left"):
                (tmp_path / "store-0" / "more").write_bytes(b"x" * 8_192)
            made.free()
            (tmp_path / "store-0" / "more").write_bytes(b"x" * 8_192)
        finally:
            made.remove()
    assert not os.path.ismount(tmp_path / "store-0")


def test_what_a_killed_run_left_mounted_is_unmounted_and_what_a_living_run_has_is_not(tmp_path: Path) -> None:
    with Run() as living, Run() as dead:
        kept, left = tmp_path / "a", tmp_path / "b"
        made = disk(living, kept)
        disk(dead, left)
        dead.close()
        disks.remove_leftovers(0)
        assert (os.path.ismount(kept), os.path.ismount(left)) == (True, False)
        made.remove()
