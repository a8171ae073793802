"""The image of the Spark job as users start it: on a read-only root, beside a store, with its data on a volume."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from tests.support.stores import Server
from tests.upgrade.kept import read_dump

from .docker import run

#: Spark starts in half a minute on an otherwise idle machine.
JOB_BOUND_S = 300
VERSION = "0.1.0"


@pytest.fixture
def store() -> Iterator[Server]:
    """Yields a store with a cluster's data; no services run on it."""
    server = Server()
    try:
        asyncio.run(_restore(server))
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


async def _restore(server: Server) -> None:
    await server.start()
    for reply in await server.run(*read_dump(VERSION).commands()):
        assert not isinstance(reply, Exception), reply


class Job:
    """Runs the pipeline's image with `docker run` in this machine's network; its data stays on one volume."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._volume = f"sharegroups-test-{uuid.uuid4().hex[:8]}"

    def run(self, *words: str, entrypoint: str = "") -> str:
        """Run the job and return its standard output. If it fails, the test fails with that output."""
        hard = ["--read-only", "--tmpfs", "/tmp:exec", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        hard += ["--network", "host", "--volume", f"{self._volume}:/var/lib/sharegroups"]
        name = f"{self._volume}-{uuid.uuid4().hex[:4]}"
        begin = ["--entrypoint", entrypoint] if entrypoint else []
        command = ["docker", "run", "--rm", "--name", name, *hard, *begin, self._image, *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_BOUND_S, check=False)
        finally:
            subprocess.run(["docker", "rm", "--force", name], capture_output=True, timeout=JOB_BOUND_S, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def remove(self) -> None:
        """Remove the job's data."""
        run(["docker", "volume", "rm", "--force", self._volume])


def test_what_the_image_promises(pipeline_image: str) -> None:
    (facts,) = json.loads(run(["docker", "image", "inspect", pipeline_image]))
    config = facts["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["sharegroups", "metrics"]
    found = run(["docker", "run", "--rm", "--entrypoint", "sh", pipeline_image, "-c", "id -un; which pip java || true"])
    assert found.split() == ["sharegroups"]


@pytest.mark.rule("PM-65", "PM-70")
def test_it_keeps_every_entry_once_and_writes_a_page(store: Server, pipeline_image: str) -> None:
    """The job is run twice: no entry is doubled."""
    streams = read_dump(VERSION).streams
    job = Job(pipeline_image)
    try:
        ingest = ["ingest", "--store", f"redis://127.0.0.1:{store.port}", "--data", "history", "--output", "json"]
        for _ in range(2):
            rows = json.loads(job.run(*ingest).splitlines()[-1])["rows"]
            for kind, tag in (("share_state", "sgs"), ("group", "gc")):
                assert rows[kind] == sum(len(streams[f"{{{tag}:{shard}}}:log"]) for shard in (0, 1))
        job.run("report", "--data", "history", "--out", "report.html")
        page = job.run("/var/lib/sharegroups/report.html", entrypoint="cat")
        assert "billing" in page
        assert "orders" in page
    finally:
        job.remove()
