"""components/executors: Spark's driver with its pod's arguments, the executors' pods, and the Role's rights."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from share_metrics.ingest.writing import stored
from share_metrics.reader import Kind
from tests.packaging.manifests import KUBERNETES, Doc, of_kind, render_folder

from .conftest import SHORT_LIVED
from .kills import PART, STREAMS, Ledger, ends, kill_amid, reads
from .pods import Pods, api_server, granted, inherited
from .world import SHAREGROUPS, World

EXAMPLE = KUBERNETES / "examples" / "executors"
NAMESPACE = "sharegroups"
#: Requests that Spark also makes but can do without: to wait until the driver's pod is ready, and at the end to remove
#: volume claims, of which it has made none.
DONE_WITHOUT = {("watch", "pods"), ("deletecollection", "persistentvolumeclaims")}
TEMPLATE = "spark.kubernetes.executor.podTemplateFile"


def driver() -> Doc:
    (found,) = (doc for doc in of_kind(render_folder(EXAMPLE), "StatefulSet") if doc["metadata"]["name"] == "pipeline")
    return found


def words_of(one: Mapping[str, Any], reported: dict[str, str]) -> list[str]:
    """Return the arguments of a container, with values for its variables."""
    seen = {entry["name"]: entry.get("value", "") for entry in one["env"]} | reported
    return [re.sub(r"\$\((\w+)\)", lambda match: seen[match[1]], word) for word in one["args"]]


def changed(words: list[str], changes: Mapping[str, str]) -> list[str]:
    """Return the words with some replaced; each replaced word must exist."""
    assert changes.keys() <= set(words)
    return [changes.get(word, word) for word in words]


def job_of(one: Mapping[str, Any], url: str, store: str, folder: Path) -> list[str]:
    """Return the command of the driver's container, as a process on this machine that ends after the existing
    entries."""
    reported = {
        "PIPELINE_STORE_URL": store,
        "POD_NAME": "pipeline-0",
        "POD_NAMESPACE": NAMESPACE,
        "POD_IP": "127.0.0.1",
    }
    here = {
        "--continuous": "--once",
        "/var/lib/sharegroups/history": str(folder / "data"),
        "9464": "0",
        "72": "1000000",  # hours: the rows of this world are of 1970, and all of them are counted
        "0.0.0.0": "127.0.0.1",
        "k8s://https://kubernetes.default.svc": f"k8s://{url}",
        "spark.executor.memory=1g": "spark.executor.memory=512m",
        f"{TEMPLATE}=/etc/sharegroups/executor.yaml": f"{TEMPLATE}={folder / 'executor.yaml'}",
        "spark.driver.port=7078": "spark.driver.port=0",
        "spark.blockManager.port=7079": "spark.blockManager.port=0",
    }
    quick = ("spark.kubernetes.executor.apiPollingInterval=2s", f"spark.executor.extraJavaOptions={SHORT_LIVED}")
    job = [SHAREGROUPS, "metrics", *changed(words_of(one, reported), here), "--output", "json"]
    return [*job, *(word for each in quick for word in ("--conf", each))]


def inspect(made: list[dict[str, Any]], one: Mapping[str, Any], template: str) -> None:
    """Assert that each pod follows the template, has the driver's image, and is owned by the driver's pod."""
    own = yaml.safe_load(template)["spec"]
    for pod in made:
        assert pod["metadata"]["ownerReferences"][0]["name"] == "pipeline-0"
        for name in ("automountServiceAccountToken", "enableServiceLinks", "securityContext"):
            assert pod["spec"][name] == own[name]
        (container,) = pod["spec"]["containers"]
        assert container["image"] == one["image"]
        assert container["securityContext"] == own["containers"][0]["securityContext"]


@pytest.mark.rule("PM-36", "PM-71", "PM-72")
def test_with_no_more_rights_than_the_role_gives_executors_are_pods_and_each_row_is_there_once(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    """The job as seen by an API server and by executors in pods."""
    docs = render_folder(EXAMPLE)
    (role,) = (doc for doc in of_kind(docs, "Role") if doc["metadata"]["name"] == "pipeline-executors")
    maps = {doc["metadata"]["name"]: doc["data"] for doc in of_kind(docs, "ConfigMap")}
    (template,) = (data["executor.yaml"] for name, data in maps.items() if name.startswith("pipeline-executor-"))
    (one,) = driver()["spec"]["template"]["spec"]["containers"]
    (tmp_path / "executor.yaml").write_text(template)
    world.make_cluster(state_shards=len(STREAMS))
    ledger = Ledger(world)
    ledger.write()

    pods = Pods(granted(role), tmp_path, inherited())
    own = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "pipeline-0"}, "spec": {"containers": [one]}}
    pods.add(own, run=False)

    def busy() -> int | None:
        alive = [process.pid for process in list(pods.processes.values()) if process.poll() is None]
        return next((pid for pid in alive if reads(pid)), None)

    with api_server(pods, NAMESPACE) as url:
        env = inherited() | {"PIPELINE_STORE_PASSWORD": ""}
        job = job_of(one, url, world.url, tmp_path)
        result, _ = ends(job, lambda process: kill_amid(process, world, busy), env)
        assert pods.rights <= pods.asked  # no permission is superfluous
        assert pods.asked - pods.rights <= DONE_WITHOUT  # and none was missing

    assert json.loads(result)["rows"] == {"share_state": len(STREAMS) * (2 + PART), "group": 0, "log_meta": 0}
    found = stored(spark, tmp_path / "data", Kind.SHARE_STATE).select("stream", "entry_id").collect()
    assert Counter((row.stream, row.entry_id) for row in found) == ledger.totals()[0]
    assert len(pods.made) >= 3  # two, and a replacement for the killed one
    inspect(pods.made, one, template)
