"""examples/kafka: production with a port for Kafka's own clients, in the pods that have clients; with TLS as well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from shard_runtime.config.process_settings import KAFKA_LISTEN_PORT

from .manifest_links import faults, matches
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
)
from .test_manifests_tls import tls_faults

EXAMPLE = KUBERNETES / "examples" / "kafka"
#: The roles that have clients.
SERVING = ("group-coordinator", "partition-leader")
PORT = 9092


def kafka_faults(docs: list[Doc]) -> Iterator[str]:
    """Yield what keeps Kafka's clients from a pod that a node's answer names, or leads them to one without the port."""
    policies = [doc["spec"] for doc in of_kind(docs, "NetworkPolicy")]
    services = {doc["metadata"]["name"]: doc["spec"]["ports"] for doc in of_kind(docs, "Service")}
    for doc in role_sets(docs):
        (role,) = (each for each in containers_of(doc) if each["name"] == "role")
        listens = environment_of(role, doc["metadata"], docs).get(KAFKA_LISTEN_PORT.environment)
        if listens != (str(PORT) if doc["metadata"]["name"] in SERVING else None):
            yield f"{name_of(doc)}: its port for Kafka's clients is {listens}"
        labels = template_of(doc)["metadata"]["labels"]
        mine = [policy for policy in policies if matches(policy["podSelector"], labels)]
        rules = [rule for policy in mine for rule in policy.get("ingress", [])]
        opened = [rule["from"] for rule in rules if PORT in {port["port"] for port in rule["ports"]}]
        called = [rule["from"] for rule in rules if rule["ports"] == [{"protocol": "TCP", "port": 7932}]]
        if bool(opened) != (listens is not None) or any(each not in called for each in opened):
            yield f"{name_of(doc)}: {opened} may call its port for Kafka's clients"
    for name in ("sharegroups", *SERVING):
        if {"name": "kafka", "port": PORT, "targetPort": "kafka"} not in services[name]:
            yield f"Service {name}: it does not name the port for Kafka's clients"


def test_nothing_is_wrong_with_the_example() -> None:
    docs = render_folder(EXAMPLE)
    assert faults(docs, "production") == []
    assert list(kafka_faults(docs)) == []


def test_without_the_component_there_is_no_such_port() -> None:
    found = list(kafka_faults(render("production")))
    assert len(found) == len([*SERVING, "sharegroups", *SERVING])


@pytest.mark.parametrize("order", [("kafka", "tls"), ("tls", "kafka")], ids=" before ".join)
def test_it_goes_with_tls_in_either_order(tmp_path: Path, order: tuple[str, str]) -> None:
    there = Path(os.path.relpath(KUBERNETES, tmp_path.resolve()))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "sharegroups",
        "resources": [str(there / "overlays" / "production")],
        "components": [str(there / "components" / name) for name in order],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    docs = render_folder(tmp_path)
    assert faults(docs, "production") == []
    assert list(tls_faults(docs)) == []
    assert list(kafka_faults(docs)) == []


@pytest.mark.parametrize("broken", ["the setting", "the policy", "the service"])
def test_an_example_without_something_is_refused(broken: str) -> None:
    docs = render_folder(EXAMPLE)
    (leader,) = (doc for doc in role_sets(docs) if doc["metadata"]["name"] == "partition-leader")
    if broken == "the setting":
        (role,) = (each for each in containers_of(leader) if each["name"] == "role")
        role["env"] = [each for each in role["env"] if each["name"] != KAFKA_LISTEN_PORT.environment]
        assert any("port kafka is 9092" in fault for fault in faults(docs, "production"))
    elif broken == "the policy":
        docs = [doc for doc in docs if doc["metadata"]["name"] != "kafka-clients"]
    else:
        (service,) = (doc for doc in of_kind(docs, "Service") if doc["metadata"]["name"] == "partition-leader")
        service["spec"]["ports"].pop()
    assert list(kafka_faults(docs)) != []
