"""components/pipeline as examples/pipeline renders it: the job accepts its arguments and keeps its data on a volume."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import click
import pytest

from share_metrics.commands import ingest, report, settings_of

from .manifest_links import COMPONENT_LABEL, PIPELINE, REPORT, faults_of, image_faults, reference_faults
from .manifest_rules import size_of
from .manifests import (
    KUBERNETES,
    Doc,
    containers_of,
    environment_of,
    name_of,
    of_kind,
    render_folder,
    render_monitoring,
    security_faults,
    template_of,
    workloads,
)

EXAMPLE = KUBERNETES / "examples" / "pipeline"
Break = Callable[[list[Doc]], object]
#: Bytes of history in a day, at 1,000 writes and 1,000 batches a second (docs/pipeline.md).
DAY_BYTES: Final = 2.4e9 + 1.9e9
#: The part of a volume from which on the alert ShareGroupsVolumeFills fires.
ALERT: Final = 0.85


def rendered() -> list[Doc]:
    """Return the example's documents and the monitoring for it, which is applied separately."""
    return [*render_folder(EXAMPLE), *render_monitoring()]


def job(docs: list[Doc]) -> Doc:
    found: Doc = next(doc for doc in of_kind(docs, "StatefulSet") if doc["metadata"]["name"] == PIPELINE)
    return found


def container(docs: list[Doc]) -> Doc:
    (found,) = containers_of(job(docs))
    return found


def page_job(docs: list[Doc]) -> Doc:
    found: Doc = next(doc for doc in of_kind(docs, "CronJob") if doc["metadata"]["name"] == REPORT)
    return found


def page_container(docs: list[Doc]) -> Doc:
    (found,) = containers_of(page_job(docs))
    return found


def policy(docs: list[Doc], name: str) -> Doc:
    found: Doc = next(doc for doc in of_kind(docs, "NetworkPolicy") if doc["metadata"]["name"] == name)
    return found


def job_faults(docs: list[Doc]) -> list[str]:
    """Find faults in the job's arguments, and in where it writes."""
    doc, one = job(docs), container(docs)
    seen = environment_of(one, doc["metadata"], docs)
    word, *options = [re.sub(r"\$\((\w+)\)", lambda match: seen.get(match[1], match[0]), arg) for arg in one["args"]]
    if word != ingest.name:
        return [f"its command is {word}, expected {ingest.name}"]
    try:
        given = ingest.make_context("ingest", options).params
    except click.ClickException as error:
        return [f"the job refuses its words: {error.message}"]
    found = []
    if not given["store"].startswith("redis"):
        found.append(f"--store is {given['store']}, which no variable stands for")
    if given["password_env"] not in seen:
        found.append(f"--password-env names {given['password_env']}, which is not a variable of the pod")
    ports = {port["name"]: port["containerPort"] for port in one["ports"]}
    if (given["metrics_port"], given["metrics_host"]) != (ports.get("metrics"), "0.0.0.0"):
        found.append(f"gauges are served at {given['metrics_host']}:{given['metrics_port']}, the port is {ports}")
    if given["once"]:
        found.append("it ends with what is there, and a StatefulSet would start it again and again")
    claims = {claim["metadata"]["name"] for claim in doc["spec"]["volumeClaimTemplates"]}
    kept = [mount["mountPath"] for mount in one["volumeMounts"] if mount["name"] in claims]
    if not any(str(given["data"]).startswith(f"{path}/") for path in kept):
        found.append(f"--data is {given['data']}, and volumes that stay are mounted at {kept}")
    if doc["spec"]["replicas"] != 1:
        found.append(f"{doc['spec']['replicas']} processes would write one directory")
    if not given["log_meta"]:
        found.append("without --log-meta lag has no age")
    return found + history_faults(doc, given["keep_hours"])


def history_faults(doc: Doc, keep_hours: float | None) -> list[str]:
    """Find a history that fills its volume: old rows are dropped once a day, so a day more is kept (PM-72)."""
    if keep_hours is None:
        return ["without --keep-hours the history grows until the volume is full"]
    kept = (keep_hours / 24 + 1) * DAY_BYTES
    sizes = [claim["spec"]["resources"]["requests"]["storage"] for claim in doc["spec"]["volumeClaimTemplates"]]
    return [
        f"its volume has {size}, and {keep_hours:.0f} hours of history are {kept / 1e9:.1f} GB"
        for size in sizes
        if kept > ALERT * size_of(size)
    ]


def page_faults(docs: list[Doc]) -> list[str]:
    """Find faults in the job that writes the page: its arguments, its schedule, and the pod next to which it must
    run."""
    doc, one = page_job(docs), page_container(docs)
    seen = environment_of(one, doc["metadata"], docs)
    word, *options = [re.sub(r"\$\((\w+)\)", lambda match: seen.get(match[1], match[0]), arg) for arg in one["args"]]
    if word != report.name:
        return [f"the page's command is {word}, expected {report.name}"]
    try:
        given = report.make_context("report", options).params
    except click.ClickException as error:
        return [f"the page's job refuses its words: {error.message}"]
    found = []
    if ["--data", str(given["data"])] not in map(list, pairwise(container(docs)["args"])):
        found.append(f"the page is of {given['data']}, where the pipeline keeps nothing")
    volumes = {each["name"]: each for each in template_of(doc)["spec"]["volumes"]}
    kept = [each["mountPath"] for each in one["volumeMounts"] if "persistentVolumeClaim" in volumes[each["name"]]]
    found += [
        f"the page's --{name} is {given[name]}, and volumes that stay are mounted at {kept}"
        for name in ("data", "out")
        if not any(str(given[name]).startswith(f"{path}/") for path in kept)
    ]
    if (doc["spec"]["concurrencyPolicy"], doc["spec"].get("suspend", False)) != ("Forbid", False):
        found.append(f"the page's job has concurrencyPolicy {doc['spec']['concurrencyPolicy']}, or is suspended")
    beside = template_of(doc)["spec"].get("affinity", {}).get("podAffinity", {})
    rules = [
        (rule["topologyKey"], rule["labelSelector"])
        for rule in beside.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    ]
    if rules != [("kubernetes.io/hostname", job(docs)["spec"]["selector"])]:
        found.append(f"the page's job runs beside {rules}, and the volume is where the pipeline runs")
    return found


def size_faults(docs: list[Doc]) -> list[str]:
    """Find faults in a pod's requests and limits, its heap, and its space for temporary files (PM-72)."""
    found = []
    for doc in (job(docs), page_job(docs)):
        (one,) = containers_of(doc)
        size = one.get("resources", {})
        asked, most = size.get("requests"), size.get("limits", {}).get("memory")
        if (asked, most) != ({"cpu": "1", "memory": "2Gi", "ephemeral-storage": "9Gi"}, "3Gi"):
            found.append(f"{name_of(doc)}: it asks for {asked} and may take {most}")
        words = one["args"]
        conf = settings_of(tuple(after for word, after in pairwise(words) if word == "--conf"))
        if dict(conf).get("spark.driver.memory") != "1g":
            found.append(f"{name_of(doc)}: its heap is {dict(conf).get('spark.driver.memory')}, expected 1g")
        scratch = {each["name"] for each in template_of(doc)["spec"]["volumes"] if "emptyDir" in each}
        if "/tmp" not in [each["mountPath"] for each in one["volumeMounts"] if each["name"] in scratch]:
            found.append(f"{name_of(doc)}: Spark and Java have nowhere to unpack: no emptyDir is mounted at /tmp")
    return found


def monitor_faults(docs: list[Doc]) -> list[str]:
    """Find what keeps Prometheus from scraping a pod's port `metrics`, or makes it scrape a pod twice."""
    found = []
    for doc in (each for each in workloads(docs) if "metrics" in _ports(each)):
        labels = template_of(doc)["metadata"]["labels"]
        chosen = [each for each in of_kind(docs, "PodMonitor") if _chooses(each).items() <= labels.items()]
        if len(chosen) != 1:
            found.append(f"{name_of(doc)} is read by {[each['metadata']['name'] for each in chosen]}")
        for spec in (each["spec"] for each in chosen):
            if not {"selector", "podMetricsEndpoints"} <= spec.keys() <= {
                "selector", "podMetricsEndpoints", "podTargetLabels",
            }:  # fmt: skip
                found.append(f"{name_of(doc)}: its PodMonitor has {sorted(spec)}")
            read = [(endpoint["port"], endpoint["path"]) for endpoint in spec["podMetricsEndpoints"]]
            if read != [("metrics", "/metrics")]:
                found.append(f"{name_of(doc)}: its PodMonitor reads {read}")
    return found


def _ports(doc: Doc) -> set[str]:
    return {port["name"] for one in containers_of(doc) for port in one.get("ports", [])}


def _chooses(doc: Doc) -> dict[str, str]:
    labels: dict[str, str] = doc["spec"]["selector"].get("matchLabels", {})
    return labels


def all_faults(docs: list[Doc]) -> list[str]:
    return [*faults_of(docs, by_digest=True), *own_faults(docs)]


def own_faults(docs: list[Doc]) -> list[str]:
    """Find the faults that only this component can have."""
    return [*job_faults(docs), *page_faults(docs), *size_faults(docs), *monitor_faults(docs)]


def monitor(docs: list[Doc]) -> Doc:
    found: Doc = next(doc for doc in of_kind(docs, "PodMonitor") if doc["metadata"]["name"] == "sharegroups-pipeline")
    return found


@pytest.mark.rule("PM-65", "PM-71", "PM-72")
def test_nothing_is_wrong_with_production_and_the_pipeline_beside_it() -> None:
    assert all_faults(rendered()) == []


@pytest.mark.rule("PM-5")
def test_the_password_is_a_variable_of_its_own_and_never_in_the_words() -> None:
    one = container(rendered())
    sources = {entry["name"]: entry["valueFrom"]["secretKeyRef"] for entry in one["env"]}
    assert {source["key"] for source in sources.values()} == {"url", "password"}
    assert not any("PASSWORD)" in word for word in one["args"])


def test_it_reaches_the_store_and_only_prometheus_reaches_it() -> None:
    docs = rendered()
    chosen = [doc for doc in of_kind(docs, "NetworkPolicy") if _is_for_pipeline(doc)]
    assert {doc["metadata"]["name"] for doc in chosen} == {"pipeline", "pipeline-to-store"}
    ((source,),) = [rule["from"] for rule in policy(docs, "pipeline")["spec"]["ingress"]]
    assert source == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    roles = policy(docs, "roles-to-store")["spec"]["egress"]
    assert policy(docs, "pipeline-to-store")["spec"]["egress"] == roles


def _is_for_pipeline(doc: Doc) -> bool:
    wanted = doc["spec"]["podSelector"].get("matchLabels", {})
    return bool(wanted) and wanted.items() <= template_of(job(rendered()))["metadata"]["labels"].items()


def _replace_word(docs: list[Doc], old: str, new: str) -> None:
    args: list[str] = container(docs)["args"]
    args[args.index(old)] = new


def _without(docs: list[Doc], option: str) -> None:
    """Remove an option and its value."""
    args: list[str] = container(docs)["args"]
    del args[args.index(option) : args.index(option) + 2]


def _page_words(docs: list[Doc], old: str, new: str) -> None:
    args: list[str] = page_container(docs)["args"]
    args[args.index(old)] = new


@pytest.mark.rule("PM-72")
@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: job(docs)["spec"].update(replicas=2), "2 processes would write one directory"),
        (lambda docs: page_job(docs)["spec"].update(concurrencyPolicy="Allow"), "concurrencyPolicy Allow"),
        (lambda docs: page_job(docs)["spec"].update(suspend=True), "or is suspended"),
        (lambda docs: container(docs)["resources"]["requests"].update(cpu="2"), "it asks for {'cpu': '2'"),
        (lambda docs: container(docs)["resources"]["limits"].update(memory="1Gi"), "may take 1Gi"),
        (lambda docs: page_container(docs)["resources"]["requests"].update(memory="1Gi"), "pipeline-report: it asks"),
        (lambda docs: _replace_word(docs, "spark.driver.memory=1g", "spark.driver.memory=4g"), "its heap is 4g"),
        (lambda docs: _page_words(docs, "spark.driver.memory=1g", "spark.ui.enabled=false"), "its heap is None"),
        (lambda docs: template_of(job(docs))["spec"]["securityContext"].pop("runAsNonRoot"), "runAsNonRoot is None"),
        (
            lambda docs: template_of(page_job(docs))["spec"]["securityContext"].pop("runAsNonRoot"),
            "CronJob pipeline-report: securityContext.runAsNonRoot is None",
        ),
        (
            lambda docs: page_container(docs)["securityContext"].pop("readOnlyRootFilesystem"),
            "CronJob pipeline-report: report.readOnlyRootFilesystem is None",
        ),
        (
            lambda docs: template_of(page_job(docs))["spec"]["volumes"][0]["persistentVolumeClaim"].update(
                claimName="data"
            ),
            "there is no PersistentVolumeClaim data",
        ),
        (lambda docs: job(docs)["spec"]["volumeClaimTemplates"].clear(), "volumes that stay are mounted at []"),
        (lambda docs: page_container(docs)["volumeMounts"].pop(0), "the page's --data is"),
        (lambda docs: _page_words(docs, "$(PAGE)/index.html", "/tmp/report.html"), "the page's --out is"),
        (lambda docs: page_container(docs)["volumeMounts"].pop(1), "CronJob pipeline-report: Spark and Java"),
        (lambda docs: template_of(page_job(docs))["spec"].pop("affinity"), "runs beside []"),
        (lambda docs: _page_words(docs, "--data", "--dat"), "the page's job refuses its words"),
        (lambda docs: _page_words(docs, "/var/lib/sharegroups/history", "/var/lib/sharegroups/h"), "the page is of"),
        (lambda docs: page_container(docs).update(image=f"registry.invalid/sharegroups@sha256:{'0' * 64}"),
         "which is the services'"),
    ],
    ids=[
        "two-writers", "two-pages", "suspended", "cpu", "limit", "page-memory", "heap", "page-heap", "root",
        "page-root", "page-writable-root", "no-such-claim", "no-claim", "page-no-claim", "page-in-scratch",
        "page-no-tmp", "elsewhere", "page-typo", "other-data", "page-wrong-image",
    ],
)  # fmt: skip
def test_a_broken_shape_of_the_two_jobs_is_found(do: Break, expected: str) -> None:
    docs = rendered()
    do(docs)  # a fault that schemas do not find
    found = [*own_faults(docs), *security_faults(docs), *reference_faults(docs), *image_faults(docs, by_digest=True)]
    assert any(expected in fault for fault in found), found


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda docs: job(docs)["spec"].update(replcas=1), "'replcas' was unexpected"),
        (lambda docs: job(docs)["spec"].update(replicas=2), "2 processes would write one directory"),
        (lambda docs: container(docs).pop("livenessProbe"), "livenessProbe is missing"),
        (lambda docs: container(docs)["securityContext"].pop("readOnlyRootFilesystem"), "readOnlyRootFilesystem is"),
        (lambda docs: container(docs).pop("resources"), "resources.limits is False"),
        (lambda docs: _replace_word(docs, "--trigger", "--triger"), "No such option"),
        (lambda docs: _replace_word(docs, "9464", "9465"), "gauges are served at 0.0.0.0:9465"),
        (lambda docs: _replace_word(docs, "--continuous", "--once"), "it ends with what is there"),
        (lambda docs: _replace_word(docs, "PIPELINE_STORE_PASSWORD", "PASSWORD"), "names PASSWORD"),
        (lambda docs: container(docs)["args"].remove("--log-meta"), "lag has no age"),
        (lambda docs: _replace_word(docs, "72", "120"), "120 hours of history are 25.8 GB"),
        (lambda docs: _without(docs, "--keep-hours"), "grows until the volume is full"),
        (lambda docs: container(docs)["env"].pop(0), "which no variable stands for"),
        (lambda docs: container(docs)["volumeMounts"].pop(0), "volumes that stay are mounted at []"),
        (lambda docs: container(docs)["volumeMounts"].pop(1), "no emptyDir is mounted at /tmp"),
        (
            lambda docs: container(docs)["env"][0]["valueFrom"]["secretKeyRef"].update(name="no"),
            "there is no Secret no",
        ),
        (
            lambda docs: container(docs).update(image=f"registry.invalid/sharegroups@sha256:{'0' * 64}"),
            "which is the services'",
        ),
        (lambda docs: container(docs).update(image="sharegroups-pipeline:dev"), "is not named by a digest"),
        (lambda docs: policy(docs, "pipeline")["spec"]["ingress"][0]["ports"][0].update(port=1), "it opens 1, which"),
        (
            lambda docs: template_of(job(docs))["metadata"]["labels"].update({COMPONENT_LABEL: "other"}),
            "its selector does not choose its own pods",
        ),
        (
            lambda docs: monitor(docs)["spec"]["selector"]["matchLabels"].update({COMPONENT_LABEL: "pipelines"}),
            "StatefulSet pipeline is read by []",
        ),
        (lambda docs: monitor(docs)["spec"]["selector"].update(matchLabels={}), "'sharegroups-pipeline']"),
        (lambda docs: monitor(docs)["spec"].update(podMetricEndpoints=[]), "has ['podMetricEndpoints', "),
        (lambda docs: monitor(docs)["spec"]["podMetricsEndpoints"][0].update(port="gauges"), "reads [('gauges'"),
        (lambda docs: monitor(docs)["spec"]["podMetricsEndpoints"][0].update(path="/"), "reads [('metrics', '/')]"),
    ],
    ids=[
        "typo", "two", "no-probe", "writable-root", "no-limit", "unknown-option", "wrong-port", "ends", "no-password",
        "no-age", "long-history", "endless-history", "no-store", "no-volume", "no-tmp", "no-secret", "wrong-image",
        "tag", "closed-port", "labels",
        "unwatched", "watches-all", "misspelt-endpoints", "unknown-port", "wrong-path",
    ],
)  # fmt: skip
def test_a_broken_pipeline_is_found(do: Break, expected: str) -> None:
    docs = rendered()
    do(docs)
    found = all_faults(docs)
    assert any(expected in fault for fault in found), found
