"""SIGTERM to `sharegroups produce` while it waits for a topic or a cluster: records that it has not sent are not stored
later."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import IO

import pytest

from tests.support.node import BOUND_S, TERMINATED, Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def _has_read(pipe: IO[str]) -> None:
    """Wait until the command has read its input line, and a moment longer."""
    for _ in range(BOUND_S * 10):
        is_empty = not int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)
        time.sleep(0.1)
        if is_empty:
            return
    raise AssertionError("the command does not read its input")


@pytest.mark.rule("CT-80")
@pytest.mark.parametrize(("bootstrap", "trouble"), [("", "does not exist"), ("127.0.0.1:1", "no cluster answers")])
def test_a_producer_that_waits_says_of_its_records_that_they_were_never_sent(
    cluster: Cluster, bootstrap: str, trouble: str
) -> None:
    command = [sys.executable, "-c", "import sharegroups.cli; sharegroups.cli.run()", "produce", "nosuchtopic"]
    with subprocess.Popen(
        [*command, "--bootstrap-server", bootstrap or cluster.bootstrap],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as tool:  # fmt: skip
        assert tool.stdin is not None
        assert tool.stderr is not None
        try:
            tool.stdin.write("x\n")
            tool.stdin.flush()
            assert trouble in tool.stderr.readline()
            _has_read(tool.stdin)
            tool.send_signal(signal.SIGTERM)
            assert tool.wait(BOUND_S) == TERMINATED
            said = tool.stderr.read()
        finally:
            tool.kill()
    assert "after line 1 of the input: 0 records delivered, 0 failed, 0 not confirmed, 1 never sent." in said
