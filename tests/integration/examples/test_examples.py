"""client/examples as programs of their own, on a real node and store."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroups import Admin, Producer
from tests.integration.cluster import BOUND_S, Cluster
from tests.integration.scenarios.wire import Wire

EXAMPLES = Path(__file__).parents[3] / "client" / "examples"


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """The examples name their topics and groups themselves."""
    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert admin.create_topics(["orders"]) == {"orders": None}
        yield cluster


def _run(name: str, *words: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def _start_offset(cluster: Cluster, group: str, topic: str = "orders") -> tuple[int, int]:
    async def asked() -> tuple[int, int]:
        async with Wire(cluster.bootstrap) as wire:
            return await wire.lag(group, topic)

    return asyncio.run(asked())


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"acknowledge.py", "produce_consume.py", "raw_stubs.py"}


def test_a_program_with_only_the_generated_stubs(own: Cluster) -> None:
    """No client library: what it imports is the generated modules and gRPC."""
    imported = re.findall(r"^(?:from|import) ([\w.]+)", (EXAMPLES / "raw_stubs.py").read_text(), re.MULTILINE)
    assert {name.split(".")[0] for name in imported} <= {"__future__", "asyncio", "sys", "uuid", "grpc", "kip932"}
    assert all(name.startswith("kip932.api.v1") for name in imported if name.startswith("kip932"))
    with Producer(bootstrap_servers=own.bootstrap) as producer:
        for number in range(7):
            producer.produce("orders", f"order {number}")
    said = _run("raw_stubs.py", own.bootstrap, "orders", "raw")
    assert said[:-1] == [f"partition 0 offset {number}: b'order {number}'" for number in range(7)]
    assert re.fullmatch(r"7 records from node \d+", said[-1])
    assert _start_offset(own, "raw") == (7, 0)


def test_produce_and_consume(own: Cluster) -> None:
    said = _run("produce_consume.py", own.bootstrap)
    assert [line.split(" ", 1)[1] for line in said[-10:]] == [f"order {number} delivery 1" for number in range(10)]
    start, lag = _start_offset(own, "workers")
    assert lag == 0
    assert start >= 10


@pytest.mark.rule("CL-23")
def test_acknowledge(own: Cluster) -> None:
    said = sorted(_run("acknowledge.py", own.bootstrap))
    assert said == [
        "12 delivery 1 ACCEPT",
        "13 delivery 1 ACCEPT",
        "14 delivery 1 RELEASE",
        "14 delivery 2 ACCEPT",
        "fourteen delivery 1 REJECT",
    ]
    assert _start_offset(own, "bank", "payments") == (4, 0)


def test_the_readme_shows_a_part_of_the_example() -> None:
    readme = (EXAMPLES.parents[1] / "README.md").read_text()
    shown = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "RELEASE" in block)
    example = [line.strip() for line in (EXAMPLES / "acknowledge.py").read_text().splitlines()]
    assert [line.strip() for line in shown.splitlines() if line.strip() not in example] == []
