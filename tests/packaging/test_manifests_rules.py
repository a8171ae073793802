"""Faults that the manifests once had on real API servers are found if they come back: each case undoes one fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .manifest_rules import (
    answer_faults,
    apply_faults,
    egress_faults,
    internal_faults,
    request_faults,
    scope_faults,
    spread_faults,
)
from .manifests import (
    CUSTOM_KINDS,
    KUBERNETES,
    Doc,
    containers_of,
    of_kind,
    render,
    render_folder,
    render_monitoring,
    role_sets,
    template_of,
)

Break = Callable[[list[Doc]], object]
PIPELINE = KUBERNETES / "examples" / "pipeline"


def named(docs: list[Doc], kind: str, name: str) -> Doc:
    (found,) = [doc for doc in of_kind(docs, kind) if doc["metadata"]["name"] == name]
    return found


def container(docs: list[Doc], kind: str, name: str) -> Doc:
    return next(containers_of(named(docs, kind, name)))


def machines(docs: list[Doc]) -> Doc:
    rule: Doc = template_of(role_sets(docs)[0])["spec"]["topologySpreadConstraints"][1]
    return rule


def claim(docs: list[Doc]) -> Doc:
    found: Doc = named(docs, "StatefulSet", "pipeline")["spec"]["volumeClaimTemplates"][0]
    return found


def to(docs: list[Doc], policy: str) -> list[Any]:
    found: list[Any] = named(docs, "NetworkPolicy", policy)["spec"]["egress"][0]["to"]
    return found


@pytest.mark.parametrize(
    ("check", "do", "expected"),
    [
        (spread_faults, lambda docs: machines(docs).pop("nodeTaintsPolicy"), "a drained machine counts as one"),
        (spread_faults, lambda docs: machines(docs).update(nodeTaintsPolicy="Ignore"), "a drained machine counts"),
        (
            apply_faults,
            lambda docs: container(docs, "StatefulSet", "share-coordinator")["env"][0]["valueFrom"]["fieldRef"].pop(
                "apiVersion"
            ),
            "StatefulSet share-coordinator: variable POD_NAME has a fieldRef without apiVersion",
        ),
        (apply_faults, lambda docs: claim(docs).pop("kind"), "StatefulSet pipeline: the claim data leaves to"),
        (apply_faults, lambda docs: claim(docs).pop("status"), "the claim data leaves to the server"),
        (apply_faults, lambda docs: claim(docs)["spec"].pop("volumeMode"), "the claim data leaves to the server"),
        (
            request_faults,
            lambda docs: container(docs, "Deployment", "scaler")["resources"]["requests"].update(memory="64Mi"),
            "scaler asks for 64Mi, idle it takes 69Mi",
        ),
        (
            request_faults,
            lambda docs: container(docs, "CronJob", "init")["resources"]["requests"].update(memory="64Mi"),
            "init asks for 64Mi, idle it takes 66Mi",
        ),
        (
            request_faults,
            lambda docs: container(docs, "StatefulSet", "pipeline")["resources"]["requests"].pop("ephemeral-storage"),
            "StatefulSet pipeline: its volumes may take",
        ),
        (
            request_faults,
            lambda docs: container(docs, "CronJob", "pipeline-report")["resources"]["requests"].update(
                {"ephemeral-storage": "1Gi"}
            ),
            "CronJob pipeline-report: its volumes may take",
        ),
        (
            answer_faults,
            lambda docs: container(docs, "StatefulSet", "pipeline").update(
                livenessProbe={"tcpSocket": {"port": "metrics"}}
            ),
            "StatefulSet pipeline: livenessProbe does not wait for an answer",
        ),
        (
            internal_faults,
            lambda docs: next(c for c in containers_of(role_sets(docs)[0]) if c["name"] == "role")["ports"].pop(1),
            "port internal is None, which is not where it listens",
        ),
        (
            internal_faults,
            lambda docs: named(docs, "Service", "share-coordinator")["spec"]["ports"].pop(1),
            "Service share-coordinator: it does not name the port internal",
        ),
        (
            internal_faults,
            lambda docs: named(docs, "Service", "sharegroups")["spec"]["ports"][0].update(name="internal"),
            "Service sharegroups: it leads clients to what only roles call",
        ),
        (
            internal_faults,
            lambda docs: named(docs, "NetworkPolicy", "clients")["spec"]["ingress"][0]["ports"].append(
                {"protocol": "TCP", "port": 7933}
            ),
            "NetworkPolicy clients: ingress lets others than roles to port 7933",
        ),
        (
            internal_faults,
            lambda docs: docs.remove(named(docs, "NetworkPolicy", "roles")),
            "no policy lets roles call each other",
        ),
        (egress_faults, lambda docs: to(docs, "dns").pop(0), "no DNS at kube-system, port 53"),
        (egress_faults, lambda docs: to(docs, "dns").pop(1), "no DNS at openshift-dns, port 5353"),
        (egress_faults, lambda docs: to(docs, "dns").pop(2), "no DNS at 169.254.20.10/32, port 53"),
        (egress_faults, lambda docs: to(docs, "roles-to-store").pop(1), "roles-to-store: nothing leads to 172.16.0.0"),
        (egress_faults, lambda docs: to(docs, "roles-to-store").pop(3), "roles-to-store: nothing leads to fc00::/7"),
        (egress_faults, lambda docs: to(docs, "pipeline-to-store").pop(2), "pipeline-to-store: nothing leads to 192"),
    ],
)
def test_a_mend_that_is_taken_away_is_found(check: Callable[[list[Doc]], list[str]], do: Break, expected: str) -> None:
    docs = render_folder(PIPELINE)
    assert check(docs) == [], "it was good before"
    do(docs)
    found = check(docs)
    assert any(expected in fault for fault in found), found


def test_a_part_that_needs_the_cluster_is_found_in_production() -> None:
    """The namespace, or the Prometheus operator's kinds, as they once were there."""
    docs = render("production")
    assert scope_faults(docs, CUSTOM_KINDS) == []
    found = scope_faults([*docs, *render_folder(KUBERNETES / "namespace"), *render_monitoring()], CUSTOM_KINDS)
    assert "Namespace sharegroups needs more than the namespace" in found
    assert "PodMonitor sharegroups needs more than the namespace" in found
