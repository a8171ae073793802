"""Control groups limit memory and writes in both versions of the kernel's interface, and none is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.deployment import Unsupported
from tests.chaos.drivers import cgroups
from tests.chaos.drivers.cgroups import Cgroup
from tests.chaos.drivers.runs import Run

_EATS: Final = "import sys; sys.stdin.readline(); kept = b'x' * (64 << 20); print(len(kept))"


def written(group: Cgroup) -> dict[str, str]:
    """Return the contents of a group's files."""
    return {path.name: path.read_text() for path in group.folder.iterdir()}


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    for controller in ("memory", "blkio"):
        (tmp_path / controller).mkdir()
    memory, writes = Cgroup(7, "node-0", "memory", tmp_path), Cgroup(7, "node-0", "blkio", tmp_path)
    memory.limit_memory(3)
    writes.limit_writes("7:0", 10)
    assert written(memory) == {"memory.limit_in_bytes": str(3 << 20)}
    assert written(writes) == {"blkio.throttle.write_iops_device": "7:0 10"}
    memory.limit_memory(0)
    writes.limit_writes("7:0", 0)
    assert written(memory) == {"memory.limit_in_bytes": "-1"}
    assert written(writes) == {"blkio.throttle.write_iops_device": "7:0 0"}


def test_version_2_has_one_folder_and_the_root_says_what_holds_below_it(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("memory")
    memory = Cgroup(7, "node-0", "memory", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "memory"
    writes = Cgroup(7, "node-0", "blkio", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+io"
    assert memory.folder == writes.folder == tmp_path / "sgchaos7-node-0"
    memory.limit_memory(3)
    writes.limit_writes("7:0", 10)
    writes.add(17)
    assert written(memory) == {"memory.max": str(3 << 20), "io.max": "7:0 wiops=10", "cgroup.procs": "17"}
    memory.limit_memory(0)
    writes.limit_writes("7:0", 0)
    assert written(memory) == {"memory.max": "max", "io.max": "7:0 wiops=max", "cgroup.procs": "17"}


def test_ownerless_groups_are_removed_and_those_of_a_living_run_are_not(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    with Run() as living:
        kept = Cgroup(living.number, "node-0", "memory", tmp_path)
        with Run() as dead:
            left = Cgroup(dead.number, "node-0", "memory", tmp_path)
            mine = Cgroup(251, "node-0", "memory", tmp_path)
        cgroups.remove_leftovers(251, tmp_path)
        assert (kept.folder.exists(), left.folder.exists(), mine.folder.exists()) == (True, False, False)


def test_where_no_group_can_be_made_the_reason_is_given(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"^needs control groups: "):
        Cgroup(7, "node-0", "memory", tmp_path / "nowhere")


def test_a_process_that_needs_more_than_its_group_may_have_is_killed() -> None:
    with Run() as run:
        try:
            group = Cgroup(run.number, "eater-0", "memory")
            group.limit_memory(16)
        except Unsupported as reason:
            pytest.skip(str(reason))
        try:
            words = [sys.executable, "-c", _EATS]
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as eater:
                group.add(eater.pid)
                eater.communicate("go\n", timeout=60)
            assert eater.returncode == -9
        finally:
            group.remove()
    assert not group.folder.exists()
