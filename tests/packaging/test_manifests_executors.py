"""components/executors as examples/executors renders it: the pipeline as Spark's driver, and pods for its executors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise

import pytest
import yaml

from share_metrics.commands import ingest, settings_of
from share_metrics.spark.session import check_master

from .manifest_links import faults_of, matches
from .manifests import (
    KUBERNETES,
    Doc,
    containers_of,
    name_of,
    of_kind,
    render_folder,
    security_faults,
    template_of,
)

Break = Callable[[list[Doc]], object]
DRIVER, EXECUTOR = "pipeline", "pipeline-executor"


def rendered() -> list[Doc]:
    return render_folder(KUBERNETES / "examples" / "executors")


def named(docs: list[Doc], kind: str, name: str) -> Doc:
    """Return the document of this kind whose name starts with this prefix."""
    found: Doc = next(doc for doc in of_kind(docs, kind) if doc["metadata"]["name"].startswith(name))
    return found


def driver(docs: list[Doc]) -> Doc:
    return named(docs, "StatefulSet", DRIVER)


def executor(docs: list[Doc]) -> Doc:
    """Return the executors as a workload, as Spark creates them from the template with its configured size and
    image."""
    template = yaml.safe_load(named(docs, "ConfigMap", EXECUTOR)["data"]["executor.yaml"])
    (one,) = template["spec"]["containers"]
    one |= {
        "image": image_asked(docs),
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
    }
    meta = {"name": EXECUTOR, "namespace": driver(docs)["metadata"]["namespace"]}
    return {"kind": "Job", "metadata": meta, "spec": {"template": template}}


def image_asked(docs: list[Doc]) -> str:
    (one,) = containers_of(driver(docs))
    found: str = next(entry["value"] for entry in one["env"] if entry["name"] == "EXECUTOR_IMAGE")
    return found


def settings(docs: list[Doc]) -> dict[str, str]:
    (one,) = containers_of(driver(docs))
    return dict(settings_of(tuple(after for word, after in pairwise(one["args"]) if word == "--conf")))


def policies(docs: list[Doc], labels: Doc) -> list[Doc]:
    return [doc["spec"] for doc in of_kind(docs, "NetworkPolicy") if matches(doc["spec"]["podSelector"], labels)]


def opened(docs: list[Doc], labels: Doc, direction: str) -> set[int]:
    """Return the ports on which pods with these labels may be reached by (or may reach) the driver and executors."""
    side = {"ingress": "from", "egress": "to"}[direction]
    return {
        port["port"]
        for spec in policies(docs, labels)
        for rule in spec.get(direction, [])
        if any(peer.get("podSelector", {}).get("matchLabels", {}).keys() for peer in rule[side])
        for port in rule["ports"]
    }


def right_faults(docs: list[Doc]) -> list[str]:
    """Find permissions that the driver was not seen to use, other accounts that have them, and other pods with a
    token."""
    found = []
    wanted = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "deletecollection", "get", "list"]}
    ]
    if (rules := named(docs, "Role", DRIVER)["rules"]) != wanted:
        found.append(f"the role's rules are {rules}")
    subjects = named(docs, "RoleBinding", DRIVER)["subjects"]
    namespace = driver(docs)["metadata"]["namespace"]
    if subjects != [{"kind": "ServiceAccount", "name": DRIVER, "namespace": namespace}]:
        found.append(f"the rights are those of {subjects}")
    found += [
        f"{name_of(doc)} reaches beyond the namespace" for doc in of_kind(docs, "ClusterRole", "ClusterRoleBinding")
    ]
    everybody = [*docs, executor(docs)]
    found += [one for one in security_faults(everybody) if one != TOKEN]
    if TOKEN not in security_faults(docs) or template_of(driver(docs))["spec"].get("serviceAccountName") != DRIVER:
        found.append("the driver has no token of the account with its rights")
    return found


#: This is a fault in every other pod, but the driver calls the API server.
TOKEN = "StatefulSet pipeline: automountServiceAccountToken is True, expected False"


def own_faults(docs: list[Doc]) -> list[str]:
    """Find settings of the driver and the executors that do not match."""
    found, options = right_faults(docs), settings(docs)
    (one,), (other,) = containers_of(driver(docs)), containers_of(executor(docs))
    given = ingest.make_context("ingest", list(one["args"][1:])).params
    check_master(given["master"])
    if one["image"] != image_asked(docs):
        found.append(f"executors run {image_asked(docs)}, and the driver {one['image']}")
    mounted = {mount["mountPath"] for mount in one["volumeMounts"]}
    if options["spark.kubernetes.executor.podTemplateFile"] not in {f"{path}/executor.yaml" for path in mounted}:
        found.append(f"the template is at none of {sorted(mounted)}")
    (claim,) = driver(docs)["spec"]["volumeClaimTemplates"]
    volumes = template_of(executor(docs))["spec"]["volumes"]
    if claim["spec"]["accessModes"] != ["ReadWriteMany"]:
        found.append(f"the claim is {claim['spec']['accessModes']}, and several machines write it")
    shared = {"name": "data", "persistentVolumeClaim": {"claimName": f"{claim['metadata']['name']}-{DRIVER}-0"}}
    where = [mount["mountPath"] for mount in other["volumeMounts"] if mount["name"] == "data"]
    if shared not in volumes or not str(given["data"]).startswith(tuple(f"{path}/" for path in where)):
        found.append(f"executors have {volumes} at {where}, and the rows belong to {given['data']}")
    if given["password_env"] not in {entry["name"] for entry in other["env"]}:
        found.append(f"executors do not know {given['password_env']}")
    ports = {int(options["spark.driver.port"]), int(options["spark.blockManager.port"])}
    (blocks,) = (port["containerPort"] for port in other["ports"])
    if not ports <= {port["containerPort"] for port in one["ports"]} or blocks != int(
        options["spark.blockManager.port"]
    ):
        found.append(f"driver and executors listen at {sorted(ports)}, which are not the ports of their containers")
    ends = {"driver": template_of(driver(docs)), "executors": template_of(executor(docs))}
    for name, ingress, egress in (("driver", ports, {blocks}), ("executors", {blocks}, ports)):
        labels = ends[name]["metadata"]["labels"]
        if not (ingress <= opened(docs, labels, "ingress") and egress <= opened(docs, labels, "egress")):
            found.append(f"the {name} and what they talk to do not reach each other at {sorted(ingress | egress)}")
    return found


@pytest.mark.rule("PM-71", "PM-72")
def test_nothing_is_wrong_with_the_driver_and_its_executors() -> None:
    docs = rendered()
    assert own_faults(docs) == []
    left = [fault for fault in faults_of(docs, by_digest=True) if fault != TOKEN]
    assert [fault for fault in left if EXECUTOR not in fault] == []
    # Policies for pods that Spark creates are not a fault: those pods are in no document here.
    assert {fault.partition(":")[0] for fault in left} == {
        "NetworkPolicy pipeline-executor", "NetworkPolicy pipeline-executor-to-store"
    }  # fmt: skip


def test_executors_reach_the_store_as_the_driver_does_and_not_the_api_server() -> None:
    docs = rendered()
    stores = [
        named(docs, "NetworkPolicy", name)["spec"]["egress"] for name in ("pipeline-executor-to", "pipeline-to-s")
    ]
    assert stores[0] == stores[1]
    labels = template_of(executor(docs))["metadata"]["labels"]
    reached = {
        port["port"] for spec in policies(docs, labels) for rule in spec.get("egress", []) for port in rule["ports"]
    }
    assert not {443, 6443} & reached


def rule(docs: list[Doc]) -> Doc:
    found: Doc = named(docs, "Role", DRIVER)["rules"][0]
    return found


def _setting(docs: list[Doc], old: str, new: str) -> None:
    args: list[str] = next(containers_of(driver(docs)))["args"]
    args[args.index(old)] = new


@pytest.mark.rule("PM-72")
@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: rule(docs)["resources"].append("secrets"), "the role's rules are"),
        (lambda docs: rule(docs)["verbs"].append("*"), "the role's rules are"),
        (lambda docs: named(docs, "RoleBinding", DRIVER)["subjects"][0].update(name="default"), "the rights are those"),
        (lambda docs: docs.append(named(docs, "Role", DRIVER) | {"kind": "ClusterRole"}), "reaches beyond"),
        (lambda docs: template_of(driver(docs))["spec"].pop("serviceAccountName"), "has no token"),
        (lambda docs: _template(docs, "ServiceAccountToken: false", "ServiceAccountToken: true"),
         "Job pipeline-executor: automountServiceAccountToken is True"),
        (lambda docs: _template(docs, "readOnlyRootFilesystem: true", "privileged: true"), "executor.privileged is"),
        (lambda docs: _template(docs, "data-pipeline-0", "data"), "and the rows belong to"),
        (lambda docs: _template(docs, "PIPELINE_STORE_PASSWORD", "PASSWORD"), "executors do not know"),
        (lambda docs: _template(docs, "7079", "7080"), "not the ports of their containers"),
        (lambda docs: _setting(docs, "spark.driver.port=7078", "spark.driver.port=7077"), "not the ports of"),
        (lambda docs: next(containers_of(driver(docs))).update(image="other"), "and the driver other"),
        (lambda docs: driver(docs)["spec"]["volumeClaimTemplates"][0]["spec"].update(accessModes=["ReadWriteOnce"]),
         "several machines write it"),
        (lambda docs: named(docs, "NetworkPolicy", "pipeline-driver")["spec"]["ingress"].clear(), "the driver and"),
        (lambda docs: docs.remove(named(docs, "NetworkPolicy", "pipeline-executor")), "the executors and what"),
        (lambda docs: _setting(docs, f"{FILE}=/etc/sharegroups/executor.yaml", f"{FILE}=/etc/e.yaml"), "none of"),
    ],
    ids=[
        "secrets", "all-verbs", "default-account", "cluster-role", "no-account", "executor-token", "privileged",
        "claim", "password", "block-port", "driver-port", "image", "one-machine", "closed-driver", "closed-executors",
        "template",
    ],
)  # fmt: skip
def test_a_broken_driver_or_executor_is_found(do: Break, expected: str) -> None:
    docs = copy.deepcopy(rendered())
    do(docs)
    found = own_faults(docs)
    assert any(expected in fault for fault in found), found


FILE = "spark.kubernetes.executor.podTemplateFile"


def _template(docs: list[Doc], old: str, new: str) -> None:
    data = named(docs, "ConfigMap", EXECUTOR)["data"]
    assert old in data["executor.yaml"]
    data["executor.yaml"] = data["executor.yaml"].replace(old, new)
