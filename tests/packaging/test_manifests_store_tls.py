"""examples/store-tls: production with TLS everywhere. All that opens the store checks its certificate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip932.store_settings import read_store

from .manifest_links import faults_of
from .manifests import KUBERNETES, Doc, containers_of, environment_of, name_of, render_folder, template_of, workloads
from .test_manifests_pipeline import job_faults
from .test_manifests_tls import mounted, tls_faults, unreadable

EXAMPLE = KUBERNETES / "examples" / "store-tls"
#: By name of the workload: what in it opens the store.
OPENERS = {
    **dict.fromkeys(("group-coordinator", "share-coordinator", "partition-leader"), "role"),
    "init": "init",
    "pipeline": "pipeline",
}


def store_faults(docs: list[Doc]) -> Iterator[str]:
    """Find programs that open the store without its authorities, or cannot read them."""
    found = {doc["metadata"]["name"]: doc for doc in workloads(docs)}
    for name, program in OPENERS.items():
        doc = found[name]
        (container,) = (each for each in containers_of(doc) if each["name"] == program)
        _, access = read_store("", environment_of(container, doc["metadata"], docs))
        if access.tls.authorities is None:
            yield f"{name_of(doc)}: checks the store by the system's authorities"
        elif unreadable([str(access.tls.authorities)], mounted(doc, container, docs)):
            yield f"{name_of(doc)}: nothing is mounted at {access.tls.authorities}"
        if template_of(doc)["spec"]["securityContext"].get("fsGroup") != 10001:
            yield f"{name_of(doc)}: may not read the files of the secret"


@pytest.mark.rule("CM-200")
def test_nothing_is_wrong_with_the_example() -> None:
    docs = render_folder(EXAMPLE)
    assert faults_of(docs, by_digest=True) + job_faults(docs) == []
    assert [*tls_faults(docs), *store_faults(docs)] == []


@pytest.mark.rule("CM-200")
@pytest.mark.parametrize("name", OPENERS)
@pytest.mark.parametrize("what", ["env", "volumeMounts"])
def test_a_program_without_its_part_is_found(name: str, what: str) -> None:
    docs = render_folder(EXAMPLE)
    (doc,) = (each for each in workloads(docs) if each["metadata"]["name"] == name)
    (container,) = (each for each in containers_of(doc) if each["name"] == OPENERS[name])
    gone = {"SHAREGROUPS_STORE_SSL_CA_LOCATION", "store-tls"}
    container[what] = [each for each in container[what] if each["name"] not in gone]
    (fault,) = store_faults(docs)
    assert fault.startswith(f"{name_of(doc)}: {'checks' if what == 'env' else 'nothing is mounted'}")
