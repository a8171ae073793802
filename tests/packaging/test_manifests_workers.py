"""examples/workers and production's scaler: the names in the ScaledObject exist, and the scaler accepts its
triggers."""

import re
from typing import Any

import pytest

from share_node.scaler.demand import AGE, LAG, trigger_of
from sharegroups.cli.consume import consume

from .manifest_links import image_faults
from .manifest_rules import request_faults
from .manifests import KUBERNETES, Doc, containers_of, of_kind, render, render_folder, schema_faults, template_of

EXAMPLE = KUBERNETES / "examples" / "workers"
SCALED_OBJECT = frozenset(
    [
        "scaleTargetRef",
        "minReplicaCount",
        "maxReplicaCount",
        "pollingInterval",
        "cooldownPeriod",
        "fallback",
        "triggers",
    ]
)


def one(docs: list[Doc], kind: str) -> Doc:
    (found,) = of_kind(docs, kind)
    return found


def service_addresses() -> set[str]:
    return {
        f"{doc['metadata']['name']}.{doc['metadata']['namespace']}.svc:{port['port']}"
        for doc in of_kind(render("production"), "Service")
        for port in doc["spec"]["ports"]
    }


def triggers() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = one(render_folder(EXAMPLE), "ScaledObject")["spec"]["triggers"]
    return found


def test_the_example_is_what_the_api_server_takes() -> None:
    assert schema_faults(render_folder(EXAMPLE)) == []


def test_the_scaled_object_has_these_fields_and_scales_the_workers() -> None:
    docs = render_folder(EXAMPLE)
    scaled, workers = one(docs, "ScaledObject"), one(docs, "Deployment")
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    spec = scaled["spec"]
    assert spec.keys() == SCALED_OBJECT
    assert spec["scaleTargetRef"] == {"name": workers["metadata"]["name"]}
    assert "replicas" not in workers["spec"], "the number is KEDA's"
    assert spec["fallback"].keys() == {"failureThreshold", "replicas", "behavior"}
    assert 0 == spec["minReplicaCount"] < spec["fallback"]["replicas"] < spec["maxReplicaCount"]


def test_the_workers_ask_for_what_they_take() -> None:
    assert request_faults(render_folder(EXAMPLE)) == []


def test_a_scaler_that_cannot_be_asked_takes_no_worker_away() -> None:
    """KEDA's default, `static`, would scale twenty busy workers down to two."""
    assert one(render_folder(EXAMPLE), "ScaledObject")["spec"]["fallback"]["behavior"] == "currentReplicasIfHigher"


@pytest.mark.parametrize("path", ["deploy/kubernetes/examples/workers/scaled-object.yaml", "docs/howto/deploy.md"])
def test_the_release_of_keda_that_takes_this_is_named(path: str) -> None:
    """KEDA before 2.18 refuses a fallback together with a trigger of the type Value, and scaling from zero needs
    2.19."""
    assert "KEDA 2.19 or newer" in (KUBERNETES.parent.parent / path).read_text(encoding="utf-8")


def test_the_example_demands_an_image_by_digest_as_production_does() -> None:
    assert image_faults(render_folder(EXAMPLE), by_digest=True) == []


def test_the_scaler_understands_its_triggers() -> None:
    for trigger in triggers():
        assert trigger.keys() == {"type", "metricType", "metadata"}
        assert trigger["type"] == "external"
        assert all(isinstance(text, str) for text in trigger["metadata"].values()), "KEDA takes text only"
        assert trigger["metadata"]["scalerAddress"] in service_addresses()
    # Lag is divided among the workers; an age is not, so it is compared as it is.
    kinds = {tuple(trigger_of(trigger["metadata"]).targets): trigger["metricType"] for trigger in triggers()}
    assert kinds == {(LAG,): "AverageValue", (AGE,): "Value"}


def test_the_triggers_ask_for_the_group_and_the_topic_that_the_workers_consume() -> None:
    workers = one(render_folder(EXAMPLE), "Deployment")
    (container,) = containers_of(workers)
    tool, word, *options = container["command"]
    assert (tool, word) == ("sharegroups", "consume")
    given = consume.make_context("consume", list(options)).params
    assert given["bootstrap_server"] in service_addresses()
    for trigger in triggers():
        asked = trigger_of(trigger["metadata"])
        assert (asked.group, asked.topics) == (given["group"], frozenset([given["topic"]]))


def test_the_network_lets_the_workers_in() -> None:
    labels = template_of(one(render_folder(EXAMPLE), "Deployment"))["metadata"]["labels"]
    (clients,) = [doc for doc in of_kind(render("production"), "NetworkPolicy") if doc["metadata"]["name"] == "clients"]
    ((source,),) = [rule["from"] for rule in clients["spec"]["ingress"]]
    assert source["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_scaler_begins_at_the_service_of_the_cluster() -> None:
    docs = render("production")
    (container,) = containers_of(
        next(doc for doc in of_kind(docs, "Deployment") if doc["metadata"]["name"] == "scaler")
    )
    bootstrap = container["command"][container["command"].index("--bootstrap-server") + 1]
    names = {
        f"{doc['metadata']['name']}:{port['port']}" for doc in of_kind(docs, "Service") for port in doc["spec"]["ports"]
    }
    assert bootstrap in names


@pytest.mark.parametrize("name", ["lagTarget", "ageTargetSeconds"])
def test_the_example_shows_every_target(name: str) -> None:
    """This test runs even where kubectl is missing."""
    assert re.search(rf"^ +{name}: ", (EXAMPLE / "scaled-object.yaml").read_text(encoding="utf-8"), re.MULTILINE)


def test_leaders_can_be_scaled_by_what_they_compute() -> None:
    """The target is less than a core, which is all that one event loop can use."""
    docs = render_folder(KUBERNETES / "examples" / "leaders")
    assert schema_faults(docs) == []
    spec = one(docs, "HorizontalPodAutoscaler")["spec"]
    (leader,) = (
        doc
        for doc in of_kind(render("production"), "StatefulSet")
        if (doc["kind"], doc["metadata"]["name"]) == (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"])
    )
    assert spec["minReplicas"] == leader["spec"]["replicas"]
    (metric,) = spec["metrics"]
    wanted = metric["containerResource"]
    assert wanted["container"] in {each["name"] for each in containers_of(leader)}
    assert 500 <= int(wanted["target"]["averageValue"].removesuffix("m")) < 1_000
    assert all(policy["value"] == 1 for way in spec["behavior"].values() for policy in way["policies"])
