"""`sharegroups metrics ingest --continuous` is ended with Ctrl-C: that is how it ends, so it says what is there."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from share_metrics.read_up_to import read_up_to
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
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: Java and its workers get it too
    told, said = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "ERROR" not in said
    assert said.splitlines()[-1] == "Stopped; run it again to go on."
    assert begun < (read_up_to(tmp_path, datetime.now(UTC)) or begun) < datetime.now(UTC)
    assert told.splitlines() == [f"share_state: 3 rows in {tmp_path}", f"group: 0 rows in {tmp_path}"]
