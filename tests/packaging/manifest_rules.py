"""Checks that faults once found in rendered manifests, by attacks and by use on real API servers, do not come back.

Each check takes the documents of one kustomization and returns a sentence for each fault, as in `manifests`.
docs/howto/deploy.md lists what can only be checked on a cluster, with the commands.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from shard_runtime.config.process_settings import INTERNAL_LISTEN_PORT

from .manifests import (
    ROLE_LABEL,
    Doc,
    containers_of,
    environment_of,
    name_of,
    of_kind,
    role_sets,
    template_of,
    workloads,
)

INTERNAL_PORT: Final = 7933
HOSTNAME: Final = "kubernetes.io/hostname"
#: Kinds that need more rights than an admin of one namespace has, or definitions made by others.
BEYOND_A_NAMESPACE: Final = ("Namespace", "ClusterRole", "ClusterRoleBinding", "PriorityClass", "StorageClass")
#: Memory that an idle process was measured to use, in MiB, by words of its command. With a smaller request it is among
#: the first to be evicted.
IDLE_MIB: Final = {"scaler": 69, "init": 66, "group_coordinator": 66, "consume": 47}
#: Address ranges that a private store may be in (RFC 1918, RFC 4193).
PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
#: Where a cluster's DNS server is: its namespace, or its address on the node, and the port.
DNS: Final = (("kube-system", 53), ("openshift-dns", 5353), ("169.254.20.10/32", 53))
_SIZES: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def size_of(text: str) -> int:
    """Return the bytes of a quantity such as 64Mi."""
    found = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti)", text)
    assert found is not None, f"teach this check the quantity {text}"
    return int(found[1]) * _SIZES[found[2]]


def spread_faults(docs: list[Doc]) -> list[str]:
    """Find spread constraints that keep a pod from being scheduled because a machine is drained, dead or tainted."""
    found = []
    for doc in workloads(docs):
        for rule in template_of(doc)["spec"].get("topologySpreadConstraints", []):
            if rule["whenUnsatisfiable"] == "DoNotSchedule" and rule.get("nodeTaintsPolicy") != "Honor":
                found.append(f"{name_of(doc)}: a drained machine counts as one without a pod ({rule['topologyKey']})")
    return found


def apply_faults(docs: list[Doc]) -> list[str]:
    """Find atomic fields to which the server adds defaults: after a client-side apply, a server-side one conflicts over
    them."""
    found = []
    for doc in workloads(docs):
        for container in containers_of(doc):
            for entry in container.get("env", []):
                if "fieldRef" in entry.get("valueFrom", {}) and "apiVersion" not in entry["valueFrom"]["fieldRef"]:
                    found.append(f"{name_of(doc)}: variable {entry['name']} has a fieldRef without apiVersion")
        for claim in doc["spec"].get("volumeClaimTemplates", []):
            whole = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}
            given = {name: claim.get(name) for name in whole}
            if given != whole or claim["spec"].get("volumeMode") != "Filesystem":
                found.append(f"{name_of(doc)}: the claim {claim['metadata']['name']} leaves to the server what it adds")
    return found


def scope_faults(docs: list[Doc], customs: frozenset[str]) -> list[str]:
    """Find objects that an admin of one namespace may not create, and kinds that need definitions installed by
    others."""
    return [f"{name_of(doc)} needs more than the namespace" for doc in of_kind(docs, *BEYOND_A_NAMESPACE, *customs)]


def request_faults(docs: list[Doc]) -> list[str]:
    """Find memory requests below what an idle process uses, and volumes on a node's disk that no storage request
    covers."""
    found = []
    for doc in workloads(docs):
        disk = sum(
            size_of(volume["emptyDir"]["sizeLimit"])
            for volume in template_of(doc)["spec"].get("volumes", [])
            if "emptyDir" in volume and volume["emptyDir"].get("medium") != "Memory"
        )
        asked_disk = 0
        for container in containers_of(doc):
            name, requests = container["name"], container.get("resources", {}).get("requests", {})
            asked_disk += size_of(requests.get("ephemeral-storage", "0Mi"))
            idle = [mib for word, mib in IDLE_MIB.items() if word in container.get("command", [])]
            if idle and size_of(requests.get("memory", "0Mi")) < 1.25 * idle[0] * 2**20:
                found.append(f"{name_of(doc)}: {name} asks for {requests.get('memory')}, idle it takes {idle[0]}Mi")
        if asked_disk < disk:
            found.append(f"{name_of(doc)}: its volumes may take {disk} bytes of disk, and it asks for {asked_disk}")
    return found


def _egress(docs: list[Doc], name: str) -> Iterator[tuple[str, int]]:
    """Yield each destination that a policy allows: an address range or the name of a namespace, and the port."""
    for doc in of_kind(docs, "NetworkPolicy"):
        if doc["metadata"]["name"] != name:
            continue
        for rule in doc["spec"]["egress"]:
            for peer in rule["to"]:
                labels: dict[str, Any] = peer.get("namespaceSelector", {}).get("matchLabels", {})
                where = peer.get("ipBlock", {}).get("cidr") or labels.get("kubernetes.io/metadata.name", "")
                for port in rule["ports"]:
                    yield where, port["port"]


def egress_faults(docs: list[Doc]) -> list[str]:
    """Find egress rules with which some kinds of cluster cannot resolve names, or with which stores on some networks
    are unreachable."""
    found = [f"no DNS at {where}, port {port}" for where, port in DNS if (where, port) not in set(_egress(docs, "dns"))]
    for name in ("roles-to-store", "pipeline-to-store", "backup-to-store"):
        opened = {(where, port) for where, port in _egress(docs, name) if "/" in where}
        for where, _ in opened:
            assert ipaddress.ip_network(where).is_private
        if opened:
            wanted = {(where, port) for where in PRIVATE for port in (6379, 6380, 26379)}
            found += [f"{name}: nothing leads to {where}, port {port}" for where, port in sorted(wanted - opened)]
    return found


def answer_faults(docs: list[Doc]) -> list[str]:
    """Find our processes with only a metrics port whose probes would pass as soon as the port is open."""
    found = []
    for doc in of_kind(docs, "StatefulSet", "Deployment"):
        for container in containers_of(doc):
            if {port["name"] for port in container.get("ports", [])} != {"metrics"}:
                continue
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if container.get(probe, {}).get("httpGet") != {"port": "metrics", "path": "/metrics"}:
                    found.append(f"{name_of(doc)}: {probe} does not wait for an answer of the gauges")
    return found


def internal_faults(docs: list[Doc]) -> list[str]:
    """Find faults of the port on which roles call each other: no Service leads to it, or pods other than the roles can
    reach it."""
    found = []
    for doc in role_sets(docs):
        (role,) = (each for each in containers_of(doc) if each["name"] == "role")
        ports = {port["name"]: port["containerPort"] for port in role["ports"]}
        environment = environment_of(role, doc["metadata"], docs)
        if environment.get(INTERNAL_LISTEN_PORT.environment) != str(ports.get("internal")):
            found.append(f"{name_of(doc)}: port internal is {ports.get('internal')}, which is not where it listens")
        services = {each["metadata"]["name"]: each["spec"]["ports"] for each in of_kind(docs, "Service")}
        if "internal" not in {port["name"] for port in services[doc["spec"]["serviceName"]]}:
            found.append(f"Service {doc['spec']['serviceName']}: it does not name the port internal")
    for doc in of_kind(docs, "Service"):
        if doc["spec"].get("clusterIP") != "None" and "internal" in {port["name"] for port in doc["spec"]["ports"]}:
            found.append(f"{name_of(doc)}: it leads clients to what only roles call")
    inside = {"podSelector": {"matchLabels": {ROLE_LABEL: "true"}}}
    opened = False
    for doc in of_kind(docs, "NetworkPolicy"):
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for rule in doc["spec"].get(direction, []):
                if INTERNAL_PORT in {port["port"] for port in rule["ports"]}:
                    opened = True
                    if rule[peers] != [inside]:
                        found.append(f"{name_of(doc)}: {direction} lets others than roles to port {INTERNAL_PORT}")
    return found if opened or not role_sets(docs) else [*found, "no policy lets roles call each other"]


def account_faults(docs: list[Doc]) -> list[str]:
    """Find pods without an account of their own, by which rights, pull secrets and audit logs tell them apart (CM-236).

    The store of the overlay dev, which is no part of the product, has the namespace's.
    """
    accounts = {doc["metadata"]["name"]: doc for doc in of_kind(docs, "ServiceAccount")}
    found, used = [], set()
    for doc in workloads(docs):
        if doc["metadata"]["name"] == "store":
            continue
        name = template_of(doc)["spec"].get("serviceAccountName", "default")
        if name not in accounts or name in used:
            found.append(f"{name_of(doc)}: its account is {name}, expected one of its own")
        elif accounts[name].get("automountServiceAccountToken") is not False:
            found.append(f"{name_of(doc)}: pods of the account {name} get a token")
        used.add(name)
    return found


def rule_faults(docs: list[Doc]) -> list[str]:
    """Run all these checks except `answer_faults` and `scope_faults` (for production only); also require that pods are
    kept apart."""
    found = [
        *spread_faults(docs),
        *apply_faults(docs),
        *request_faults(docs),
        *egress_faults(docs),
        *internal_faults(docs),
        *account_faults(docs),
    ]
    for doc in role_sets(docs):
        rules = {rule["topologyKey"]: rule for rule in template_of(doc)["spec"]["topologySpreadConstraints"]}
        if HOSTNAME not in rules:
            found.append(f"{name_of(doc)}: its pods are not kept apart")
    return found
