"""Programs whose handler processes cannot start: the worker ends and gives the reason once. Also a job that kills its
worker."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroups import Admin, AlterConfig, ConfigResource, Producer, TopicPartition
from tests.support.node import BOUND_S, Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.mark.rule("CL-122")
def test_processes_that_never_get_ready_end_the_worker_with_the_reason(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "jobs.py").write_text(
        "import multiprocessing, sys\n"
        "if multiprocessing.current_process().name == 'sharegroups-jobs': sys.exit(9)\n"
        "from sharegroups import Worker\n"
        f"worker = Worker(bootstrap_servers='{cluster.bootstrap}', group_id='stillborn', concurrency=1)\n"
        "@worker.job('none-such', processes=True)\ndef one(value): ...\n"
    )
    words = [sys.executable, "-c", "from sharegroups.cli import run; run()", "worker", "jobs:worker"]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=BOUND_S, check=False)
    assert ended.returncode == 1
    assert "handler processes end before they are ready: the last one ended with exit status 9" in ended.stderr


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", "worker.run() is called when a handler process imports the program"),
        (
            'if __name__ == "__main__":\n    ',
            "a handler process cannot import the handlers: AttributeError: Can't get attribute 'one' on <module",
        ),
    ],
)
def test_a_program_that_its_processes_cannot_import_is_reported_once(
    tmp_path: Path, cluster: Cluster, before: str, said: str
) -> None:
    program = tmp_path / "jobs.py"
    program.write_text(
        "from sharegroups import Worker\n"
        f"worker = Worker(bootstrap_servers='{cluster.bootstrap}', group_id='guard', concurrency=4)\n"
        f"{before}@worker.job('none-such', processes=True)\n{' ' * 4 if before else ''}def one(value): ...\n"
        f"{before}worker.run()\n"
    )
    words = [sys.executable, str(program)]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=BOUND_S, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count(f"WorkerError: {said}") == 1
    assert ended.stderr.count("Traceback") <= 2, "the program's, and where a handler was looked for"
    assert 'if __name__ == "__main__":' in ended.stderr.splitlines()[-1]


@pytest.mark.rule("CL-127")
def test_five_deployments_in_the_middle_of_a_job_leave_it_all_its_tries(tmp_path: Path, cluster: Cluster) -> None:
    """Each SIGTERM arrives while the job runs, and the grace period is too short for it."""
    program = tmp_path / "deployed.py"
    program.write_text(
        "import sys, time\n"
        "from sharegroups import Worker\n"
        f"worker = Worker(bootstrap_servers='{cluster.bootstrap}', group_id='deployed', concurrency=1, grace=0.5,\n"
        "                cut_off_counts=False)\n"
        "@worker.job('long-jobs')\n"
        "async def one(value):\n"
        "    import asyncio\n"
        "    from sharegroups.worker import current_job\n"
        "    print(value.decode(), current_job().delivery_count, flush=True)\n"
        "    await asyncio.sleep(float(sys.argv[1]))\n"
        "worker.run()\n"
    )
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics(["long-jobs"])
        group = ConfigResource.group("deployed")
        admin.incremental_alter_configs({group: [AlterConfig("share.auto.offset.reset", "earliest")]})
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.produce("long-jobs", "job")
    for seconds in ("60", "60", "60", "60", "60", "0"):
        with subprocess.Popen(
            [sys.executable, str(program), seconds], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            try:
                assert running.stdout is not None
                assert running.stdout.readline() == "job 1\n"
                time.sleep(0.5)
                running.send_signal(signal.SIGTERM)
                _, logged = running.communicate(timeout=BOUND_S)
            finally:
                running.kill()
        assert running.returncode == 0, logged


@pytest.mark.rule("CL-126a", "PL-941")
def test_a_worker_that_is_suspended_more_often_than_the_group_delivers_finishes_its_job(
    tmp_path: Path, cluster: Cluster
) -> None:
    program = tmp_path / "suspended.py"
    program.write_text(
        "from sharegroups import Worker\n"
        "from sharegroups.worker import current_job\n"
        f"worker = Worker(bootstrap_servers='{cluster.bootstrap}', group_id='suspended', concurrency=2)\n"
        "@worker.job('long-job')\n"
        "def one(value):\n"
        "    print('begun', flush=True)\n"
        "    input()\n"
        "    print('ended', current_job().delivery_count, current_job().lost, flush=True)\n"
        "worker.run()\n"
    )
    configs = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": "1000",
        "share.delivery.count.limit": "2",
    }
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics(["long-job"])
        group = ConfigResource.group("suspended")
        admin.incremental_alter_configs({group: [AlterConfig(*config) for config in configs.items()]})
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.produce("long-job", "job")
        running = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with running:
            try:
                assert running.stdout is not None
                assert running.stdout.readline() == "begun\n"
                for _ in range(4):
                    running.send_signal(signal.SIGSTOP)
                    until_record(admin, "suspended", "long-job", "available")
                    running.send_signal(signal.SIGCONT)
                    until_record(admin, "suspended", "long-job", "acquired", count=1)
                assert running.stdin is not None
                running.stdin.write("\n")
                running.stdin.flush()
                assert running.stdout.readline() == "ended 1 False\n"
                until_record(admin, "suspended", "long-job", "finished")
                running.send_signal(signal.SIGTERM)
                said, logged = running.communicate(timeout=BOUND_S)
            finally:
                running.kill()
    assert (running.returncode, said) == (0, ""), logged
    assert logged.count("was redelivered") == 4
    assert "stopped: 1 done, 0 released, 0 rejected, 0 archived" in logged


def until_record(admin: Admin, group: str, topic: str, state: str, count: int | None = None) -> None:
    """Wait until the group's record 0 has this state, and this delivery count if one is given."""
    deadline = time.monotonic() + BOUND_S
    while True:
        (record,) = admin.explain_record(group, TopicPartition(topic, 0), 0).records
        if record.state == state and count in (None, record.delivery_count):
            return
        assert time.monotonic() < deadline, record
        time.sleep(0.05)


@pytest.mark.rule("CL-146", "PL-243")
def test_a_job_that_kills_its_worker_takes_no_good_one_along(tmp_path: Path, cluster: Cluster) -> None:
    """There are two topics, so each can have a record on its last delivery; a supervisor restarts the worker."""
    (tmp_path / "jobs.py").write_text(
        "import os, signal, time\n"
        "from sharegroups import Worker\n"
        f"worker = Worker(bootstrap_servers='{cluster.bootstrap}', group_id='poison', concurrency=8)\n"
        "def one(value):\n"
        "    time.sleep(0.3)\n"
        "    if value == b'poison': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    time.sleep(0.3)\n"
        "    os.write(1, b'DONE ' + value + b'\\n')\n"
        "worker.job('poison-a')(one)\n"
        "worker.job('poison-b')(one)\n"
        "worker.run()\n"
    )
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics(["poison-a", "poison-b"])
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(8):
            producer.produce(f"poison-{'ab'[number % 2]}", "poison" if number == 4 else f"good{number}")
    good = {f"DONE good{number}" for number in range(8)} - {"DONE good4"}
    done: set[str] = set()
    kills = 0
    with (tmp_path / "out").open("w+") as out:
        until_s = time.monotonic() + 2 * BOUND_S
        while time.monotonic() < until_s and not done >= good:
            child = subprocess.Popen([sys.executable, "jobs.py"], cwd=tmp_path, stdout=out, stderr=subprocess.DEVNULL)
            try:
                while child.poll() is None and time.monotonic() < until_s and not done >= good:
                    time.sleep(0.1)
                    done = set((tmp_path / "out").read_text().splitlines())
            finally:
                if child.poll() is None:
                    child.terminate()
            kills += child.wait(BOUND_S) == -signal.SIGKILL
    assert done == good, kills
    assert kills >= 4
