"""The checks of the manifests find their faults: each test breaks one thing in a good overlay."""

from collections.abc import Callable

import pytest

from .manifest_links import (
    image_faults,
    network_faults,
    reference_faults,
    selector_faults,
)
from .manifests import (
    Doc,
    containers_of,
    init_faults,
    of_kind,
    probe_faults,
    render,
    role_sets,
    schema_faults,
    security_faults,
    settings_faults,
    template_of,
)

#: The policies that let others reach the roles.
REACHING = ("roles", "clients", "scaler-to-roles")

Break = Callable[[list[Doc]], object]
Check = Callable[[list[Doc]], list[str]]


def leader(docs: list[Doc]) -> Doc:
    return next(doc for doc in role_sets(docs) if doc["metadata"]["name"] == "partition-leader")


def pod(docs: list[Doc]) -> Doc:
    spec: Doc = template_of(leader(docs))["spec"]
    return spec


def role(docs: list[Doc]) -> Doc:
    container: Doc = next(each for each in pod(docs)["containers"] if each["name"] == "role")
    return container


def settings_map(docs: list[Doc]) -> Doc:
    (found,) = [doc for doc in of_kind(docs, "ConfigMap") if any(key.startswith("SHAREGROUPS_") for key in doc["data"])]
    return found


def settings(docs: list[Doc]) -> Doc:
    data: Doc = settings_map(docs)["data"]
    return data


def named(docs: list[Doc], kind: str, name: str) -> Doc:
    (found,) = [doc for doc in of_kind(docs, kind) if doc["metadata"]["name"] == name]
    return found


def assert_found(check: Check, do: Break, expected: str, overlay: str = "production") -> None:
    docs = render(overlay)
    assert check(docs) == [], "it was good before"
    do(docs)
    found = check(docs)
    assert any(expected in fault for fault in found), found


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: leader(docs)["spec"].update(replcas=3), "'replcas' was unexpected"),
        (lambda docs: role(docs).update(redinessProbe={}), "'redinessProbe' was unexpected"),
        (lambda docs: role(docs)["livenessProbe"]["grpc"].update(port="grpc"), "'grpc' is not of type 'integer'"),
        (lambda docs: leader(docs)["spec"].pop("selector"), "'selector' is a required property"),
        (lambda docs: leader(docs).update(apiVersion="apps/v2"), "Couldn't find schema for kind StatefulSet"),
    ],
    ids=["typo", "misspelt-probe", "port-name", "no-selector", "unknown-version"],
)
def test_what_the_api_server_refuses_or_ignores(do: Break, expected: str) -> None:
    assert_found(lambda docs: schema_faults([leader(docs)]), do, expected)


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: settings(docs).update(SHAREGROUPS_LISTEN_PROT="1"), "Did you mean 'SHAREGROUPS_LISTEN_PORT'"),
        (lambda docs: settings(docs).update(SHAREGROUPS_DRAIN_GRACE_MS="soon"), "not a whole number"),
        (lambda docs: settings(docs).update(SHAREGROUPS_LISTEN_PORT="7933"), "and listen.port is 7933"),
        (lambda docs: role(docs)["ports"].pop(), "port metrics is None"),
        (lambda docs: settings(docs).update(SHAREGROUPS_LISTEN_HOST="127.0.0.1"), "where no other pod reaches it"),
        (lambda docs: settings(docs).update(SHAREGROUPS_DRAIN_GRACE_MS="60000"), "terminationGracePeriodSeconds is 45"),
        (lambda docs: role(docs)["env"].reverse(), "POD_N"),
        (lambda docs: leader(docs)["spec"].update(serviceName="leaders"), "and the pod's name is pod-0.leaders."),
        (lambda docs: role(docs)["command"].__setitem__(-1, "share_coordinator"), "does not start the role"),
        (lambda docs: role(docs).update(command=["python", "-m", "partition_leader"]), "does not start the role"),
        (lambda docs: role(docs)["volumeMounts"].clear(), "where nothing is mounted"),
        (lambda docs: role(docs)["env"].pop(2), "node.name is ''"),
    ],
    ids=[
        "unknown-setting", "not-a-number", "wrong-port", "no-metrics-port", "loopback", "grace", "order-of-variables",
        "advertised", "other-role", "old-command", "read-only-data", "node-name",
    ],
)  # fmt: skip
def test_settings_that_the_services_refuse_or_that_differ_from_the_pod(do: Break, expected: str) -> None:
    assert_found(settings_faults, do, expected)


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: role(docs).pop("readinessProbe"), "readinessProbe is missing"),
        (lambda docs: role(docs).update(livenessProbe={"tcpSocket": {"port": 7932}}), "livenessProbe is missing"),
        (lambda docs: role(docs)["startupProbe"]["grpc"].update(port=7934), '"port": 7934'),
        (lambda docs: role(docs)["startupProbe"]["grpc"].update(service="startup"), "expected liveness"),
        (lambda docs: role(docs)["readinessProbe"]["grpc"].update(service="ready"), "expected readiness"),
        (lambda docs: role(docs)["livenessProbe"]["grpc"].update(service="readiness"), "expected liveness"),
        (lambda docs: role(docs).pop("lifecycle"), "preStop does not wait"),
    ],
    ids=["missing", "not-grpc", "wrong-port", "ends-who-waits", "unknown-service", "wrong-service", "no-pre-stop"],
)
def test_broken_probes_are_found(do: Break, expected: str) -> None:
    assert_found(probe_faults, do, expected)


@pytest.mark.parametrize(
    ("overlay", "words", "expected"),
    [
        ("production", [], "init waits 10 s for the store, and may take 300"),
        ("production", ["--wait", "300"], "init waits 300 s for the store"),
        ("production", ["--wiat", "60"], "init refuses its words"),
        ("dev", [], "init waits 10 s for the store, and may take for ever"),
    ],
)
def test_an_init_that_does_not_wait_for_the_store(overlay: str, words: list[str], expected: str) -> None:
    def do(docs: list[Doc]) -> None:
        for doc in (*of_kind(docs, "CronJob"), *role_sets(docs)):
            next(containers_of(doc))["command"] = ["sharegroups", "init", *words]

    assert_found(init_faults, do, expected, overlay)


def test_a_store_without_a_probe_is_found_too() -> None:
    def do(docs: list[Doc]) -> None:
        next(containers_of(named(docs, "StatefulSet", "store"))).pop("livenessProbe")

    assert_found(probe_faults, do, "StatefulSet store: livenessProbe is missing", "dev")


def test_the_scaler_is_held_to_the_same_health_services() -> None:
    def do(docs: list[Doc]) -> None:
        next(containers_of(named(docs, "Deployment", "scaler")))["startupProbe"]["grpc"].update(service="start")

    assert_found(probe_faults, do, "Deployment scaler: startupProbe asks")


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: pod(docs)["securityContext"].update(runAsNonRoot=False), "runAsNonRoot is False"),
        (lambda docs: pod(docs)["securityContext"].pop("seccompProfile"), "seccompProfile is None"),
        (lambda docs: pod(docs).pop("enableServiceLinks"), "enableServiceLinks is None"),
        (lambda docs: pod(docs).update(hostNetwork=True), "hostNetwork is True"),
        (
            lambda docs: role(docs)["securityContext"].update(readOnlyRootFilesystem=False),
            "readOnlyRootFilesystem is False",
        ),
        (lambda docs: role(docs)["securityContext"].pop("capabilities"), "capabilities is None"),
        (lambda docs: role(docs)["resources"].pop("limits"), "limits is False"),
        (lambda docs: pod(docs)["volumes"].append({"name": "x", "hostPath": {"path": "/"}}), "volumes is ['hostPath']"),
    ],
    ids=[
        "root",
        "seccomp",
        "service-links",
        "host-network",
        "writable-root",
        "capabilities",
        "no-limit",
        "host-path",
    ],
)
def test_pods_that_may_do_more_than_they_need(do: Break, expected: str) -> None:
    assert_found(security_faults, do, expected)


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("enforce", "baseline", "does not enforce restricted"),
        ("warn-version", "latest", "what Pod Security means by warn changes with the server"),
    ],
)
def test_a_namespace_that_lets_pods_do_more(name: str, label: str, expected: str) -> None:
    def do(docs: list[Doc]) -> None:
        labels = of_kind(docs, "Namespace")[0]["metadata"]["labels"]
        labels[f"pod-security.kubernetes.io/{name}"] = label

    assert_found(security_faults, do, expected, "dev")


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (
            lambda docs: leader(docs)["spec"].update(selector={"matchLabels": {"a": "b"}}),
            "does not choose its own pods",
        ),
        (lambda docs: named(docs, "Service", "sharegroups")["spec"].update(selector={"a": "b"}), "it chooses []"),
        (lambda docs: named(docs, "Service", "sharegroups")["spec"]["ports"][0].update(port=1), "port 1 leads to grpc"),
        (lambda docs: named(docs, "Service", "partition-leader")["spec"].pop("clusterIP"), "does not name every pod"),
        (lambda docs: docs.remove(named(docs, "PodDisruptionBudget", "partition-leader")), "0 disruption budgets"),
        (
            lambda docs: named(docs, "PodDisruptionBudget", "partition-leader")["spec"].update(selector={}),
            "counts pods of others too",
        ),
        (lambda docs: pod(docs).pop("topologySpreadConstraints"), "not spread"),
        (lambda docs: pod(docs)["topologySpreadConstraints"][0].pop("labelSelector"), "counts other pods"),
    ],
    ids=["set", "service", "port", "not-headless", "no-budget", "wide-budget", "no-spread", "spread-of-all"],
)
def test_selectors_that_do_not_meet_their_pods(do: Break, expected: str) -> None:
    assert_found(selector_faults, do, expected)


@pytest.mark.parametrize(
    ("check", "do", "expected"),
    [
        (reference_faults, lambda docs: docs.remove(settings_map(docs)), "there is no ConfigMap"),
        (
            reference_faults,
            lambda docs: pod(docs)["volumes"][0].update(secret={"secretName": "tls"}),
            "there is no Secret tls",
        ),
        (reference_faults, lambda docs: leader(docs)["metadata"].update(namespace="default"), "namespace is default"),
        (network_faults, lambda docs: docs.remove(named(docs, "NetworkPolicy", "default-deny")), "denies all"),
        (
            network_faults,
            lambda docs: named(docs, "NetworkPolicy", "clients")["spec"]["ingress"][0]["ports"][0].update(port=9090),
            "it opens 9090",
        ),
        (
            network_faults,
            lambda docs: [docs.remove(named(docs, "NetworkPolicy", name)) for name in REACHING],
            "no policy opens its port grpc",
        ),
        (
            lambda docs: image_faults(docs, by_digest=True),
            lambda docs: role(docs).update(image="registry.example/sharegroups:latest"),
            "is not named by a digest",
        ),
        (
            lambda docs: image_faults(docs, by_digest=False),
            lambda docs: role(docs).update(image="sharegroups:old"),
            "several images",
        ),
    ],
    ids=["config-map", "secret", "namespace", "no-deny", "closed-port", "unreachable", "tag", "images"],
)
def test_what_is_not_there(check: Check, do: Break, expected: str) -> None:
    assert_found(check, do, expected)
