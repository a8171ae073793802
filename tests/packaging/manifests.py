"""Finds faults in rendered Kubernetes manifests: violations of the schema, checked strictly, and of this project's own
rules.

Every check takes the documents of one overlay and returns a sentence for each fault, so a test can also give it broken
documents. Settings are parsed by the services' own code, and probes are compared with the services' own health names.
"""

from __future__ import annotations

import copy
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import kubernetes_validate
import pytest
import yaml

from shard_runtime.config.process_settings import (
    ADVERTISED_HOST,
    DATA_DIR,
    DRAIN_GRACE_MS,
    EXTERNAL_LISTEN_PORT,
    HEALTH_LISTEN_PORT,
    KAFKA_EXTERNAL_LISTEN_PORT,
    KAFKA_LISTEN_PORT,
    LISTEN_HOST,
    LISTEN_PORT,
    METRICS_HOST,
    METRICS_PORT,
    NODE_NAME,
    Settings,
    SettingsError,
    load_settings,
)
from shard_runtime.ownership.placement import ROLES
from shard_runtime.rpc.server import LIVENESS, READINESS
from share_node.store.cluster_init import WAIT_S, init

KUBERNETES: Final = Path(__file__).resolve().parent.parent.parent / "deploy" / "kubernetes"
#: The oldest release that the manifests promise to support, and the newest whose schemas the validator has.
RELEASES: Final = ("1.30", "1.37")
#: Kinds that the validator has no schema for; tests check their shape themselves.
CUSTOM_KINDS: Final = frozenset({"Certificate", "Issuer", "PodMonitor", "PrometheusRule", "ScaledObject"})
#: Secrets created by the person who applies the production overlay.
GIVEN_SECRETS: Final = frozenset(
    {
        "sharegroups-store",
        "sharegroups-pipeline-store",
        "sharegroups-store-tls",
        "sharegroups-sentinels",
        "sharegroups-bucket",
    }
    | {
        f"sharegroups-{user}"
        for user in ("group-coordinator", "share-coordinator", "partition-leader", "init", "backup", "ingest")
    }
)
#: The claim for backups, which is created by itself, so that deleting an overlay deletes no backup.
GIVEN_CLAIMS: Final = frozenset({"sharegroups-backups"})
ROLE_LABEL: Final = "sharegroups/role"
#: The startup probe checks only that the process answers: a process that is waiting for its store must not be killed
#: (CM-130).
PROBES: Final = {"startupProbe": LIVENESS, "livenessProbe": LIVENESS, "readinessProbe": READINESS}
#: Time for handing over the shards, in addition to preStop and drain.
RELEASE_S: Final = 10

Doc = dict[str, Any]


@functools.cache
def _rendered(folder: Path) -> list[Doc]:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl: it renders the overlays")
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [doc for doc in yaml.safe_load_all(done.stdout) if doc]


def render(overlay: str) -> list[Doc]:
    """Return the overlay's documents, new ones on every call."""
    return render_folder(KUBERNETES / "overlays" / overlay)


def render_folder(folder: Path) -> list[Doc]:
    """Return the documents of any kustomization, new ones on every call; the test skips where kubectl is missing."""
    return copy.deepcopy(_rendered(folder))


def render_monitoring() -> list[Doc]:
    """Return the documents that are applied in addition to production where the Prometheus operator runs."""
    return render_folder(KUBERNETES / "monitoring")


def name_of(doc: Doc) -> str:
    """Return the kind and name, as shown in messages."""
    return f"{doc['kind']} {doc['metadata']['name']}"


def of_kind(docs: list[Doc], *kinds: str) -> list[Doc]:
    """Return the documents of these kinds."""
    return [doc for doc in docs if doc["kind"] in kinds]


def template_of(doc: Doc) -> Doc:
    """Return the pod template of a workload."""
    spec = doc["spec"]["jobTemplate"]["spec"] if doc["kind"] == "CronJob" else doc["spec"]
    template: Doc = spec["template"]
    return template


def workloads(docs: list[Doc]) -> list[Doc]:
    """Return every document that creates pods."""
    return of_kind(docs, "StatefulSet", "Deployment", "DaemonSet", "Job", "CronJob")


def role_sets(docs: list[Doc]) -> list[Doc]:
    """Return the StatefulSets of the three roles."""
    sets = of_kind(docs, "StatefulSet")
    return [doc for doc in sets if template_of(doc)["metadata"]["labels"].get(ROLE_LABEL) == "true"]


def containers_of(doc: Doc) -> Iterator[Doc]:
    """Yield every container of a workload's pods."""
    pod = template_of(doc)["spec"]
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


def schema_faults(docs: list[Doc]) -> list[str]:
    """Find what the API server would refuse, or silently ignore: unknown fields are faults too."""
    known = [doc for doc in docs if doc["kind"] not in CUSTOM_KINDS]
    texts = [json.dumps(doc, sort_keys=True) for doc in known]
    return [fault for text in texts for release in RELEASES for fault in _schema_faults(text, release)]


@functools.cache
def _schema_faults(document: str, release: str) -> tuple[str, ...]:
    """Validate one document, given as JSON. Cached: most documents of consecutive tests are the same, and the validator
    reads its schemas from scratch for each."""
    doc = json.loads(document)
    try:
        kubernetes_validate.validate(doc, release, strict=True)
    except kubernetes_validate.ValidationError as error:
        where = ".".join(map(str, error.path))
        return (f"{name_of(doc)}, Kubernetes {release}: {where}: {error.message}",)
    except kubernetes_validate.SchemaNotFoundError as error:
        return (f"{name_of(doc)}: {error.message}",)
    return ()


def environment_of(container: Doc, pod: Doc, docs: list[Doc]) -> dict[str, str]:
    """Return the environment variables of the container's process. Raises KeyError for an undefined name."""
    maps = {doc["metadata"]["name"]: doc["data"] for doc in of_kind(docs, "ConfigMap")}
    fields = {"metadata.name": "pod-0", "metadata.namespace": pod["namespace"], "status.podIP": "10.0.0.1"}
    seen: dict[str, str] = {}
    for source in container.get("envFrom", []):
        seen.update(maps[source["configMapRef"]["name"]])
    for entry in container.get("env", []):
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            seen[entry["name"]] = fields[source["fieldRef"]["fieldPath"]]
        elif "secretKeyRef" in source:
            seen[entry["name"]] = "redis://store.invalid:6379"
        else:
            # As the kubelet does: only variables defined earlier are known.
            seen[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: seen[match[1]], entry["value"])
    return seen


def _settings(container: Doc, doc: Doc, docs: list[Doc]) -> Settings:
    environ = environment_of(container, doc["metadata"], docs)
    return load_settings(environ={name: text for name, text in environ.items() if name.startswith("SHAREGROUPS_")})


def settings_faults(docs: list[Doc]) -> list[str]:
    """Find variables that are not settings, values out of range, and settings that contradict the manifests."""
    found = []
    for doc in workloads(docs):
        for container in containers_of(doc):
            try:
                settings = _settings(container, doc, docs)
            except (SettingsError, KeyError) as error:
                found.append(f"{name_of(doc)}, container {container['name']}: {error}")
                continue
            grpc = [port["containerPort"] for port in container.get("ports", []) if port["name"] == "grpc"]
            if grpc and grpc != [settings[LISTEN_PORT]]:
                found.append(f"{name_of(doc)}: port grpc is {grpc[0]}, and listen.port is {settings[LISTEN_PORT]}")
            if doc in role_sets(docs) and container["name"] == "role":
                found += [f"{name_of(doc)}: {fault}" for fault in _role_faults(doc, container, settings)]
    return found


def _role_faults(doc: Doc, container: Doc, settings: Settings) -> Iterator[str]:
    words = container["command"]
    role = doc["metadata"]["name"].replace("-", "_")
    if words != ["python", "-m", "share_node", "serve", role] or role not in ROLES:
        yield f"command {words} does not start the role"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for name, setting in (
        ("metrics", METRICS_PORT), ("health", HEALTH_LISTEN_PORT), ("kafka", KAFKA_LISTEN_PORT),
        ("external", EXTERNAL_LISTEN_PORT), ("kafka-external", KAFKA_EXTERNAL_LISTEN_PORT),
    ):  # fmt: skip
        if ports.get(name, -1) != settings[setting]:
            yield f"port {name} is {ports.get(name)}, and {setting.name} is {settings[setting]}"
    for host in (LISTEN_HOST, METRICS_HOST):
        if settings[host] not in {"0.0.0.0", "::"}:
            yield f"{host.name} is {settings[host]}, where no other pod reaches it"
    reached = f"pod-0.{doc['spec']['serviceName']}.{doc['metadata']['namespace']}.svc"
    if settings[ADVERTISED_HOST] != reached:
        yield f"{ADVERTISED_HOST.name} is {settings[ADVERTISED_HOST]}, and the pod's name is {reached}"
    if settings[NODE_NAME] != "pod-0":
        yield f"{NODE_NAME.name} is {settings[NODE_NAME]!r}, which is not the pod's name"
    if settings[DATA_DIR] not in {mount["mountPath"] for mount in container["volumeMounts"]}:
        yield f"{DATA_DIR.name} is {settings[DATA_DIR]}, where nothing is mounted"
    grace = template_of(doc)["spec"]["terminationGracePeriodSeconds"]
    needed = _pre_stop_s(container) + settings[DRAIN_GRACE_MS] / 1000 + RELEASE_S
    if grace < needed:
        yield f"terminationGracePeriodSeconds is {grace}, and preStop, drain and release need {needed:.0f}"


def _pre_stop_s(container: Doc) -> int:
    words = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
    return int(words[1]) if words[:1] == ["sleep"] else 0


def probe_faults(docs: list[Doc]) -> list[str]:
    """Find probes that are missing or use another port or an unknown health service, and pods that do not drain."""
    found = []
    for doc in of_kind(docs, "StatefulSet", "Deployment"):
        for container in template_of(doc)["spec"]["containers"]:
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            asked = ports.get("health", ports.get("grpc"))
            found += [f"{name_of(doc)}: {fault}" for fault in _probe_faults(container, asked)]
    for doc in role_sets(docs):
        if not any(port["name"] == "grpc" for port in next(_roles_of(doc))["ports"]):
            found.append(f"{name_of(doc)}: it has no port grpc")
    return found


def init_faults(docs: list[Doc]) -> list[str]:
    """Find jobs and init containers that create the cluster with arguments that `sharegroups init` refuses, or with a
    wait that is shorter than the store may need, or longer than the job's own deadline."""
    found = []
    for doc in workloads(docs):
        for container in containers_of(doc):
            if container.get("command", [])[:2] != ["sharegroups", "init"]:
                continue
            try:
                wait_s = init.make_context("init", list(container["command"][2:])).params["wait_s"]
            except click.ClickException as error:
                found.append(f"{name_of(doc)}: init refuses its words: {error.message}")
                continue
            bound_s = doc["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] if doc["kind"] == "CronJob" else None
            if wait_s <= WAIT_S or (bound_s is not None and wait_s >= bound_s):
                found.append(
                    f"{name_of(doc)}: init waits {wait_s} s for the store, and may take {bound_s or 'for ever'}"
                )
    return found


def _roles_of(doc: Doc) -> Iterator[Doc]:
    return (each for each in containers_of(doc) if each["name"] == "role")


def _probe_faults(container: Doc, port: int | None) -> Iterator[str]:
    """Check the probes: our processes, which have a port named grpc, and with TLS one named health, must use their
    health services; others need any probe."""
    for probe, service in PROBES.items():
        asked = container.get(probe, {}).get("grpc")
        if probe not in container or (port is not None and asked is None):
            yield f"{probe} is missing"
        elif port is not None and asked != {"port": port, "service": service}:
            yield f"{probe} asks {json.dumps(asked)}, expected {service} on the port {port}"
    if port is not None and _pre_stop_s(container) < 1:
        yield "preStop does not wait for the endpoints to forget the pod"


def security_faults(docs: list[Doc]) -> list[str]:
    """Find what Pod Security's level `restricted` refuses, and violations of what this project requires beyond it."""
    found = []
    for doc in workloads(docs):
        pod = template_of(doc)["spec"]
        context = pod.get("securityContext", {})
        expected: list[tuple[str, object, object]] = [
            ("securityContext.runAsNonRoot", context.get("runAsNonRoot"), True),
            ("securityContext.seccompProfile", context.get("seccompProfile"), {"type": "RuntimeDefault"}),
            ("securityContext.runAsUser", context.get("runAsUser"), 10001),
            ("automountServiceAccountToken", pod.get("automountServiceAccountToken"), False),
            ("enableServiceLinks", pod.get("enableServiceLinks"), False),
        ]
        expected += [(name, pod.get(name, False), False) for name in ("hostNetwork", "hostPID", "hostIPC")]
        for container in containers_of(doc):
            own, name = container.get("securityContext", {}), container["name"]
            limits, requests = (container.get("resources", {}).get(kind, {}) for kind in ("limits", "requests"))
            expected += [
                (f"{name}.allowPrivilegeEscalation", own.get("allowPrivilegeEscalation"), False),
                (f"{name}.readOnlyRootFilesystem", own.get("readOnlyRootFilesystem"), True),
                (f"{name}.capabilities", own.get("capabilities"), {"drop": ["ALL"]}),
                (f"{name}.privileged", own.get("privileged", False), False),
                (f"{name}.resources.requests", {"cpu", "memory"} <= requests.keys(), True),
                (f"{name}.resources.limits", "memory" in limits, True),
            ]
        kinds = {kind for volume in pod.get("volumes", []) for kind in volume.keys() - {"name"}}
        allowed = {"configMap", "emptyDir", "secret", "projected", "persistentVolumeClaim"}
        expected.append(("volumes", sorted(kinds - allowed), []))
        found += [f"{name_of(doc)}: {what} is {got}, expected {want}" for what, got, want in expected if got != want]
    for doc in of_kind(docs, "Namespace"):
        labels = doc["metadata"]["labels"]
        if labels.get("pod-security.kubernetes.io/enforce") != "restricted":
            found.append(f"{name_of(doc)}: Pod Security does not enforce restricted")
        for mode in ("enforce", "audit", "warn"):
            if labels.get(f"pod-security.kubernetes.io/{mode}-version") != f"v{RELEASES[0]}":
                found.append(f"{name_of(doc)}: what Pod Security means by {mode} changes with the server")
    return found
