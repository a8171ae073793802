"""components/backup as examples/backup renders it: its jobs run their scripts, and reach what these need, no more."""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.rule("CM-250")
def test_the_example_with_a_bucket_copies_what_it_cannot_change() -> None:
    docs = render_folder(KUBERNETES / "examples" / "backup-bucket")
    assert faults(docs, "production") == []
    assert backup_faults(docs) == []
    assert scope_faults(docs, CUSTOM_KINDS) == []
    doc, container = job(docs, "sharegroups-backup-copy")
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in template_of(doc)["spec"]["volumes"]}
    assert volumes["backups"]["persistentVolumeClaim"] == {"claimName": "sharegroups-backups"}
    assert mounts["backups"]["readOnly"] is True
    assert container["command"] == ["sh", f"{mounts['scripts']['mountPath']}/copy.sh"]
    (scripts,) = (
        each for each in of_kind(docs, "ConfigMap")
        if each["metadata"]["name"] == volumes["scripts"]["configMap"]["name"]
    )  # fmt: skip
    assert scripts["data"]["copy.sh"] == (KUBERNETES / "components" / "backup-bucket" / "copy.sh").read_text()
    seen = environment_of(container, doc["metadata"], docs)
    assert seen["BACKUPS"] == mounts["backups"]["mountPath"]
    assert seen["RCLONE_CONFIG"] == f"{mounts['bucket']['mountPath']}/rclone.conf"
    assert not {name for name in seen if name.startswith("SHAREGROUPS_")}, "it has no access to the store"
    backed_up, _ = job(docs, "sharegroups-backup")
    assert backed_up["spec"]["schedule"] < doc["spec"]["schedule"]


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


def test_the_how_to_names_what_there_is() -> None:
    page = (KUBERNETES.parent.parent / "docs" / "howto" / "backup.md").read_text(encoding="utf-8")
    docs = [*render_folder(EXAMPLE), *render_folder(KUBERNETES / "backups")]
    for doc in docs:
        if doc["kind"] in {"CronJob", "PersistentVolumeClaim"} and doc["metadata"]["name"] != "init":
            assert doc["metadata"]["name"] in page
    kustomization = yaml.safe_load((SCRIPTS / "kustomization.yaml").read_text(encoding="utf-8"))
    assert kustomization["configMapGenerator"][0]["files"] == ["backup.sh", "drill.sh"]
