"""The demo's own cluster: `sharegroups up` as a child process on a temporary directory, gone afterwards."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from share_node.demo.run import DemoError

_STOP_WAIT_S: Final = 30.0


@contextlib.contextmanager
def temporary_cluster() -> Iterator[tuple[str, int]]:
    """(bootstrap address, milliseconds until it was ready). Raises DemoError when it does not start."""
    with tempfile.TemporaryDirectory(prefix="sharegroups-demo-") as data, (Path(data) / "up.log").open("w+") as log:
        command = [sys.executable, "-m", "share_node", "up", "--data", f"{data}/data", "--port", "0"]
        command += ["--output", "json", "--log-level", "warning"]
        node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert node.stdout is not None
            line = node.stdout.readline()
            if not line.startswith("{"):
                node.wait(_STOP_WAIT_S)
                log.seek(0)
                raise DemoError(f"the cluster did not start: {line.strip()} {log.read()[-2000:].strip()}")
            ready = json.loads(line)
            yield ready["bootstrap"], ready["started_in_ms"]
        finally:
            node.terminate()
            try:
                node.wait(_STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
            if node.stdout is not None:
                node.stdout.close()
