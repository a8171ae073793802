"""Faults between rendered Kubernetes manifests: names, selectors, ports and images that do not match."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from .manifest_rules import rule_faults
from .manifests import (
    GIVEN_CLAIMS,
    GIVEN_SECRETS,
    KUBERNETES,
    Doc,
    containers_of,
    init_faults,
    name_of,
    of_kind,
    probe_faults,
    role_sets,
    schema_faults,
    security_faults,
    settings_faults,
    template_of,
    workloads,
)

COMPONENT_LABEL: Final = "app.kubernetes.io/component"
POD_LABEL: Final = "statefulset.kubernetes.io/pod-name"
PIPELINE: Final = "pipeline"
REPORT: Final = "pipeline-report"
#: Its program is not of this project.
BACKUP_COPY: Final = "backup-copy"
DIGEST: Final = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")


def matches(selector: Doc, labels: Doc) -> bool:
    """Return whether a label selector matches these labels."""
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", []) if _is_in(rule)
    )


def _is_in(rule: Doc) -> bool:
    assert rule["operator"] == "In", f"teach this check the operator {rule['operator']}"
    return True


def _labels(doc: Doc) -> Doc:
    labels: Doc = template_of(doc)["metadata"]["labels"]
    return labels


def selector_faults(docs: list[Doc]) -> list[str]:
    """Find selectors that match no pod or every pod, and services whose port no selected pod has."""
    found = []
    for doc in of_kind(docs, "StatefulSet", "Deployment"):
        if not matches(doc["spec"]["selector"], _labels(doc)):
            found.append(f"{name_of(doc)}: its selector does not choose its own pods")
    for doc in of_kind(docs, "Service"):
        selector = dict(doc["spec"]["selector"])
        pod = selector.pop(POD_LABEL, None)  # the controller gives each pod of a set this label
        chosen = [each for each in workloads(docs) if matches({"matchLabels": selector}, _labels(each))]
        if pod is not None and pod not in {name for each in chosen for name in _pods(each)}:
            found.append(f"{name_of(doc)}: there is no pod {pod}")
        if len(chosen) != 1:
            found.append(f"{name_of(doc)}: it chooses {[name_of(each) for each in chosen]}, expected one workload")
        for each in chosen:
            ports = {port["name"]: port["containerPort"] for port in _ports(each)}
            for port in doc["spec"]["ports"]:
                if ports.get(port["targetPort"]) != port["port"]:
                    found.append(f"{name_of(doc)}: port {port['port']} leads to {port['targetPort']} of {ports}")
    for doc in role_sets(docs):
        found += [f"{name_of(doc)}: {fault}" for fault in _companion_faults(doc, docs)]
    return found


def _pods(doc: Doc) -> list[str]:
    """Return the names of the pods of a StatefulSet."""
    return [f"{doc['metadata']['name']}-{number}" for number in range(doc["spec"]["replicas"])]


def _ports(doc: Doc) -> Iterator[Doc]:
    for container in containers_of(doc):
        yield from container.get("ports", [])


def _companion_faults(doc: Doc, docs: list[Doc]) -> Iterator[str]:
    labels = _labels(doc)
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(docs, "Service")}
    headless = services.get(doc["spec"]["serviceName"], {})
    if headless.get("clusterIP") != "None" or not headless.get("publishNotReadyAddresses"):
        yield f"service {doc['spec']['serviceName']} does not name every pod, ready or not"
    budgets = [each["spec"] for each in of_kind(docs, "PodDisruptionBudget")]
    own = [budget for budget in budgets if matches(budget["selector"], labels)]
    if len(own) != 1 or own[0].get("maxUnavailable") != 1:
        yield f"{len(own)} disruption budgets choose its pods, expected one that lets one pod go"
    elif any(matches(own[0]["selector"], _labels(each)) for each in workloads(docs) if each is not doc):
        yield "its disruption budget counts pods of others too"
    spread = template_of(doc)["spec"].get("topologySpreadConstraints", [])
    if [rule["topologyKey"] for rule in spread] != ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]:
        yield "its pods are not spread over zones and machines"
    for rule in spread:
        if rule.get("labelSelector") != doc["spec"]["selector"]:
            yield f"the spread over {rule['topologyKey']} counts other pods than its own"


def reference_faults(docs: list[Doc]) -> list[str]:
    """Find references to config maps, secrets and claims that nothing creates, and documents in other namespaces."""
    here = {(doc["kind"], doc["metadata"]["name"]) for doc in docs}
    here |= {("PersistentVolumeClaim", name) for name in claims_of(docs)}
    here |= {("Secret", name) for name in GIVEN_SECRETS}
    here |= {("PersistentVolumeClaim", name) for name in GIVEN_CLAIMS}
    here |= {("Secret", doc["spec"]["secretName"]) for doc in of_kind(docs, "Certificate")}  # cert-manager makes them
    namespace = next(doc["metadata"]["namespace"] for doc in workloads(docs))
    found = [f"{name_of(doc)}: the pods are in {namespace}" for doc in of_kind(docs, "Namespace")
             if doc["metadata"]["name"] != namespace]  # fmt: skip
    for doc in workloads(docs):
        for kind, name in _references(template_of(doc)):
            if (kind, name) not in here:
                found.append(f"{name_of(doc)}: there is no {kind} {name}")
    for doc in docs:
        if doc["kind"] != "Namespace" and doc["metadata"].get("namespace") != namespace:
            found.append(f"{name_of(doc)}: its namespace is {doc['metadata'].get('namespace')}, expected {namespace}")
    return found


def claims_of(docs: list[Doc]) -> Iterator[str]:
    """Yield the claims that StatefulSets create for their pods."""
    for doc in of_kind(docs, "StatefulSet"):
        for claim in doc["spec"].get("volumeClaimTemplates", []):
            for number in range(doc["spec"]["replicas"]):
                yield f"{claim['metadata']['name']}-{doc['metadata']['name']}-{number}"


def _references(node: Any) -> Iterator[tuple[str, str]]:
    """Yield every config map, secret and claim named anywhere in a pod template."""
    if isinstance(node, list):
        for each in node:
            yield from _references(each)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in {"configMapRef", "configMapKeyRef", "configMap"}:
                yield "ConfigMap", value["name"]
            elif key in {"secretRef", "secretKeyRef"}:
                yield "Secret", value["name"]
            elif key == "secret":
                yield "Secret", value["secretName"]
            elif key == "persistentVolumeClaim":
                yield "PersistentVolumeClaim", value["claimName"]
            else:
                yield from _references(value)


def network_faults(docs: list[Doc]) -> list[str]:
    """Find a missing default-deny policy, policies that select no pod or open a port no pod has, and unreachable
    roles."""
    policies = [doc["spec"] for doc in of_kind(docs, "NetworkPolicy")]
    both = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    found = [] if both in policies else ["no NetworkPolicy denies all that is not listed"]
    for doc in of_kind(docs, "NetworkPolicy"):
        chosen = [each for each in workloads(docs) if matches(doc["spec"]["podSelector"], _labels(each))]
        if not chosen:
            found.append(f"{name_of(doc)}: it chooses no pods")
        has = {port["containerPort"] for each in chosen for port in _ports(each)}
        opened = {port["port"] for rule in doc["spec"].get("ingress", []) for port in rule["ports"]}
        found += [f"{name_of(doc)}: it opens {port}, which none of its pods has" for port in sorted(opened - has)]
    for doc in role_sets(docs):
        mine = [policy for policy in policies if matches(policy["podSelector"], _labels(doc))]
        opened = {port["port"] for policy in mine for rule in policy.get("ingress", []) for port in rule["ports"]}
        grpc = next(port["containerPort"] for port in _ports(doc) if port["name"] == "grpc")
        if grpc not in opened:
            found.append(f"{name_of(doc)}: no policy opens its port grpc")
    return found


def image_faults(docs: list[Doc], *, by_digest: bool) -> list[str]:
    """Find services that use different images, and a pipeline that uses theirs; with `by_digest`, also images without a
    digest."""
    images: dict[bool, set[str]] = {True: set(), False: set()}
    others: set[str] = set()
    for doc in workloads(docs):
        label = _labels(doc).get(COMPONENT_LABEL)
        chosen = others if label == BACKUP_COPY else images[label in {PIPELINE, REPORT}]
        chosen.update(each["image"] for each in containers_of(doc))
    services, pipeline = images[False], images[True]
    found = [f"there are several images: {sorted(each)}" for each in images.values() if len(each) > 1]
    found += [f"the pipeline runs {image}, which is the services'" for image in sorted(services & pipeline)]
    if by_digest:
        named = sorted(services | pipeline | others)
        found += [f"image {image} is not named by a digest" for image in named if not DIGEST.fullmatch(image)]
    return found


def faults(docs: list[Doc], overlay: str) -> list[str]:
    """Return all faults of an overlay's documents."""
    assert (KUBERNETES / "overlays" / overlay).is_dir()
    return faults_of(docs, by_digest=overlay == "production")


def faults_of(docs: list[Doc], *, by_digest: bool) -> list[str]:
    """Return all faults of a cluster's documents."""
    return [
        *schema_faults(docs),
        *settings_faults(docs),
        *probe_faults(docs),
        *init_faults(docs),
        *security_faults(docs),
        *selector_faults(docs),
        *reference_faults(docs),
        *network_faults(docs),
        *image_faults(docs, by_digest=by_digest),
        *rule_faults(docs),
    ]
