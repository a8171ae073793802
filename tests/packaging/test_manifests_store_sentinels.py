"""examples/store-sentinels: all that opens the store has a user and a password of its Sentinels, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from kip932.store_settings import read_store

from .manifest_links import faults_of
from .manifests import KUBERNETES, Doc, containers_of, environment_of, name_of, render_folder, template_of, workloads
from .test_manifests_backup import backup_faults
from .test_manifests_complete import USERS, user_faults
from .test_manifests_tls import mounted, unreadable

EXAMPLE = KUBERNETES / "examples" / "store-sentinels"
URL = "rediss+sentinel://sentinel-0:26379,sentinel-1:26379/main"
PASSWORD = Path("/etc/sharegroups/sentinels/password")


def sentinel_faults(docs: list[Doc]) -> list[str]:
    """Find programs that open the store, and cannot log in to its Sentinels."""
    found = []
    for doc in (each for each in workloads(docs) if each["metadata"]["name"] in USERS):
        program, _ = USERS[doc["metadata"]["name"]]
        (container,) = (each for each in containers_of(doc) if each["name"] == program)
        environment = environment_of(container, doc["metadata"], docs)
        _, access = read_store("", environment | {"SHAREGROUPS_STORE_URL": URL})
        sentinel = access.sentinel
        if (sentinel.username, sentinel.password) != ("sharegroups-asker", PASSWORD):
            found.append(f"{name_of(doc)}: {sentinel.username!r} logs in to Sentinels with {sentinel.password}")
        elif unreadable([str(PASSWORD)], mounted(doc, container, docs)):
            found.append(f"{name_of(doc)}: nothing is mounted at {PASSWORD}")
        volumes = {each["name"]: each for each in template_of(doc)["spec"]["volumes"]}
        secret = volumes.get("sentinels", {}).get("secret")
        if secret is not None and secret != {"secretName": "sharegroups-sentinels", "defaultMode": 0o440}:
            found.append(f"{name_of(doc)}: it cannot read the password of the Sentinels")
        if template_of(doc)["spec"]["securityContext"].get("fsGroup") != 10001:
            found.append(f"{name_of(doc)}: may not read the file of the secret")
    return found


@pytest.mark.rule("CM-248")
def test_nothing_is_wrong_with_the_example() -> None:
    docs = render_folder(EXAMPLE)
    assert {each["metadata"]["name"] for each in workloads(docs)} >= set(USERS)
    assert faults_of(docs, by_digest=True) == []
    assert [*user_faults(docs), *backup_faults(docs), *sentinel_faults(docs)] == []


@pytest.mark.rule("CM-248")
@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("what", ["env", "volumeMounts"])
def test_a_program_without_its_part_is_found(name: str, what: str) -> None:
    docs = render_folder(EXAMPLE)
    (doc,) = (each for each in workloads(docs) if each["metadata"]["name"] == name)
    (container,) = (each for each in containers_of(doc) if each["name"] == USERS[name][0])
    gone = {"SHAREGROUPS_STORE_SENTINEL_PASSWORD_LOCATION", "sentinels"}
    container[what] = [each for each in container[what] if each["name"] not in gone]
    (fault,) = sentinel_faults(docs)
    expected = "'sharegroups-asker' logs in to Sentinels with None" if what == "env" else "nothing is mounted"
    assert fault.startswith(f"{name_of(doc)}: {expected}")
