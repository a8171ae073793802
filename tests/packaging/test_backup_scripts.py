"""The two scripts of components/backup with a stand-in for `sharegroups`: what they keep, what they remove, and when
they fail. tests/integration/share_node/test_backup_job.py runs them with real backups."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

COMPONENT = Path(__file__).parents[2] / "deploy" / "kubernetes" / "components" / "backup"
#: A stand-in for `sharegroups backup`, `restore` and `state check`: a backup has a manifest, or fails by $BROKEN.
STAND_IN = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$1 ${BROKEN:-}" in
"backup store") exit 1 ;;
"restore files") exit 1 ;;
"backup "*) mkdir "$2" && echo whole >"$2/manifest.json" ;;
esac
"""


BUCKET = COMPONENT.parent / "backup-bucket"
#: A stand-in for rclone that copies files within this machine, and fails at the command of the number $FAILS.
RCLONE = """#!/bin/sh
echo "$@" >>"$CALLS"
[ "$(wc -l <"$CALLS")" != "${FAILS:-}" ] || exit 1
manifest=yes
while :; do
  case $1 in
  --exclude) manifest=; shift 2 ;;
  --*) shift ;;
  copy | check) command=$1; shift ;;
  *) break ;;
  esac
done
[ "$command" = copy ] || exec diff -r "$1" "$2"
mkdir -p "$2"
for file in "$1"/*; do
  [ -z "$manifest" ] && [ "${file##*/}" = manifest.json ] || cp "$file" "$2/"
done
"""


class Place:
    """A volume for backups, and a `sharegroups` that fails as $BROKEN says."""

    def __init__(self, folder: Path) -> None:
        self.backups = folder / "backups"
        self.calls = folder / "calls"
        self._bin = folder / "bin"
        for each in (self.backups, self._bin):
            each.mkdir()
        program = self._bin / "sharegroups"
        program.write_text(STAND_IN)
        program.chmod(0o755)

    def has(self, *names: str) -> None:
        """Put backups of these names there."""
        for name in names:
            (self.backups / name).mkdir()
            (self.backups / name / "manifest.json").write_text("whole")

    def run(self, script: str, keep: int = 2, broken: str = "") -> subprocess.CompletedProcess[str]:
        """Run a script as the job does."""
        environ = {
            "PATH": f"{self._bin}:{os.environ['PATH']}", "CALLS": str(self.calls), "BACKUPS": str(self.backups),
            "KEEP": str(keep), "DRILL": str(self.backups.parent), "BROKEN": broken,
        }  # fmt: skip
        words = ["sh", str(COMPONENT / script), "--rate", "20"]
        return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)

    def copy(self, fails: int = 0) -> subprocess.CompletedProcess[str]:
        """Copy to the bucket; rclone fails at its command of this number."""
        program = self._bin / "rclone"
        program.write_text(RCLONE)
        program.chmod(0o755)
        self.calls.unlink(missing_ok=True)
        environ = {
            "PATH": f"{self._bin}:{os.environ['PATH']}", "CALLS": str(self.calls), "FAILS": str(fails),
            "BACKUPS": str(self.backups), "BUCKET": str(self.bucket),
        }  # fmt: skip
        words = ["sh", str(BUCKET / "copy.sh")]
        return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)

    @property
    def bucket(self) -> Path:
        return self.backups.parent / "bucket"

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.backups.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


OLD = ("2026-11-01T031500Z", "2026-11-02T031500Z", "2026-11-03T031500Z")


@pytest.mark.rule("CM-235")
def test_the_oldest_are_removed_once_the_new_one_is_read(place: Place) -> None:
    place.has(*OLD)
    done = place.run("backup.sh")
    assert done.returncode == 0, done.stderr
    assert place.names[0] == OLD[2]
    assert len(place.names) == 2
    new = place.names[1]
    first, second = place.calls.read_text().splitlines()
    assert first == f"backup {place.backups / new} --quiet --rate 20"
    assert second == f"restore {place.backups / new} --dry-run --quiet"


@pytest.mark.rule("CM-235")
@pytest.mark.parametrize("broken", ["store", "files"])
def test_a_run_that_fails_leaves_all_that_there_are(place: Place, broken: str) -> None:
    place.has(*OLD)
    done = place.run("backup.sh", broken=broken)
    assert done.returncode == 1
    assert place.names == list(OLD)


@pytest.mark.rule("CM-235")
def test_what_a_killed_run_left_is_removed_and_counts_for_nothing(place: Place) -> None:
    place.has(*OLD[:2])
    (place.backups / OLD[2]).mkdir()
    (place.backups / "lost+found").mkdir()
    done = place.run("backup.sh", keep=3)
    assert done.returncode == 0, done.stderr
    assert place.names[:2] == list(OLD[:2])
    assert place.names[3:] == ["lost+found"]
    assert f"removing {place.backups / OLD[2]}, which was interrupted" in done.stdout


@pytest.mark.rule("CM-235")
def test_the_drill_restores_the_newest_whole_one(place: Place) -> None:
    place.has(*OLD[:2])
    (place.backups / OLD[2]).mkdir()
    done = place.run("drill.sh")
    assert done.returncode == 0, done.stderr
    data = place.backups.parent / "data"
    assert place.calls.read_text().splitlines() == [
        f"restore {place.backups / OLD[1]} --data {data} --quiet",
        f"state check --data {data}",
    ]


@pytest.mark.rule("CM-235")
def test_the_drill_fails_without_a_backup_and_with_one_that_is_not_whole(place: Place) -> None:
    done = place.run("drill.sh")
    assert done.returncode == 1
    assert "holds no backup. Try: kubectl create job" in done.stderr
    place.has(OLD[0])
    assert place.run("drill.sh", broken="files").returncode == 1
    assert place.names == [OLD[0]]


@pytest.mark.rule("CM-250")
def test_whole_backups_are_copied_and_stay_in_the_bucket_when_they_are_gone_here(place: Place) -> None:
    place.has(*OLD[:2])
    (place.backups / OLD[0] / "segment-000001").write_text("records")
    (place.backups / OLD[2]).mkdir()  # it was interrupted
    done = place.copy()
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in place.bucket.iterdir()) == list(OLD[:2])
    assert (place.bucket / OLD[0] / "segment-000001").read_text() == "records"
    shutil.rmtree(place.backups / OLD[0])
    assert place.copy().returncode == 0
    assert (place.bucket / OLD[0] / "manifest.json").exists()


@pytest.mark.rule("CM-250")
@pytest.mark.parametrize("fails", [1, 2])
def test_a_copy_that_fails_is_no_backup_until_the_next_run_completes_it(place: Place, fails: int) -> None:
    place.has(OLD[0])
    (place.backups / OLD[0] / "segment-000001").write_text("records")
    assert place.copy(fails).returncode == 1
    assert not (place.bucket / OLD[0] / "manifest.json").exists()
    assert (place.bucket / OLD[0] / "segment-000001").exists() == (fails == 2)
    assert place.copy().returncode == 0
    assert (place.bucket / OLD[0] / "manifest.json").exists()


@pytest.mark.rule("CM-250")
def test_nothing_to_copy_and_a_copy_that_differs_are_failures(place: Place) -> None:
    done = place.copy()
    assert done.returncode == 1
    assert "holds no backup. Try: kubectl" in done.stderr
    place.has(OLD[0])
    assert place.copy(fails=3).returncode == 1, "what is there is compared"


@pytest.mark.rule("CM-235")
def test_the_jobs_run_them_on_a_claim_that_is_no_part_of_the_component() -> None:
    kinds = {}
    for name, script, read_only in (("cron-job", "backup.sh", None), ("drill", "drill.sh", True)):
        job = yaml.safe_load((COMPONENT / f"{name}.yaml").read_text(encoding="utf-8"))
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["command"] == ["sh", f"/etc/sharegroups/backup/{script}"]
        mounts = {each["name"]: each for each in container["volumeMounts"]}
        assert mounts["backups"].get("readOnly") is read_only
        assert {"name": "backups", "persistentVolumeClaim": {"claimName": "sharegroups-backups"}} in pod["volumes"]
        kinds[name] = job["kind"]
    assert kinds == {"cron-job": "CronJob", "drill": "CronJob"}
    every = [doc for path in COMPONENT.glob("*.yaml") for doc in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    assert "PersistentVolumeClaim" not in {doc["kind"] for doc in every}
    policies = [doc["spec"]["podSelector"] for doc in every if doc["kind"] == "NetworkPolicy"]
    assert policies == [{"matchLabels": {"app.kubernetes.io/component": "backup"}}], "the drill has no network"
