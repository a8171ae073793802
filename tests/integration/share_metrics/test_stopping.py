"""Commands are ended with Ctrl-C and SIGTERM. This is how a continuous ingest normally ends, so it reports its rows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from share_metrics.ingest.read_up_to import read_up_to
from tests.support.pipeline_entries import snapshot, update

from .world import SHAREGROUPS, Log, World

BOUND_S = 120


@pytest.mark.rule("PM-36", "PM-37", "PM-39")
def test_ctrl_c_ends_a_continuous_ingest_with_what_is_there(world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=1)
    Log(world, "{sgs:0}:log").state(snapshot(0), update(4))
    command = [SHAREGROUPS, "metrics", "ingest", "--store", world.url, "--data", str(tmp_path), "--continuous"]
    begun = datetime.now(UTC)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    before = []
    for line in process.stderr:
        before.append(line)
        if line.startswith("share_state: batch 0 is written"):
            break
    for _ in range(BOUND_S * 10):
        if read_up_to(tmp_path, datetime.now(UTC)) is not None:
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: Java and its workers get it too
    reported, said = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "ERROR" not in said
    assert said.splitlines()[-1] == "Stopped; run it again to continue."
    assert begun < (read_up_to(tmp_path, datetime.now(UTC)) or begun) < datetime.now(UTC)
    assert reported.splitlines() == [f"share_state: 3 rows in {tmp_path}", f"group: 0 rows in {tmp_path}"]


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command; it ends with the test at the latest."""
    command = [SHAREGROUPS, "metrics", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(BOUND_S)


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_replay_that_waits_for_its_store_ends_at_once(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(BOUND_S)
        store = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with started("replay", "--store", store, "--group", "g", "--topic", "t", "--partition", "0") as process:
            asked, _ = silent.accept()  # and the store never replies
            process.send_signal(number)
            assert process.communicate(timeout=BOUND_S) == ("", "")
            asked.close()
    assert process.returncode == 128 + number


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_report_ends_amid_the_start_of_spark(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "raw" / "share_state" / "batch=00000000").mkdir(parents=True)
    words = ["report", "--engine", "spark", "--data", str(tmp_path), "--out", str(tmp_path / "report.html")]
    with started(*words) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "Starting Spark …\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=BOUND_S)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert not (tmp_path / "report.html").exists()
