"""examples/complete, production with every component, and examples/page: accounts, users of the store, the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kip932.store_settings import read_store

from .manifest_links import faults_of
from .manifest_rules import account_faults
from .manifests import (
    KUBERNETES,
    Doc,
    containers_of,
    environment_of,
    name_of,
    of_kind,
    render,
    render_folder,
    role_sets,
    template_of,
    workloads,
)
from .test_manifests_backup import backup_faults
from .test_manifests_kafka import kafka_faults
from .test_manifests_pipeline import job_faults, page_faults
from .test_manifests_store_tls import OPENERS
from .test_manifests_tls import mounted, tls_faults, unreadable

COMPLETE = KUBERNETES / "examples" / "complete"
PAGE = KUBERNETES / "examples" / "page"
#: By name of the workload: what in it opens the store, and its user there.
USERS = {
    **{name: (program, f"sharegroups-{name}") for name, program in OPENERS.items()},
    "pipeline": ("pipeline", "sharegroups-ingest"),
    "sharegroups-backup": ("backup", "sharegroups-backup"),
}


def user_faults(docs: list[Doc]) -> list[str]:
    """Find programs that share a user of the store, cannot read its password, or have it in a variable."""
    found = []
    for doc in workloads(docs):
        for container in containers_of(doc):
            for entry in container.get("env", []):
                if entry.get("valueFrom", {}).get("secretKeyRef", {}).get("key", "url") != "url":
                    found.append(f"{name_of(doc)}: {entry['name']} is a secret in a variable")
        program, user = USERS.get(doc["metadata"]["name"], ("", ""))
        for container in (each for each in containers_of(doc) if each["name"] == program):
            _, access = read_store("", environment_of(container, doc["metadata"], docs))
            if access.username != user:
                found.append(f"{name_of(doc)}: its user is {access.username!r}, expected {user}")
            if access.password is None or unreadable([str(access.password)], mounted(doc, container, docs)):
                found.append(f"{name_of(doc)}: nothing is mounted at {access.password}")
            volumes = template_of(doc)["spec"]["volumes"]
            secrets = [each["secret"]["secretName"] for each in volumes if each["name"] == "store-user"]
            if secrets != [user] or template_of(doc)["spec"]["securityContext"].get("fsGroup") != 10001:
                found.append(f"{name_of(doc)}: it cannot read the password of {user}")
    return found


@pytest.mark.rule("CM-236")
def test_nothing_is_wrong_with_all_components_together() -> None:
    docs = render_folder(COMPLETE)
    assert faults_of(docs, by_digest=True) == []
    assert [*tls_faults(docs), *kafka_faults(docs), *user_faults(docs), *backup_faults(docs)] == []


@pytest.mark.rule("CM-236")
def test_every_account_can_pull_and_every_role_has_its_priority() -> None:
    docs = render_folder(COMPLETE)
    accounts = of_kind(docs, "ServiceAccount")
    assert len(accounts) >= len(workloads(docs))
    assert all(each["imagePullSecrets"] == [{"name": "pull"}] for each in accounts)
    (priority,) = render_folder(KUBERNETES / "priority-class")
    assert {template_of(doc)["spec"]["priorityClassName"] for doc in role_sets(docs)} == {priority["metadata"]["name"]}
    assert 0 < priority["value"] < 2_000_000_000
    assert not priority["globalDefault"]


def of(docs: list[Doc], name: str) -> Doc:
    return next(doc for doc in workloads(docs) if doc["metadata"]["name"] == name)


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: template_of(of(docs, "scaler"))["spec"].pop("serviceAccountName"), "its account is default"),
        (
            lambda docs: template_of(of(docs, "page"))["spec"].update(serviceAccountName="init"),
            "its account is init, expected one of its own",
        ),
        (
            lambda docs: of_kind(docs, "ServiceAccount")[0].update(automountServiceAccountToken=True),
            "get a token",
        ),
        (
            lambda docs: next(containers_of(of(docs, "share-coordinator")))["env"][0].update(
                name="SHAREGROUPS_STORE_USERNAME", value="sharegroups"
            ),
            "expected sharegroups-share-coordinator",
        ),
        (
            lambda docs: template_of(of(docs, "init"))["spec"]["volumes"].clear(),
            "CronJob init: it cannot read the password",
        ),
        (
            lambda docs: next(containers_of(of(docs, "pipeline")))["env"].append(
                {"name": "X", "valueFrom": {"secretKeyRef": {"name": "sharegroups-ingest", "key": "password"}}}
            ),
            "X is a secret in a variable",
        ),
    ],
)
def test_what_is_missing_is_found(do: Callable[[list[Doc]], object], expected: str) -> None:
    docs = render_folder(COMPLETE)
    for container in (next(containers_of(of(docs, "share-coordinator"))),):  # the user is where the test expects it
        container["env"].sort(key=lambda entry: entry["name"] != "SHAREGROUPS_STORE_USERNAME")
    assert account_faults(docs) + user_faults(docs) == []
    do(docs)
    found = [*account_faults(docs), *user_faults(docs)]
    assert any(expected in fault for fault in found), found


@pytest.mark.rule("CM-236")
def test_the_page_is_served_from_the_folder_that_the_report_writes() -> None:
    docs = render_folder(PAGE)
    assert faults_of(docs, by_digest=True) + job_faults(docs) + page_faults(docs) == []
    server, report = of(docs, "page"), of(docs, "pipeline-report")
    (web,), (job,) = containers_of(server), containers_of(report)
    (mount,) = web["volumeMounts"]
    assert mount["readOnly"] is True
    served = Path(web["command"][web["command"].index("--directory") + 1])
    written = Path(environment_of(job, report["metadata"], docs)["PAGE"])
    (there,) = (each["mountPath"] for each in job["volumeMounts"] if each["name"] == "data")
    assert served.relative_to(mount["mountPath"]) == written.relative_to(there)
    claims = [each["persistentVolumeClaim"] for doc in (server, report) for each in template_of(doc)["spec"]["volumes"]
              if "persistentVolumeClaim" in each]  # fmt: skip
    assert claims == [{"claimName": "data-pipeline-0"}] * 2
    beside = template_of(server)["spec"]["affinity"]
    assert beside == template_of(report)["spec"]["affinity"]
    policies = [
        doc["spec"]
        for doc in of_kind(docs, "NetworkPolicy")
        if doc["spec"]["podSelector"].get("matchLabels") == {"app.kubernetes.io/component": "page"}
    ]
    assert [policy["policyTypes"] for policy in policies] == [["Ingress"]], "it calls nothing"


def test_production_alone_has_neither() -> None:
    docs = render("production")
    assert {doc["kind"] for doc in docs} & {"PersistentVolumeClaim", "PriorityClass"} == set()
    assert all("priorityClassName" not in template_of(doc)["spec"] for doc in workloads(docs))
