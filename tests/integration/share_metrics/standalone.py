"""A Spark cluster on this machine: a master and two one-core workers as separate processes, and jobs on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final
from zipfile import ZipFile

import pyspark
from pyspark.find_spark_home import _find_spark_home

import kip932
import share_metrics
from share_metrics import __main__ as program
from share_metrics.java import java_home
from tests.chaos.processes import descendants
from tests.support.ports import free_port

from .conftest import SHORT_LIVED
from .kills import BOUND_S, reads

#: The settings of every job: small executors, and no task before both have registered.
_GIVEN: Final = (
    "spark.executor.memory=512m",
    f"spark.executor.extraJavaOptions={SHORT_LIVED}",
    "spark.driver.host=127.0.0.1",
    "spark.cores.max=2",
    "spark.scheduler.minRegisteredResourcesRatio=1",
)
SETTINGS: Final = tuple(word for one in _GIVEN for word in ("--conf", one))
#: The workers do not have this project: a job that is not submitted with its modules sets their path.
HERE: Final = ("--conf", f"spark.executorEnv.PYTHONPATH={os.environ.get('PYTHONPATH', '')}")
_EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def environment(*, foreign: bool = False) -> dict[str, str]:
    """Return the environment of Spark's processes; with `foreign`, PYTHONPATH does not contain this project."""
    home = java_home()
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED}
    own["PYSPARK_PYTHON"] = sys.executable  # spark-submit uses it for the driver, this package for executors
    found = os.environ | own | ({"JAVA_HOME": home} if home else {})
    return {name: value for name, value in found.items() if not (foreign and name == "PYTHONPATH")}


@contextmanager
def daemon(name: str, folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start one of Spark's own processes; it is ended with the block."""
    command = [str(Path(_find_spark_home()) / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
    with (folder / f"{name}.{words[3]}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(foreign=True), cwd=folder)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(BOUND_S)


def reported(port: int) -> dict[str, Any]:
    """Return the workers and applications on the master's page; empty while the master is not up.

    At first, its web server responds with another page.
    """
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=5) as page:
            found: dict[str, Any] = json.load(page)
            return found
    except (OSError, json.JSONDecodeError):
        return {}


class Standalone:
    """A running cluster."""

    def __init__(self, url: str, folder: Path, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        self.url = url
        self._folder = folder
        self._workers = workers

    def executors_of(self, number: int) -> int:
        """Return the number of executors that a worker has had, over all jobs."""
        return len(list((self._folder / f"work{number}").glob("app-*/*")))

    def busy_executor(self) -> int | None:
        """Return the pid of an executor that has a Python worker, and therefore is reading."""
        for worker in self._workers:
            for pid, command in descendants(worker.pid).items():
                if _EXECUTOR in command and reads(pid):
                    return pid
        return None

    def submitted(self, *words: str) -> list[str]:
        """Return a spark-submit command that runs a command of `sharegroups metrics` here."""
        assert program.__file__ is not None
        return [*self._submit(), *HERE, program.__file__, *words]

    def sent(self, folder: Path, *words: str) -> tuple[list[str], Path]:
        """Like `submitted`, for a Python without this project, whose modules are sent along as a zip; also returns the
        zip."""
        package, modules = folder / "package.zip", [Path(kip932.__file__).parent, Path(share_metrics.__file__).parent]
        with ZipFile(package, "w") as zipped:
            for module in modules:
                for path in module.rglob("*.py"):
                    zipped.write(path, path.relative_to(module.parent))
        file = folder / "metrics.py"
        file.write_text("from share_metrics.__main__ import main\n\nmain()\n")
        foreign = f"spark.pyspark.python={_foreign_python(folder / 'python')}"
        return [*self._submit(), "--conf", foreign, "--py-files", str(package), str(file), *words], package

    def _submit(self) -> list[str]:
        return [str(Path(_find_spark_home()) / "bin" / "spark-submit"), "--master", self.url, *SETTINGS]


def _foreign_python(folder: Path) -> str:
    """Create a Python environment that has everything that is installed here except this project."""
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True, env={}).stdout.strip()
    # A .pth file adds the folder's packages, but does not process that folder's own .pth files (this project's).
    (Path(site) / "others.pth").write_text(f"{Path(pyspark.__file__).parent.parent}\n")
    alone = [python, "-c", "import pyspark, pyarrow, redis, click"]
    subprocess.run(alone, check=True, env={})
    lacking = subprocess.run([python, "-c", "import share_metrics"], capture_output=True, check=False, env={})
    assert lacking.returncode != 0, "it has this project"
    return python


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """Run a cluster for a while. Raises AssertionError if it does not come up."""
    port, page = free_port(), free_port()
    with ExitStack() as stack:
        words = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        stack.enter_context(daemon("master.Master", folder, *words))
        url = f"spark://127.0.0.1:{port}"
        workers = []
        for number in range(2):
            own = ("--host", "127.0.0.1", "--port", str(free_port()), "--webui-port", "0")
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"))
            workers.append(stack.enter_context(daemon("worker.Worker", folder, *own, *size, url)))
        pause = Event()
        for _ in range(BOUND_S * 5):
            if reported(page).get("aliveworkers") == 2:
                break
            pause.wait(0.2)
        assert reported(page).get("aliveworkers") == 2, [path.read_text()[-800:] for path in folder.glob("*.log")]
        yield Standalone(url, folder, workers)
