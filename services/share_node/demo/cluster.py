"""The demo's own cluster: `sharegroups up` as a child process, on a temporary directory that is removed afterwards.

The directory can be kept instead, so that a person can inspect the persisted data.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from share_node.data_directory import DataDirectory, DataDirectoryError
from share_node.demo.run import DemoError
from share_node.serve import WITH_PARENT

_STOP_WAIT_S: Final = 30.0


#: The data that a demo leaves in a kept directory, next to its log; the next demo there removes it.
DATA: Final = "cluster"


@contextlib.contextmanager
def own_cluster(keep: Path | None = None) -> Iterator[tuple[str, int]]:
    """Start a cluster; yield (bootstrap address, milliseconds until it was ready). Its data is in `keep`/cluster if
    given.

    Raises DemoError when it does not start, or another demo runs in `keep`.
    """
    with _folder(keep) as data, (Path(data) / "up.log").open("w+") as log:
        command = [sys.executable, "-m", "share_node", "up", "--data", f"{data}/{DATA}", "--port", "0"]
        command += ["--output", "json", "--log-level", "warning", WITH_PARENT]
        # A session of its own: so Ctrl-C at the terminal only reaches the demo, which first dismisses its workers. When
        # the demo is killed, the cluster's standard input closes.
        node = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
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
            for pipe in (node.stdin, node.stdout):
                if pipe is not None:
                    pipe.close()


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[str]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="sharegroups-demo-") as folder:
            yield folder
        return
    data = keep / DATA
    try:
        if data.exists():
            lock = DataDirectory(data).lock("store")
            lock.acquire("a demo that starts")
            shutil.rmtree(data)
            lock.release()
        keep.mkdir(parents=True, exist_ok=True)
    except (DataDirectoryError, OSError) as error:
        raise DemoError(f"cannot keep the demo's data in {keep}: {error}") from error
    yield str(keep)
