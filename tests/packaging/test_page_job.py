"""The ingest pod and the job that writes its page: their shape, and the job's arguments, as a shell runs them."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from share_metrics.commands import report, time_of

COMPONENT = Path(__file__).parents[2] / "deploy/kubernetes/components/pipeline"
MANIFEST = COMPONENT / "cron-job.yaml"


@pytest.mark.rule("PM-61", "PM-72")
def test_the_page_of_the_last_hour_ends_now_not_at_the_newest_entry(tmp_path: Path) -> None:
    """Otherwise, once everything has stopped, the page would show the hour before that, however long ago it was."""
    job: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    now = datetime(2026, 11, 22, 10, 5, 7, tzinfo=UTC)
    stand_ins = {
        "sharegroups": 'printf "%s\\n" "$@"',
        "mkdir": ":",
        "date": f'{which("date")} -d @{now.timestamp():.0f} "$@"',
    }
    for name, line in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    given = {each["name"]: each["value"] for each in container["env"]}
    args = [word.replace("$(PAGE)", given["PAGE"]) for word in container["args"]]  # as the kubelet does
    printed = subprocess.run(
        [*container.get("command", ["sharegroups", "metrics"]), *args],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "TZ": "Asia/Tokyo", **given},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    group, word, *options = printed.stdout.splitlines()
    assert (group, word) == ("metrics", report.name)
    assert options[: len(args) - 1] == args[1:]
    found = report.make_context("report", options).params
    assert found["begin"] is None
    assert found["end"] is not None
    assert time_of(found["end"]) == now


def pods() -> list[dict[str, Any]]:
    """Return the pod of the ingest StatefulSet, and that of the job that writes the page."""
    ingest = yaml.safe_load((COMPONENT / "statefulset.yaml").read_text())
    page = yaml.safe_load(MANIFEST.read_text())
    assert (ingest["kind"], page["kind"]) == ("StatefulSet", "CronJob")
    return [ingest["spec"]["template"]["spec"], page["spec"]["jobTemplate"]["spec"]["template"]["spec"]]


@pytest.mark.rule("PM-3", "PM-72")
def test_one_pod_ingests_and_the_page_is_written_beside_it_from_its_claim() -> None:
    ingest = yaml.safe_load((COMPONENT / "statefulset.yaml").read_text())
    page = yaml.safe_load(MANIFEST.read_text())
    assert ingest["spec"]["replicas"] == 1
    (claim,) = ingest["spec"]["volumeClaimTemplates"]
    (of_ingest,), (of_page,) = (pod["containers"] for pod in pods())
    assert of_ingest["image"] == of_page["image"] == "sharegroups-pipeline"
    assert "--continuous" in of_ingest["args"]
    kept = {mount["name"]: mount["mountPath"] for mount in of_ingest["volumeMounts"]}[claim["metadata"]["name"]]
    assert of_ingest["args"][of_ingest["args"].index("--data") + 1].startswith(f"{kept}/")
    assert page["spec"]["concurrencyPolicy"] == "Forbid"
    (beside,) = pods()[1]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert (beside["topologyKey"], beside["labelSelector"]) == ("kubernetes.io/hostname", ingest["spec"]["selector"])
    mounted = [volume["persistentVolumeClaim"] for volume in pods()[1]["volumes"] if "persistentVolumeClaim" in volume]
    assert mounted == [{"claimName": f"{claim['metadata']['name']}-{ingest['metadata']['name']}-0"}]


@pytest.mark.rule("PM-72")
@pytest.mark.parametrize("number", [0, 1], ids=["ingest", "page"])
def test_each_pod_has_its_size_and_writes_only_where_it_may(number: int) -> None:
    pod = pods()[number]
    (one,) = pod["containers"]
    assert one["resources"]["requests"] | {"cpu": "1", "memory": "2Gi"} == one["resources"]["requests"]
    assert one["resources"]["limits"] == {"memory": "3Gi"}
    assert "spark.driver.memory=1g" in one["args"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert one["securityContext"]["readOnlyRootFilesystem"] is True
    scratch = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
    assert {mount["mountPath"] for mount in one["volumeMounts"] if mount["name"] in scratch} == {"/tmp"}


@pytest.mark.rule("PM-72")
def test_nothing_lets_the_page_reach_anybody_and_no_operator_of_spark_is_asked_for() -> None:
    every = [doc for path in COMPONENT.glob("*.yaml") for doc in yaml.safe_load_all(path.read_text())]
    base = list(yaml.safe_load_all((COMPONENT.parents[1] / "bases/common/network-policies.yaml").read_text()))
    deny_all = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert deny_all in [doc["spec"] for doc in base]  # denies what no other policy allows
    page = {"app.kubernetes.io/component": "pipeline-report"}
    policies = [doc for doc in every if doc["kind"] == "NetworkPolicy"]
    assert policies
    assert not [doc for doc in policies if doc["spec"]["podSelector"].get("matchLabels", {}).items() <= page.items()]
    assert "SparkApplication" not in {doc["kind"] for doc in every}
