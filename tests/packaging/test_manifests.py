"""The rendered overlays of deploy/kubernetes are valid for the API server and for the services, and their documents
match."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shard_runtime.ownership.placement import ROLES

from .manifest_links import COMPONENT_LABEL, claims_of, faults
from .manifest_rules import scope_faults
from .manifests import (
    CUSTOM_KINDS,
    KUBERNETES,
    Doc,
    containers_of,
    environment_of,
    of_kind,
    render,
    render_folder,
    render_monitoring,
    role_sets,
    security_faults,
    template_of,
    workloads,
)

OVERLAYS = sorted(path.name for path in (KUBERNETES / "overlays").iterdir())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nothing_is_wrong_with_an_overlay(overlay: str) -> None:
    assert faults(render(overlay), overlay) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_role_has_its_pods(overlay: str) -> None:
    assert {doc["metadata"]["name"].replace("-", "_") for doc in role_sets(render(overlay))} == ROLES


def test_there_is_an_overlay_to_try_and_one_to_run() -> None:
    assert OVERLAYS == ["dev", "production"]


def test_production_runs_several_of_each_role_apart_from_each_other() -> None:
    for doc in role_sets(render("production")):
        assert doc["spec"]["replicas"] == 3
        apart = template_of(doc)["spec"]["topologySpreadConstraints"][1]
        assert (apart["topologyKey"], apart["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")


def test_production_demands_an_image_by_digest() -> None:
    """The digest in the repository is a placeholder that belongs to no image, on a host name that can never exist (RFC
    6761)."""
    (image,) = {container["image"] for doc in role_sets(render("production")) for container in containers_of(doc)}
    assert image == f"registry.invalid/sharegroups@sha256:{'0' * 64}"


def test_production_mounts_no_secret() -> None:
    """The overlay does not use TLS, so a certificate in it would be pointless."""
    for doc in role_sets(render("production")):
        assert [volume for volume in template_of(doc)["spec"]["volumes"] if "secret" in volume] == []


@pytest.mark.rule("CM-20")
def test_production_never_makes_a_cluster_by_itself() -> None:
    docs = render("production")
    (init,) = of_kind(docs, "CronJob")
    assert init["spec"]["suspend"] is True
    assert of_kind(docs, "Job") == []
    assert all("initContainers" not in template_of(doc)["spec"] for doc in role_sets(docs))


@pytest.mark.parametrize(("overlay", "word"), [("dev", "earliest"), ("production", "latest")])
def test_every_overlay_says_where_new_groups_begin(overlay: str, word: str) -> None:
    """It does not rely on a default that many users do not know."""
    docs = render(overlay)
    for doc in role_sets(docs):
        seen = [environment_of(container, doc["metadata"], docs) for container in containers_of(doc)]
        assert {each["SHAREGROUPS_GROUP_SHARE_AUTO_OFFSET_RESET"] for each in seen} == {word}


@pytest.mark.rule("SR-19")
def test_in_production_every_copy_of_the_store_confirms() -> None:
    """Only with this setting does no fail-over lose confirmed writes (docs/guarantees.md)."""
    docs = render("production")
    for doc in [*role_sets(docs), *of_kind(docs, "CronJob")]:
        for container in containers_of(doc):
            seen = environment_of(container, doc["metadata"], docs)
            replicas = int(seen["SHAREGROUPS_STORE_REPLICAS"])
            assert replicas >= 1
            assert int(seen["SHAREGROUPS_MIN_INSYNC_REPLICAS"]) == replicas + 1


def test_no_secret_lies_in_the_production_overlay() -> None:
    assert of_kind(render("production"), "Secret") == []


# ---- kinds that the validator has no schema for


def test_the_documented_order_begins_with_the_namespace() -> None:
    """Secrets cannot be created in a missing namespace, and no overlay creates the namespace."""
    words = (KUBERNETES.parent.parent / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
    steps = ["kubectl apply -k deploy/kubernetes/namespace", "create secret generic sharegroups-store"]
    steps += ["kubectl apply -k YOUR-OVERLAY", "create job init", "kubectl apply -k deploy/kubernetes/monitoring"]
    places = [words.index(step) for step in steps]
    assert places == sorted(places)
    assert "kubectl create namespace shop" in words


@pytest.mark.parametrize(
    "word",
    ["--delete-emptydir-data", "default storage class", "kind load docker-image", "rollout restart statefulset",
     "ACL SETUSER default", "imagePullSecrets", "kubectl scale", "--cascade=orphan", "is not authentication",
     "LISTEN_HOST=::"],
)  # fmt: skip
def test_what_no_manifest_can_do_is_documented(word: str) -> None:
    """A user must know these facts in advance. A tester on real API servers missed each of them."""
    assert word in (KUBERNETES.parent.parent / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")


def _one(kind: str) -> Doc:
    """Return the services' own document; the rules for the history have their own test."""
    (doc,) = (doc for doc in of_kind(render_monitoring(), kind) if doc["metadata"]["name"] == "sharegroups")
    assert doc["apiVersion"] == "monitoring.coreos.com/v1"
    return doc


def test_only_the_monitoring_component_brings_kinds_of_others() -> None:
    assert {doc["kind"] for doc in render_monitoring()} & CUSTOM_KINDS == {"PodMonitor", "PrometheusRule"}
    for overlay in OVERLAYS:
        assert not {doc["kind"] for doc in render(overlay)} & CUSTOM_KINDS


def test_an_admin_of_the_namespace_can_apply_and_delete_production() -> None:
    """Deleting it keeps the namespace, and with it the secrets and the history's volume, which were created by hand."""
    assert scope_faults(render("production"), CUSTOM_KINDS) == []
    (namespace,) = render_folder(KUBERNETES / "namespace")
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", "sharegroups")
    assert security_faults([namespace]) == []
    assert {doc["metadata"]["namespace"] for doc in [*render("production"), *render_monitoring()]} == {"sharegroups"}


def test_the_pod_monitor_reads_every_role() -> None:
    spec = _one("PodMonitor")["spec"]
    assert spec.keys() == {"selector", "podMetricsEndpoints", "podTargetLabels"}
    assert spec["podTargetLabels"] == [COMPONENT_LABEL], "alerts on a role that is gone look for it by this label"
    (endpoint,) = spec["podMetricsEndpoints"]
    for doc in role_sets(render("production")):
        assert spec["selector"]["matchLabels"].items() <= template_of(doc)["metadata"]["labels"].items()
        (container,) = containers_of(doc)
        assert endpoint["port"] in {port["name"] for port in container["ports"]}


def test_alerts_say_what_they_mean() -> None:
    """A real scrape in tests/integration/share_node/test_scrapes.py shows that the metrics they use are served."""
    for rule in _rules():
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description"}


def _rules() -> list[dict[str, Any]]:
    return [rule for group in _one("PrometheusRule")["spec"]["groups"] for rule in group["rules"]]


def test_alerts_fire_when_a_role_a_replica_or_a_volume_is_gone() -> None:
    """A missing process exports nothing, so each of these alerts must use metrics that others export."""
    rules = _rules()
    gone = {rule["labels"]["role"]: rule for rule in rules if rule["alert"] == "ShareGroupsRoleGone"}
    assert gone.keys() == {role.replace("_", "-") for role in ROLES}
    for role, rule in gone.items():
        found = re.fullmatch(r'absent\(up\{job=~"(.+)",app_kubernetes_io_component="(.+)"\} == 1\)', rule["expr"])
        assert found is not None
        assert found[2] == role
        _assert_chosen(found[1], _one("PodMonitor"))
        (doc,) = (doc for doc in role_sets(render("production")) if doc["metadata"]["name"] == role)
        assert template_of(doc)["metadata"]["labels"][COMPONENT_LABEL] == role
    expressions = {rule["alert"]: rule["expr"] for rule in rules}
    assert expressions["ShareGroupsPodGone"] == 'up{job=~".+/sharegroups"} == 0'
    assert (
        "sharegroups_store_replicas_connected - sharegroups_store_replicas_configured"
        in expressions["ShareGroupsStoreReplicaGone"]
    )
    claims = re.search(r'persistentvolumeclaim=~"([^"]+)"', expressions["ShareGroupsVolumeFills"])
    assert claims is not None
    for docs in (render_folder(KUBERNETES / "examples" / "pipeline"), render("dev")):
        (name,) = claims_of(docs)
        assert re.fullmatch(claims[1], name)


def _assert_chosen(pattern: str, monitor: Doc) -> None:
    """The Prometheus operator names a job NAMESPACE/MONITOR."""
    assert re.fullmatch(pattern, f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}")


def test_an_alert_fires_when_the_pipeline_is_gone() -> None:
    monitors = {doc["metadata"]["name"]: doc for doc in of_kind(render_monitoring(), "PodMonitor")}
    (history,) = (doc for doc in of_kind(render_monitoring(), "PrometheusRule") if "history" in doc["metadata"]["name"])
    rules = {rule["alert"]: rule["expr"] for group in history["spec"]["groups"] for rule in group["rules"]}
    jobs = re.findall(r'up\{job=~"([^"]+)"\}', rules["ShareGroupHistoryGone"])
    assert len(jobs) == 1, "one that does not answer"
    _assert_chosen(jobs[0], monitors["sharegroups-pipeline"])
    missed = "unless on (namespace) sharegroups_ingest_entries_behind"
    assert missed in rules["ShareGroupHistoryGone"], "one that is not there, whatever job scrapes it"


@pytest.mark.parametrize("path", sorted(KUBERNETES.rglob("*.yaml")), ids=lambda path: str(path.relative_to(KUBERNETES)))
def test_every_file_is_used_and_can_be_read(path: Any) -> None:
    """This test runs even where kubectl is missing."""
    assert [doc for doc in yaml.safe_load_all(path.read_text(encoding="utf-8")) if doc]
    if path.name == "kustomization.yaml":
        return
    kustomization = (path.parent / "kustomization.yaml").read_text(encoding="utf-8")
    assert re.search(rf"(?<![\w-]){re.escape(path.name)}", kustomization), f"{path} is in no kustomization"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (f"registry.example:5000/team/sharegroups@sha256:{'ab' * 32}", None),
        ("registry.example/sharegroups:latest", f"registry.invalid/sharegroups@sha256:{'0' * 64}"),
        ("", f"registry.invalid/sharegroups@sha256:{'0' * 64}"),
    ],
    ids=["digest", "tag", "none"],
)
def test_rendering_puts_the_image_in_only_by_its_digest(tmp_path: Path, image: str, expected: str | None) -> None:
    render("production")  # skips where kubectl is missing
    script = str(KUBERNETES / "render.sh")
    done = subprocess.run([script, str(tmp_path), image], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert ("still needs its image" in done.stderr) == (expected is not None)
    docs = [doc for doc in yaml.safe_load_all((tmp_path / "production.yaml").read_text(encoding="utf-8")) if doc]
    assert {each["image"] for doc in workloads(docs) for each in containers_of(doc)} == {expected or image}
    assert (tmp_path / "dev.yaml").stat().st_size > 0
