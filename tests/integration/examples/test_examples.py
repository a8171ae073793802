"""Runs client/examples as separate programs, on a real node and store."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroups import Admin, AlterConfig, ConfigResource, KafkaError, Producer
from tests.integration.scenarios.wire import Wire
from tests.support.node import BOUND_S, Cluster

EXAMPLES = Path(__file__).parents[3] / "client" / "examples"


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A cluster for this module alone, since the examples name their topics and groups themselves."""
    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert set(admin.create_topics(["orders", "raw-orders", "mails"]).values()) == {None}
        yield cluster


def _run(name: str, *words: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def _start_offset(cluster: Cluster, group: str, topic: str = "orders") -> tuple[int, int]:
    async def asked() -> tuple[int, int]:
        async with Wire(cluster.bootstrap, cluster.internal) as wire:
            return await wire.lag(group, topic)

    return asyncio.run(asked())


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "acknowledge.py",
        "long_jobs.py",
        "produce_consume.py",
        "raw_stubs.py",
        "worker.py",
    }


def test_a_program_with_only_the_generated_stubs(own: Cluster) -> None:
    """No client library: the program imports only the generated modules and gRPC."""
    imported = re.findall(r"^(?:from|import) ([\w.]+)", (EXAMPLES / "raw_stubs.py").read_text(), re.MULTILINE)
    assert {name.split(".")[0] for name in imported} <= {
        "__future__",
        "asyncio",
        "sys",
        "time",
        "uuid",
        "grpc",
        "kip932",
    }
    assert all(name.startswith("kip932.api.v1") for name in imported if name.startswith("kip932"))
    with Producer(bootstrap_servers=own.bootstrap) as producer:
        for number in range(7):
            producer.produce("raw-orders", f"order {number}")
    said = _run("raw_stubs.py", own.bootstrap, "raw-orders", "raw")
    assert said[0] == "stored 2 records in partition 0 from offset 7"
    assert said[1:-1] == [
        *(f"partition 0 offset {number}: b'order {number}'" for number in range(7)),
        "partition 0 offset 7: b'raw order 1'",
        "partition 0 offset 8: b'raw order 2'",
    ]
    assert re.fullmatch(r"9 records from node \d+", said[-1])
    assert _start_offset(own, "raw", "raw-orders") == (9, 0)
    again = _run("raw_stubs.py", own.bootstrap, "raw-orders", "raw")
    assert again[:-1] == [
        "stored 2 records in partition 0 from offset 9",
        "partition 0 offset 9: b'raw order 1'",
        "partition 0 offset 10: b'raw order 2'",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("127.0.0.1:1",), "no answer: UNAVAILABLE: failed to connect.*127.0.0.1:1.*host:port right"),
        (("127.0.0.1:1", "orders", "raw", "more"), r"usage: python raw_stubs.py \[host:port\] \[topic\] \[group\]"),
    ],
)
def test_the_stubs_alone_say_in_one_line_that_no_node_answers(words: tuple[str, ...], said: str) -> None:
    command = [sys.executable, str(EXAMPLES / "raw_stubs.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(said + ".*\n", done.stderr)


def test_produce_and_consume(own: Cluster) -> None:
    said = _run("produce_consume.py", own.bootstrap)
    assert [line.split(" ", 1)[1] for line in said] == [f"order {number} delivery 1" for number in range(10)]
    assert _start_offset(own, "workers") == (10, 0)


@pytest.mark.rule("CL-94")
def test_a_job_longer_than_its_lock_is_run_once(own: Cluster) -> None:
    with Admin(bootstrap_servers=own.bootstrap) as admin:
        assert admin.create_topics(["videos"]) == {"videos": None}
        lock = AlterConfig("share.record.lock.duration.ms", "3000")
        group = ConfigResource.group("encoders")
        assert admin.incremental_alter_configs({group: [lock]}) == {group: None}
    with Producer(bootstrap_servers=own.bootstrap) as producer:
        for seconds in ("8", "0.1"):
            producer.produce("videos", seconds)
    said = _run("long_jobs.py", own.bootstrap, "2")
    assert said == ["8 delivery 1 ACCEPT", "0.1 delivery 1 ACCEPT"]
    assert _start_offset(own, "encoders", "videos") == (2, 0)


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


def test_the_worker_and_what_readme_and_how_to_show_of_it(own: Cluster) -> None:
    source = (EXAMPLES / "worker.py").read_text()
    shown = source.partition('"""\n\n')[2]
    assert len(shown.splitlines()) <= 20
    for page in ("README.md", "docs/howto/workers.md"):
        assert f"```python\n{shown}```\n" in (EXAMPLES.parents[1] / page).read_text(), page
    with Producer(bootstrap_servers=own.bootstrap) as producer:
        for mail in ('{"to": "ann@example.org"}', "{}", "no JSON"):
            producer.produce("mails", mail)
    words = ["worker", "worker:worker", "--bootstrap-server", own.bootstrap]
    command = [sys.executable, "-c", "from sharegroups.cli import run; run()", *words]
    with subprocess.Popen(command, cwd=EXAMPLES, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + BOUND_S
            while not _has_done(own, "mail"):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            process.terminate()
            said, log = process.communicate(timeout=BOUND_S)
    assert process.returncode == 143
    assert said.splitlines()[-1] == "mail to ann@example.org"
    assert "was rejected: Reject: it has no address; it is rejected, and not delivered again" in log


def _has_done(cluster: Cluster, group: str) -> bool:
    """Return whether the group has initialised offsets and no lag."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        listed = admin.list_share_group_offsets({group: None})[group]
    return (
        not isinstance(listed, KafkaError)
        and bool(listed)
        and all(one is not None and one.lag == 0 for one in listed.values())
    )


def test_the_readme_shows_a_part_of_the_example() -> None:
    readme = (EXAMPLES.parents[1] / "README.md").read_text()
    shown = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "RELEASE" in block)
    example = [line.strip() for line in (EXAMPLES / "acknowledge.py").read_text().splitlines()]
    assert [line.strip() for line in shown.splitlines() if line.strip() not in example] == []
