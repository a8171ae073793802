"""Checks the table of docs/howto/forks.md, for the start methods that need no third-party server: each combination
works or is refused with the reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroups import Admin, Producer
from tests.support.node import BOUND_S, Cluster, unique

_PROGRAM = Path(__file__).with_name("forking.py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.mark.rule("CL-149")
@pytest.mark.parametrize("what", ["clients", "threads", "processes"])
@pytest.mark.parametrize("before", ["unused", "used"])
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_client_or_worker_in_a_child_works_or_is_refused_at_once(
    cluster: Cluster, method: str, before: str, what: str
) -> None:
    topic = unique("forks")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        admin.create_topics([topic])
        producer.produce(topic, b"job")
    words = [sys.executable, str(_PROGRAM), cluster.bootstrap, topic, method, before, what]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND_S, check=False)
    said, status = done.stdout.splitlines() or ["", done.stderr]
    assert status == "0", done.stderr
    if (method, before) == ("fork", "used"):
        assert said.startswith("refused: no client can be made in process "), done.stderr
        assert "Use clients only after the fork" in said
    elif what == "clients":
        assert said.startswith("left 0 failed [None] listed 1 received "), done.stderr
    else:
        assert said == "1", done.stderr
