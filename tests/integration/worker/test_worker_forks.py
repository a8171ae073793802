"""Handlers that fork, start commands, or leave a producer open: their process ends completely and cleanly."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip932.ids import TopicPartition
from sharegroups import Admin
from tests.integration.worker.test_worker_processes import Shop, end
from tests.support.node import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def shop(cluster: Cluster, tmp_path: Path) -> Iterator[Shop]:
    with Shop(cluster, tmp_path) as made:
        yield made


def is_alive(pid: int) -> bool:
    """Return whether the process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def helpers(shop: Shop) -> list[int]:
    """Return the processes that handlers started."""
    return [said["helper"] for said in shop.runs() if "helper" in said]


@pytest.mark.rule("CL-122")
@pytest.mark.parametrize("began", ["fork", "command"])
@pytest.mark.parametrize(
    ("end_of_it", "why"), [("hang", "its timeout of 1.5 s"), ("segv", "SIGSEGV"), ("exit", "status 3")]
)
def test_what_a_handler_began_ends_with_its_process_and_keeps_no_job_waiting(
    shop: Shop, began: str, end_of_it: str, why: str
) -> None:
    shop.put("process", {"n": 0, began: 3_000, end_of_it: 3}, {"n": 1}, {"n": 2})
    process = shop.work("--concurrency", "1")
    shop.until_done("process", 3)
    (helper,) = helpers(shop)
    shop.until(lambda: not is_alive(helper), "the end of what the handler began")
    assert why in shop.log()
    assert end(process) == 143


@pytest.mark.rule("CL-122")
def test_a_process_that_dies_amid_an_answer_fails_its_job_and_holds_up_nothing(shop: Shop) -> None:
    """Without this rule, the worker's event loop waited for the rest of the result: no heartbeats, no renewals, no end
    after SIGTERM."""
    shop.put("process", {"n": 0, "torn": 3_000}, {"n": 1}, {"n": 2})
    process = shop.work("--concurrency", "1")
    shop.until_done("process", 3)
    (helper,) = helpers(shop)
    shop.until(lambda: not is_alive(helper), "the end of what the handler began")
    assert "SIGKILL" in shop.log()
    assert end(process) == 143


@pytest.mark.rule("CL-127")
@pytest.mark.parametrize("began", ["fork", "command"])
def test_what_a_handler_began_ends_with_its_worker_too(shop: Shop, began: str) -> None:
    shop.put("process", {"n": 0, began: 3_000, "sleep": 1_000})
    process = shop.work()
    shop.until(lambda: helpers(shop), "a helper")
    (helper,) = helpers(shop)
    assert is_alive(helper)
    process.kill()
    process.wait()
    shop.until(lambda: not is_alive(helper), "the end of what the handler began")


@pytest.mark.rule("CL-127")
def test_a_killed_workers_processes_end_though_what_a_thread_forked_has_its_pipes(shop: Shop) -> None:
    shop.put("process", {"n": 0, "command": 3_000, "sleep": 1_000})
    process = shop.work()
    shop.until(lambda: helpers(shop), "a command of a process of handlers")
    shop.put("thread", {"n": 1, "fork": 3_000, "sleep": 1_000})
    shop.until(lambda: len(helpers(shop)) == 2, "a fork of the worker")
    command, forked = helpers(shop)
    try:
        process.kill()
        process.wait()
        shop.until(lambda: not is_alive(command), "the end of the process of handlers, and of what it began")
        assert is_alive(forked)
    finally:
        os.kill(forked, signal.SIGKILL)


@pytest.mark.rule("CL-122")
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_handler_may_use_a_pool_of_forked_processes(shop: Shop, kind: str) -> None:
    """`Pool.terminate` sends SIGTERM, which the worker's own handlers must not catch in the pool's processes."""
    shop.put(kind, *({"n": n, "pool": 2} for n in range(8)))
    process = shop.work()
    shop.until_done(kind, 8)
    assert end(process) == 143
    assert {said["n"] for said in shop.runs() if "n" in said} == set(range(8))
    # On a busy machine a job may exceed its timeout and run again; a hanging job would never end well.
    assert "stopped: 8 done" in shop.log(), shop.log()


@pytest.mark.rule("CL-127", "CL-140")
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_what_a_handler_left_unsent_is_sent_as_its_process_ends(shop: Shop, kind: str) -> None:
    count = 20_000
    with Admin(bootstrap_servers=shop.cluster.bootstrap) as admin:
        assert set(admin.create_topics([f"{shop.topic}-results"]).values()) == {None}
    shop.put(kind, {"n": 0, "produce": count})
    process = shop.work()
    shop.until(lambda: any("produced" in said for said in shop.runs()), "all produced")
    assert end(process) == 143
    results = TopicPartition(f"{shop.topic}-results", 0)
    with Admin(bootstrap_servers=shop.cluster.bootstrap) as admin:
        assert admin.list_offsets([results])[results] == count
    assert {"ended": count} in shop.runs(), "the program's own exit function has run"
    assert shop.start_offset(kind) == 1


def test_a_process_that_does_not_end_is_killed_and_the_loss_is_logged(shop: Shop) -> None:
    shop.put("process", {"n": 0, "never_end": 1_000})
    process = shop.work("--concurrency", "1")
    shop.until_done("process", 1)
    assert end(process) == 143
    assert "did not end within 10 s after their last job, and were killed" in shop.log()
