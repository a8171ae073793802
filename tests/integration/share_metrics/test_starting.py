"""Spark as a separate process: it logs nothing, and ends when the process that started it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.chaos.processes import Handle, descendants

BOUND_S = 60.0
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the parent process has set
from share_metrics.spark import build_session
session = build_session("history")
print(session.sparkContext.master, session.range(3).count())
"""


def started() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def java_of(process: subprocess.Popen[str]) -> Handle:
    """Return the Java process that it starts; waits until there is one."""
    until = time.monotonic() + BOUND_S
    while time.monotonic() < until:
        for pid, command in descendants(process.pid).items():
            # The launcher, a separate Java with the same arguments, runs before it and ends by itself.
            if "org.apache.spark.deploy.SparkSubmit" in command and "org.apache.spark.launcher.Main" not in command:
                return Handle(pid)
    raise AssertionError("no Java was started")


def test_ctrl_c_amid_the_start_leaves_no_java_behind() -> None:
    process = started()
    java = java_of(process)
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=BOUND_S)
        assert said.rstrip().endswith("KeyboardInterrupt")
        assert java.wait(BOUND_S)
    finally:
        java.signal(signal.SIGKILL)
        java.close()


@pytest.mark.rule("PM-39")
def test_spark_says_nothing_of_its_own() -> None:
    reported, said = started().communicate(timeout=BOUND_S)
    assert reported == "local[2] 3\n"
    # Java itself warns of modules that Spark's launcher always requests; which ones depends on the runtime.
    assert [line for line in said.splitlines() if not line.startswith("WARNING: ")] == []
