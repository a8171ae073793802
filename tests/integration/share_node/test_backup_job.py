"""The scripts of the Kubernetes component `backup` with a real store and a real volume that is full."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroups import Admin, NewTopic, Producer
from tests.chaos.deployment import Unsupported
from tests.chaos.drivers.disks import Disk
from tests.support.node import QUICK, Cluster

SCRIPTS = Path(__file__).parents[3] / "deploy" / "kubernetes" / "components" / "backup"
BOUND_S = 120


class Job:
    """The two jobs, on the volume `backups`."""

    def __init__(self, folder: Path, store: str) -> None:
        self.backups = folder / "backups"
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SHAREGROUPS_")},
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "SHAREGROUPS_STORE_URL": store,
            "BACKUPS": str(self.backups),
            "DRILL": str(folder / "drill"),
            "KEEP": "2",
        }
        for each in (self.backups, folder / "bin", folder / "drill"):
            each.mkdir()
        program = folder / "bin" / "sharegroups"
        program.write_text(
            f'#!/bin/sh\nexec {sys.executable} -c "from sharegroups.cli.main import main; main()" "$@"\n'
        )
        program.chmod(0o755)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program as in the job's container."""
        return subprocess.run(words, env=self._environ, capture_output=True, text=True, timeout=BOUND_S, check=False)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run one of the scripts."""
        return self.command("sh", str(SCRIPTS / script))

    @property
    def names(self) -> list[str]:
        """The names of the backups, oldest first."""
        return sorted(path.name for path in self.backups.glob("20*Z"))

    def drilled(self) -> subprocess.CompletedProcess[str]:
        """Run the drill in an empty folder, as each of its pods has one."""
        drill = self.backups.parent / "drill"
        shutil.rmtree(drill)
        drill.mkdir()
        return self.run("drill.sh")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with Cluster(QUICK) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("jobs", 2)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(100):
                producer.produce("jobs", b"%d" % number)
            producer.flush()
        yield Job(tmp_path, cluster.store_url)


@pytest.mark.rule("CM-235")
def test_two_are_kept_and_the_newest_is_restored_into_a_store_of_its_own(job: Job) -> None:
    names = []
    for _ in range(3):
        done = job.run("backup.sh")
        assert done.returncode == 0, done.stderr
        names.append(job.names[-1])
        time.sleep(1)  # names have seconds
    assert job.names == names[1:]
    done = job.drilled()
    assert done.returncode == 0, done.stderr
    assert ", 0 findings" in done.stderr
    segment = next((job.backups / names[2]).glob("segment-*"))
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 2)
        file.write(b"\xff\x00\xff\x00")
    done = job.drilled()
    assert done.returncode == 1
    assert f"{segment.name} is damaged" in done.stderr


@pytest.mark.rule("CM-235")
def test_a_full_volume_is_named_and_the_last_good_backup_stays(job: Job) -> None:
    done = job.run("backup.sh")
    assert done.returncode == 0, done.stderr
    (good,) = job.names
    try:
        disk = Disk(os.getpid(), job.backups, 8)
    except Unsupported as error:
        pytest.skip(str(error))
    try:
        disk.fill()
        done = job.run("backup.sh")
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert job.names == [good]
        assert json.loads((job.backups / good / "manifest.json").read_text())["entries"] > 0
        disk.free()
        done = job.run("backup.sh")
        assert done.returncode == 0, done.stderr
        assert len(job.names) == 2
    finally:
        disk.remove()
