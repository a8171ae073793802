"""components/backup as examples/backup renders it, and its two scripts with a stand-in for `sharegroups`: what they
keep, what they remove, and when they fail. tests/integration/share_node/test_backup_job.py runs them with real
backups."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from .manifest_links import faults
from .manifest_rules import scope_faults
from .manifests import (
    CUSTOM_KINDS,
    GIVEN_CLAIMS,
    KUBERNETES,
    Doc,
    containers_of,
    environment_of,
    of_kind,
    render_folder,
    template_of,
)

EXAMPLE = KUBERNETES / "examples" / "backup"
SCRIPTS = KUBERNETES / "components" / "backup"
#: A stand-in for `sharegroups backup`, `restore` and `state check`: a backup has a manifest, or fails by $BROKEN.
STAND_IN = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$1 ${BROKEN:-}" in
"backup store") exit 1 ;;
"restore files") exit 1 ;;
"backup "*) mkdir "$2" && echo whole >"$2/manifest.json" ;;
esac
"""


def job(docs: list[Doc], name: str) -> tuple[Doc, Doc]:
    """Return a CronJob and its container."""
    (doc,) = (each for each in of_kind(docs, "CronJob") if each["metadata"]["name"] == name)
    (container,) = containers_of(doc)
    return doc, container


def backup_faults(docs: list[Doc]) -> list[str]:
    """Find a job that does not run its script, cannot reach what the script needs, or reaches more."""
    found = []
    for name, script, writes in (
        ("sharegroups-backup", "backup.sh", True),
        ("sharegroups-restore-drill", "drill.sh", False),
    ):
        doc, container = job(docs, name)
        mounts = {each["name"]: each for each in container["volumeMounts"]}
        volumes = {each["name"]: each for each in template_of(doc)["spec"]["volumes"]}
        if container["command"] != ["sh", f"{mounts['scripts']['mountPath']}/{script}"]:
            found.append(f"{name}: runs {container['command']}")
        (scripts,) = (
            each
            for each in of_kind(docs, "ConfigMap")
            if each["metadata"]["name"] == volumes["scripts"]["configMap"]["name"]
        )
        if scripts["data"][script] != (SCRIPTS / script).read_text(encoding="utf-8"):
            found.append(f"{name}: its script is another one")
        if volumes["backups"].get("persistentVolumeClaim") != {"claimName": "sharegroups-backups"}:
            found.append(f"{name}: backups are in {volumes['backups']}")
        if bool(mounts["backups"].get("readOnly")) == writes:
            found.append(f"{name}: readOnly is {mounts['backups'].get('readOnly')}")
        seen = environment_of(container, doc["metadata"], docs)
        if seen.get("BACKUPS") != mounts["backups"]["mountPath"]:
            found.append(f"{name}: expects backups in {seen.get('BACKUPS')}")
        if (doc["spec"]["concurrencyPolicy"], doc["spec"].get("suspend", False)) != ("Forbid", False):
            found.append(f"{name}: two may run at a time, or it is suspended")
        labels = template_of(doc)["metadata"]["labels"]
        reached = [
            each
            for each in of_kind(docs, "NetworkPolicy")
            if each["spec"]["podSelector"] == {"matchLabels": {"app.kubernetes.io/component": labels.get(
                "app.kubernetes.io/component")}}
        ]  # fmt: skip
        if bool(reached) != writes:
            found.append(f"{name}: policies {[each['metadata']['name'] for each in reached]}")
    return found


@pytest.mark.rule("CM-235")
def test_nothing_is_wrong_with_the_example() -> None:
    docs = render_folder(EXAMPLE)
    assert faults(docs, "production") == []
    assert backup_faults(docs) == []
    assert scope_faults(docs, CUSTOM_KINDS) == []


@pytest.mark.rule("CM-235")
def test_deleting_the_overlay_leaves_the_claim() -> None:
    assert of_kind(render_folder(EXAMPLE), "PersistentVolumeClaim") == []
    (claim,) = render_folder(KUBERNETES / "backups")
    assert claim["kind"] == "PersistentVolumeClaim"
    assert {claim["metadata"]["name"]} == GIVEN_CLAIMS
    assert claim["metadata"]["namespace"] == "sharegroups"


def _of(docs: list[Doc], name: str) -> Any:
    return job(docs, name)[1]


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: _of(docs, "sharegroups-backup").update(command=["sh", "x.sh"]), "runs ['sh', 'x.sh']"),
        (lambda docs: _of(docs, "sharegroups-backup")["env"].pop(1), "expects backups in None"),
        (lambda docs: _of(docs, "sharegroups-restore-drill")["volumeMounts"][0].pop("readOnly"), "readOnly is None"),
        (lambda docs: job(docs, "sharegroups-backup")[0]["spec"].update(suspend=True), "or it is suspended"),
        (
            lambda docs: template_of(job(docs, "sharegroups-backup")[0])["spec"]["volumes"][0].update(
                persistentVolumeClaim={"claimName": "other"}
            ),
            "backups are in",
        ),
        (
            lambda docs: template_of(job(docs, "sharegroups-restore-drill")[0])["metadata"]["labels"].update(
                {"app.kubernetes.io/component": "backup"}
            ),
            "sharegroups-restore-drill: policies ['backup-to-store']",
        ),
    ],
)
def test_a_broken_job_is_found(do: Callable[[list[Doc]], object], expected: str) -> None:
    docs = render_folder(EXAMPLE)
    do(docs)
    found = backup_faults(docs)
    assert any(expected in fault for fault in found), found


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
        words = ["sh", str(SCRIPTS / script), "--rate", "20"]
        return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)

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


def test_the_how_to_names_what_there_is() -> None:
    page = (KUBERNETES.parent.parent / "docs" / "howto" / "backup.md").read_text(encoding="utf-8")
    docs = [*render_folder(EXAMPLE), *render_folder(KUBERNETES / "backups")]
    for doc in docs:
        if doc["kind"] in {"CronJob", "PersistentVolumeClaim"} and doc["metadata"]["name"] != "init":
            assert doc["metadata"]["name"] in page
    kustomization = yaml.safe_load((SCRIPTS / "kustomization.yaml").read_text(encoding="utf-8"))
    assert kustomization["configMapGenerator"][0]["files"] == ["backup.sh", "drill.sh"]
