"""The same job on a Spark cluster: one master and two workers, each a process of its own (PM-71)."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from share_metrics.ingest import stored
from share_metrics.java import java_home
from share_metrics.reader import Kind
from tests.support.pipeline_entries import snapshot, update
from tests.support.ports import free_port

from .conftest import SHORT_LIVED
from .world import SHAREGROUPS, Log, World

STREAMS = [f"{{sgs:{number}}}:log" for number in range(4)]
BOUND_S = 400


def environment() -> dict[str, str]:
    home = java_home()
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED}
    return os.environ | own | ({"JAVA_HOME": home} if home else {})


@contextmanager
def daemon(name: str, folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark's own, ended afterwards."""
    command = [str(Path(_find_spark_home()) / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
    with (folder / f"{name}.{words[3]}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(), cwd=folder)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(BOUND_S)


def told(port: int) -> dict[str, Any]:
    """What the master's page says about its workers and applications; nothing while it is not up.

    Its web server answers before it knows this page, with another one.
    """
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=5) as page:
            found: dict[str, Any] = json.load(page)
            return found
    except (OSError, json.JSONDecodeError):
        return {}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    port, page = free_port(), free_port()
    with ExitStack() as stack:
        words = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        stack.enter_context(daemon("master.Master", tmp_path, *words))
        url = f"spark://127.0.0.1:{port}"
        for number in range(2):
            own = ("--host", "127.0.0.1", "--port", str(free_port()), "--webui-port", "0")
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work{number}"))
            stack.enter_context(daemon("worker.Worker", tmp_path, *own, *size, url))
        pause = Event()
        for _ in range(BOUND_S * 5):
            if told(page).get("aliveworkers") == 2:
                break
            pause.wait(0.2)
        assert told(page).get("aliveworkers") == 2, [path.read_text()[-800:] for path in tmp_path.glob("*.log")]
        yield url


@pytest.mark.rule("PM-71")
def test_a_standalone_cluster_runs_the_same_job(spark: SparkSession, world: World, master: str, tmp_path: Path) -> None:
    world.make_cluster(state_shards=len(STREAMS))
    for stream in STREAMS:
        Log(world, stream).state(snapshot(0), *(update(number) for number in range(1, 30)))
    data = tmp_path / "data"
    command = [SHAREGROUPS, "metrics", "ingest", "--store", world.url, "--data", str(data)]
    settings = (
        "spark.executor.memory=512m",
        f"spark.executor.extraJavaOptions={SHORT_LIVED}",
        "spark.driver.host=127.0.0.1",
        "spark.scheduler.minRegisteredResourcesRatio=1",
    )
    command += ["--master", master, "--output", "json", *(word for one in settings for word in ("--conf", one))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, env=environment(), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["rows"] == {"share_state": 31 * len(STREAMS), "group": 0}
    found = stored(spark, data, Kind.SHARE_STATE).select("stream", "entry_id").collect()
    expected = sorted((stream, key.decode()) for stream in STREAMS for key, _ in world.redis.xrange(stream))
    assert sorted((row.stream, row.entry_id) for row in found) == expected
    assert [len(list((tmp_path / f"work{number}").glob("app-*/*"))) for number in range(2)] == [
        1,
        1,
    ]  # an executor each
