"""examples/external: every pod that has clients can be reached from outside by the name that it advertises there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shard_runtime.config.process_settings import (
    ALLOW_PLAINTEXT,
    EXTERNAL_ADVERTISED_ADDRESS,
    EXTERNAL_LISTEN_PORT,
    KAFKA_EXTERNAL_ADVERTISED_ADDRESS,
    KAFKA_EXTERNAL_LISTEN_PORT,
    advertised,
)
from shard_runtime.rpc.certificates import covers

from .manifest_links import POD_LABEL, faults, matches
from .manifests import (
    KUBERNETES,
    Doc,
    containers_of,
    environment_of,
    of_kind,
    render_folder,
    role_sets,
    template_of,
)
from .test_manifests_tls import tls_faults

EXAMPLE = KUBERNETES / "examples" / "external"
SERVING = ("group-coordinator", "partition-leader")
HOSTNAME = "external-dns.alpha.kubernetes.io/hostname"
PORTS = (
    (EXTERNAL_LISTEN_PORT, EXTERNAL_ADVERTISED_ADDRESS),
    (KAFKA_EXTERNAL_LISTEN_PORT, KAFKA_EXTERNAL_ADVERTISED_ADDRESS),
)


def external_faults(docs: list[Doc]) -> Iterator[str]:
    """Yield what keeps a client outside from a pod: no service of its own, another name or port, no certificate, no
    policy; or a port without TLS."""
    for doc in role_sets(docs):
        role = doc["metadata"]["name"]
        (container,) = (each for each in containers_of(doc) if each["name"] == "role")
        environment = environment_of(container, doc["metadata"], docs)
        if role not in SERVING:
            if EXTERNAL_LISTEN_PORT.environment in environment:
                yield f"{role} has no clients, and an external port"
            continue
        if environment.get(ALLOW_PLAINTEXT.environment) != "false":
            yield f"{role}: clients from outside would be served without TLS"
        for listen, text in PORTS:
            port = int(environment[listen.environment])
            if port not in _opened(doc, docs):
                yield f"{role}: no policy lets clients to port {port}"
            for number in range(doc["spec"]["replicas"]):
                pod = f"{role}-{number}"
                host, named = advertised(environment[text.environment].replace("pod-0", pod))
                yield from _pod_faults(docs, pod, host, (port, named))


def _pod_faults(docs: list[Doc], pod: str, host: str, ports: tuple[int, int]) -> Iterator[str]:
    """Yield what is wrong with the way to a pod. `ports`: where it listens, and the one that it advertises."""
    (names,) = (doc["spec"]["dnsNames"] for doc in of_kind(docs, "Certificate") if "dnsNames" in doc["spec"])
    if not any(covers(name, host) for name in names):
        yield f"{pod}: no certificate is for {host}"
    services = {doc["metadata"].get("annotations", {}).get(HOSTNAME): doc["spec"] for doc in of_kind(docs, "Service")}
    found = services.get(host, {"selector": {}, "ports": [], "type": "none"})
    if found["selector"].get(POD_LABEL) != pod or found["type"] != "LoadBalancer":
        yield f"{pod}: {host} does not lead to it"
    if ports[0] != ports[1] or ports[0] not in {each["port"] for each in found["ports"]}:
        yield f"{pod}: nothing leads to {host}:{ports[1]}"
    if not found.get("publishNotReadyAddresses"):
        yield f"{pod}: while it is not ready, clients cannot ask it who serves instead"


def _opened(doc: Doc, docs: list[Doc]) -> set[int]:
    """Return the ports of a role's pods that policies open to addresses outside of the cluster."""
    labels = template_of(doc)["metadata"]["labels"]
    mine = [each["spec"] for each in of_kind(docs, "NetworkPolicy") if matches(each["spec"]["podSelector"], labels)]
    rules = [rule for spec in mine for rule in spec.get("ingress", [])]
    return {port["port"] for rule in rules if any("ipBlock" in peer for peer in rule["from"]) for port in rule["ports"]}


@pytest.mark.rule("CM-237")
def test_nothing_is_wrong_with_the_example() -> None:
    docs = render_folder(EXAMPLE)
    assert faults(docs, "production") == []
    assert [*tls_faults(docs), *external_faults(docs)] == []


def test_clients_outside_bootstrap_at_any_coordinator() -> None:
    (doc,) = (each for each in of_kind(render_folder(EXAMPLE), "Service") if each["metadata"]["name"] == "external")
    assert doc["spec"]["selector"] == {"app.kubernetes.io/component": "group-coordinator"}
    assert doc["metadata"]["annotations"][HOSTNAME] == "bootstrap.sharegroups.example.org"


def _service(docs: list[Doc], name: str) -> Doc:
    (found,) = (doc for doc in of_kind(docs, "Service") if doc["metadata"]["name"] == name)
    return found


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: docs.remove(_service(docs, "partition-leader-2-external")), "partition-leader-2: nothing leads"),
        (
            lambda docs: _service(docs, "group-coordinator-1-external")["spec"]["selector"].update(
                {POD_LABEL: "group-coordinator-0"}
            ),
            "group-coordinator-1: group-coordinator-1.sharegroups.example.org does not lead to it",
        ),
        (
            lambda docs: _service(docs, "group-coordinator-1-external")["spec"].pop("publishNotReadyAddresses"),
            "while it is not ready",
        ),
        (
            lambda docs: next(d for d in of_kind(docs, "Certificate") if "dnsNames" in d["spec"])["spec"].update(
                dnsNames=["sharegroups"]
            ),
            "no certificate is for",
        ),
        (
            lambda docs: docs.remove(next(d for d in docs if d["metadata"]["name"] == "external-clients")),
            "no policy lets clients to port 9095",
        ),
    ],
)
def test_what_keeps_a_client_outside_is_found(do: Callable[[list[Doc]], object], expected: str) -> None:
    docs = render_folder(EXAMPLE)
    do(docs)
    found = list(external_faults(docs))
    assert any(expected in fault for fault in found), found


def test_a_service_for_a_pod_that_there_is_not_is_found() -> None:
    docs = render_folder(EXAMPLE)
    _service(docs, "partition-leader-2-external")["spec"]["selector"][POD_LABEL] = "partition-leader-3"
    assert "Service partition-leader-2-external: there is no pod partition-leader-3" in faults(docs, "production")
