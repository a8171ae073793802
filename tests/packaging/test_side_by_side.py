"""The plugin tests/side_by_side.py keeps each row of tests in one process; tried on a small suite of its own."""

import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from tests.packaging.test_tidy import ROOT
from tests.side_by_side import ROWS

#: More tests than are assigned to a process ahead of time, so that a test outside every row would visibly move.
TESTS = "def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\ndef test_d(): pass\n"
MODULES = (
    "tests/attack/test_one.py",
    "tests/chaos/test_two.py",
    "tests/integration/scenarios/test_three.py",
    "tests/integration/share_metrics/test_four.py",
    "tests/integration/share_metrics/test_five.py",
    "tests/integration/share_metrics/test_cluster.py",
    "tests/integration/share_metrics/test_standalone.py",
    "tests/integration/share_node/test_six.py",
    "tests/unit/test_seven.py",
    "tests/unit/test_eight.py",
    "tests/upgrade/test_nine.py",
)


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in a folder in several processes."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.side_by_side"),
            *("--rootdir", str(folder), "-c", os.devnull, "-v", "--dist", "loadgroup", *options, "tests"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def processes_of(folder: Path) -> dict[str, set[str]]:
    """Return which processes ran tests of each module."""
    for name in MODULES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TESTS)
    done = run(folder, "--numprocesses", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    found: defaultdict[str, set[str]] = defaultdict(set)
    ran = re.findall(r"^\[(gw\d)\].* PASSED (\S+)::(\w+)", done.stdout, re.MULTILINE)
    assert len(ran) == 4 * len(MODULES), done.stdout
    for process, module, _ in ran:
        found[module].add(process)
    return found


def test_a_row_runs_in_one_process_and_so_does_each_module(tmp_path: Path) -> None:
    found = processes_of(tmp_path)
    assert all(len(processes) == 1 for processes in found.values()), found
    waiting = {name for name in MODULES if name.startswith(("tests/attack", "tests/chaos", "tests/upgrade"))}
    waiting.add("tests/integration/scenarios/test_three.py")
    assert len({process for name in waiting for process in found[name]}) == 1
    for names in ("test_four", "test_five"), ("test_cluster", "test_standalone"):
        spark = {process for name in MODULES if Path(name).stem in names for process in found[name]}
        assert len(spark) == 1
        assert spark != found["tests/chaos/test_two.py"], "the rows begin side by side"


def test_each_module_that_a_row_names_is_there() -> None:
    for beginning in ROWS["jobs of Spark"]:
        assert (ROOT / "tests" / f"{beginning}py").is_file(), beginning


def test_a_test_that_hangs_ends_its_process_and_is_named_and_the_others_run(tmp_path: Path) -> None:
    module = tmp_path / "tests" / "test_hanging.py"
    module.parent.mkdir()
    module.write_text("import threading\n" + TESTS.replace("test_b(): pass", "test_b(): threading.Event().wait()"))
    (tmp_path / "tests" / "test_other.py").write_text(TESTS.replace("test_c(): pass", "test_c(): assert 1 == 2"))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["faulthandler_timeout"] > 0
    assert settings["faulthandler_exit_on_timeout"]
    done = run(
        tmp_path, "--numprocesses", "2", "-o", "faulthandler_timeout=2", "-o", "faulthandler_exit_on_timeout=true"
    )
    assert re.search(r"^failed: tests/test_hanging.py::test_b: worker '\w+' crashed", done.stdout, re.MULTILINE)
    assert "\nfailed: tests/test_other.py::test_c: assert 1 == 2\n" in done.stdout
    assert "2 failed, 6 passed" in done.stdout, done.stdout
    assert "in test_b" in done.stderr, "the stacks of its threads are printed"
