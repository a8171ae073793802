"""Workers as users run them, `sharegroups worker …`, on a real cluster: outcomes, crashes, timeouts, signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from kip932.ids import TopicPartition
from sharegroups import Admin, KafkaError, Producer
from sharegroups.admin_values import AlterConfig, ConfigResource, NewTopic
from tests.support.node import BOUND_S, Cluster, unique
from tests.support.ports import free_port

ROOT = Path(__file__).parents[3]
SHOP = "tests.integration.worker.shop"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


class Shop:
    """A group, its topics, and its workers as processes."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.group, self.topic = unique("shop"), unique("shop")
        self.topics = [f"{self.topic}-{kind}" for kind in ("thread", "process", "loop")]
        self.started: list[subprocess.Popen[str]] = []
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert set(admin.create_topics(self.topics).values()) == {None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def have_letters(self, deliveries: int = 5) -> str:
        """Set a dead-letter topic and a delivery limit for the group; returns the topic's name."""
        name = f"dlq.{self.topic}"
        with Admin(bootstrap_servers=self.cluster.bootstrap) as admin:
            created = admin.create_topics([NewTopic(name, config={"errors.deadletterqueue.group.enable": "true"})])
            changes = [AlterConfig("errors.deadletterqueue.topic.name", name)]
            changes.append(AlterConfig("share.delivery.count.limit", str(deliveries)))
            altered = admin.incremental_alter_configs({ConfigResource.group(self.group): changes})
        assert {*created.values(), *altered.values()} == {None}
        return name

    def put(self, kind: str, *orders: Any) -> None:
        with Producer(bootstrap_servers=self.cluster.bootstrap) as producer:
            for order in orders:
                producer.produce(f"{self.topic}-{kind}", order if isinstance(order, bytes) else json.dumps(order))

    def work(self, *words: str, target: str = "worker") -> subprocess.Popen[str]:
        """Start a worker; its output goes to files."""
        number = len(self.started)
        with (self.folder / f"out-{number}").open("w") as out, (self.folder / f"err-{number}").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", "from sharegroups.cli import run; run()", "worker", f"{SHOP}:{target}", *words],
                stdout=out,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={
                    **os.environ,
                    "SHAREGROUPS_LOG_FORMAT": "console",
                    "SHOP_BOOTSTRAP": self.cluster.bootstrap,
                    "SHOP_GROUP": self.group,
                    "SHOP_TOPIC": self.topic,
                },
            )
        self.started.append(process)
        return process

    def runs(self, number: int = 0) -> list[dict[str, Any]]:
        """Return the output of the jobs, one entry per run."""
        return [json.loads(line) for line in (self.folder / f"out-{number}").read_text().splitlines()]

    def log(self, number: int = 0) -> str:
        return (self.folder / f"err-{number}").read_text()

    def until(self, done: Any, what: str) -> None:
        deadline = time.monotonic() + BOUND_S
        while not done():
            assert time.monotonic() < deadline, f"never: {what}\n" + "\n".join(map(self.log, range(len(self.started))))
            time.sleep(0.05)

    def start_offset(self, kind: str) -> int | None:
        """Return the group's start offset in the topic's only partition."""
        with Admin(bootstrap_servers=self.cluster.bootstrap) as admin:
            listed = admin.list_share_group_offsets({self.group: None})[self.group]
        if isinstance(listed, KafkaError):
            return None
        entry = listed.get(TopicPartition(f"{self.topic}-{kind}", 0))
        return None if entry is None else entry.start_offset

    def until_done(self, kind: str, records: int) -> None:
        """Wait until the group has finished this many records of the topic."""
        self.until(lambda: self.start_offset(kind) == records, f"{records} records of {kind} finished")


@pytest.fixture
def shop(cluster: Cluster, tmp_path: Path) -> Iterator[Shop]:
    with Shop(cluster, tmp_path) as made:
        yield made


def end(process: subprocess.Popen[Any], number: int = signal.SIGTERM) -> int:
    process.send_signal(number)
    return process.wait(BOUND_S)


@pytest.mark.rule("CL-120", "CL-121", "CL-122", "CL-123", "CL-128")
def test_each_end_of_a_handler_has_its_outcome_and_each_failure_is_reported(shop: Shop) -> None:
    shop.put(
        "thread",
        {"n": 0}, {"n": 1, "fail": 2}, {"n": 2, "reject": "no such user"}, {"n": 3, "release": 0.2},
        {"n": 4, "missing": "gone"}, b"{not json", {"n": 6, "sysexit": 3}, {"n": 7, "fail": 99},
    )  # fmt: skip
    shop.put(
        "process", {"n": 10}, {"n": 11, "exit": 3}, {"n": 12, "segv": 1}, {"n": 13, "hang": 60}, {"n": 14, "sysexit": 1}
    )
    shop.put("loop", {"n": 20}, {"n": 21, "sleep": 60}, {"n": 22, "fail": 1}, {"n": 23, "swallow": 1})
    letters_to = shop.have_letters()
    process = shop.work()
    for kind, records in (("thread", 8), ("process", 5), ("loop", 4)):
        shop.until_done(kind, records)
    assert end(process) == 143
    runs = Counter(run["n"] for run in shop.runs())
    once = {0, 2, 4, 10, 20}
    twice = {3, 6, 11, 12, 13, 14, 21, 22, 23}
    assert runs == Counter(dict.fromkeys(once, 1) | dict.fromkeys(twice, 2) | {1: 3, 7: 5})
    assert {run["count"] for run in shop.runs() if run["n"] == 7} == {1, 2, 3, 4, 5}
    log, place = shop.log(), shop.topic
    for said in (
        f"{place}-thread-0@1: on_thread, delivery 1 of 5, failed: ValueError: no address; it is redelivered in 0.",
        f"ERROR {place}-thread-0@2: on_thread, delivery 1 of 5, was rejected: Reject: no such user; it is rejected, "
        f"and not delivered again; it becomes a dead letter in {letters_to}",
        f"{place}-thread-0@4: on_thread, delivery 1 of 5, was rejected: NotFoundError: gone",
        f"{place}-thread-0@5: on_thread, delivery 1 of 5, was rejected: the value cannot be decoded by loads: JSON",
        f"{place}-thread-0@6: on_thread, delivery 1 of 5, failed: SystemExit: 3",
        f"ERROR {place}-thread-0@7: on_thread, delivery 5 of 5, failed: ValueError: no address; that was the last of 5 "
        f"deliveries that the group allows; it is archived; it becomes a dead letter in {letters_to}",
        "stopped: 13 done, 15 released, 3 rejected, 1 archived at the delivery limit; 0 running",
        f"{place}-process-0@1: in_process, delivery 1 of 5, failed: its process ended with exit status 3",
        f"{place}-process-0@2: in_process, delivery 1 of 5, failed: its process was killed by signal 11 (SIGSEGV)",
        f"{place}-process-0@3: in_process, delivery 1 of 5, failed: it did not return within its timeout of 1.5 s",
        f"{place}-loop-0@1: on_loop, delivery 1 of 5, failed: it did not return within its timeout of 1 s",
        f"{place}-loop-0@3: on_loop was cancelled after 1 s and did not end within 5 s more: it swallows",
    ):
        assert said in log, log
    assert "raise error" in log, "the traceback is shown"


@pytest.mark.rule("CL-179", "CL-180")
def test_a_broken_handler_logs_one_traceback_for_each_cause_and_counts_the_rest(shop: Shop) -> None:
    """5,000 bad records wrote 130,000 lines; and one message may be of 10 MB."""
    shop.have_letters(deliveries=2)
    for kind in ("thread", "process", "loop"):
        shop.put(kind, *({"n": n, "bad": 10} for n in range(50)), {"n": 50, "bad": 10_000_000})
    process = shop.work()
    for kind in ("thread", "process", "loop"):
        shop.until_done(kind, 51)
    assert end(process) == 143
    log = shop.log()
    places = re.compile(
        r"shop-\w+-(thread|process|loop)-0@\d+: \w+, delivery ([12]) of 2, failed: ValueError: order \d+ is"
    )
    held = re.compile(r"(\d+) more jobs ended for the same cause within \d+ s; the last: " + places.pattern)
    found = Counter[tuple[str, str]]()
    for count, kind, delivery in held.findall(log):
        found[kind, delivery] += int(count)
    assert log.count("Traceback") <= 2 * 6, "once for each kind of handler and end, and a minute at most"
    for kind, delivery in places.findall(held.sub("", log)):
        found[kind, delivery] += 1
    assert found == {(kind, count): 51 for kind in ("thread", "process", "loop") for count in "12"}
    assert max(map(len, log.splitlines())) < 3_000, "a message of 10 MB is cut"


@pytest.mark.rule("CL-127")
def test_after_a_sigterm_running_jobs_end_the_others_go_elsewhere_and_nothing_runs_twice(shop: Shop) -> None:
    shop.put("thread", *({"n": n, "sleep": 0.4} for n in range(20)))
    first = shop.work()
    shop.until(lambda: len(shop.runs()) >= 4, "four jobs begun")
    second = shop.work()
    assert end(first) == 143
    assert "running jobs may take up to 20 s more" in shop.log()
    shop.until_done("thread", 20)
    assert end(second) == 143
    runs = Counter(run["n"] for number in (0, 1) for run in shop.runs(number))
    assert runs == Counter(range(20))


@pytest.mark.rule("CL-124", "CL-126")
def test_records_that_wait_for_slower_jobs_than_before_are_given_back(shop: Shop) -> None:
    shop.put("thread", *({"n": n} for n in range(100)))
    process = shop.work()
    shop.until_done("thread", 100)
    shop.put("thread", *({"n": n, "sleep": 3 if n < 102 else 0} for n in range(100, 120)))
    shop.until(lambda: "18 records waited more than 2 s for a handler and are given back" in shop.log(), "given back")
    shop.until_done("thread", 120)
    assert end(process) == 143
    counts = {run["n"]: run["count"] for run in shop.runs()}
    assert len(shop.runs()) == 120
    assert counts == dict.fromkeys(range(120), 1), "a record that no handler started must not count as an attempt"


@pytest.mark.rule("CL-127")
def test_a_killed_workers_jobs_are_done_by_another(shop: Shop) -> None:
    shop.put("thread", *({"n": n, "hang": 60} for n in range(2)), *({"n": n} for n in range(2, 10)))
    first = shop.work()
    shop.until(lambda: len(shop.runs()) >= 2, "both hang")
    first.kill()
    second = shop.work()
    shop.until_done("thread", 10)
    assert end(second) == 143
    assert {run["n"] for run in shop.runs(1)} == set(range(10))


@pytest.mark.rule("CL-127")
def test_what_does_not_end_within_the_grace_is_reported_and_done_again_by_another(shop: Shop) -> None:
    shop.put("thread", {"n": 0, "hang": 60})
    shop.put("loop", {"n": 1, "sleep": 0.9})
    first = shop.work("--grace", "0.2")
    shop.until(lambda: len(shop.runs()) == 2, "both begun")
    assert end(first) == 143
    assert shop.log().count("did not end within 0.2 s; its job will run again") == 2
    second = shop.work()
    shop.until_done("thread", 1)
    shop.until_done("loop", 1)
    assert end(second) == 143
    assert sorted((run["n"], run["count"]) for run in shop.runs(1)) == [(0, 2), (1, 2)]


@pytest.mark.rule("CL-127", "CL-128")
def test_what_does_not_end_within_the_grace_at_its_last_delivery_is_reported_as_archived(shop: Shop) -> None:
    letters_to = shop.have_letters(deliveries=2)
    shop.put("thread", {"n": 0, "sleep": 60}, {"n": 1, "sleep": 60}, {"n": 2, "sleep": 60})
    for number in range(2):
        process = shop.work("--grace", "0.2", "--concurrency", "3")
        shop.until(lambda number=number: len(shop.runs(number)) == 3, "all begun")
        assert end(process) == 143
    assert "ERROR" not in shop.log()
    for offset in range(3):
        assert (
            f"ERROR {shop.topic}-thread-0@{offset}: on_thread did not end within 0.2 s, and that was the last of 2 "
            f"deliveries that the group allows; it is archived; it becomes a dead letter in {letters_to}"
        ) in shop.log(1)
    assert "3 archived at the delivery limit" in shop.log(1)
    shop.until_done("thread", 3)


@pytest.mark.rule("CL-125")
def test_a_group_that_does_not_exist_yet_is_reported_with_the_nearest_name(shop: Shop) -> None:
    shop.group = f"parcel {shop.group.rpartition('-')[2]} warehouse"  # not similar to the groups of other tests
    shop.put("thread", {"n": 0})
    first = shop.work()
    shop.until_done("thread", 1)
    assert end(first) == 143
    reported = "is new: it begins with the earliest record of each topic, including jobs that other groups have done"
    assert f"INFO group {shop.group} {reported} (share.auto.offset.reset=earliest)\n" in shop.log()
    second = shop.work("--group", shop.group[:-1])
    shop.until(lambda: shop.runs(1), "done once more")
    assert end(second) == 143
    assert f"WARNING group {shop.group[:-1]} {reported}" in shop.log(1)
    assert f". Did you mean {shop.group!r}?" in shop.log(1)
    third = shop.work()
    shop.until(lambda: "at once on threads" in shop.log(2), "it began")
    assert end(third) == 143
    assert "is new" not in shop.log(2)


@pytest.mark.rule("CL-127")
def test_the_same_signal_twice_at_once_is_one(shop: Shop) -> None:
    shop.put("thread", {"n": 0, "sleep": 1.5})
    process = shop.work()
    shop.until(shop.runs, "begun")
    process.send_signal(signal.SIGTERM)
    assert end(process) == 143
    assert "a second signal" not in shop.log()
    assert "stopped: 1 done" in shop.log()


@pytest.mark.rule("CL-127")
def test_a_second_signal_ends_it_at_once(shop: Shop) -> None:
    shop.put("thread", {"n": 0, "sleep": 50})
    process = shop.work()
    shop.until(shop.runs, "begun")
    process.send_signal(signal.SIGTERM)
    shop.until(lambda: "may take up to" in shop.log(), "stopping")
    assert end(process, signal.SIGINT) == 130
    assert "a second signal" in shop.log()


@pytest.mark.rule("CL-125")
def test_a_retry_limit_above_the_groups_is_refused_with_both_numbers(shop: Shop) -> None:
    process = shop.work(target="strict")
    assert process.wait(BOUND_S) == 1
    assert "asks for Retry(limit=9)" in shop.log()
    assert "after 5 deliveries (share.delivery.count.limit), and the group's limit counts" in shop.log()


@pytest.mark.rule("CL-128")
def test_the_health_port_shows_whether_it_works_and_what_it_has_done(shop: Shop) -> None:
    shop.put("thread", {"n": 0}, {"n": 1, "reject": "no"})
    port = free_port()
    process = shop.work("--health-port", str(port))
    shop.until(lambda: _get(port, "/readyz")[0] == 200, "ready")
    assert _get(port, "/healthz") == (200, "ok\n")
    shop.until_done("thread", 2)
    topic = f'topic="{shop.topic}-thread"'
    for outcome, count in (("accepted", 1), ("rejected", 1), ("released", 0)):
        line = f'sharegroups_worker_jobs_total{{{topic},outcome="{outcome}"}} {count}\n'
        shop.until(lambda line=line: line in _get(port, "/metrics")[1], line)
    assert _get(port, "/other")[0] == 404
    assert end(process) == 143


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=BOUND_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, "no process listens yet"


@pytest.mark.rule("CL-129")
def test_reload_starts_it_again_when_a_source_file_changes(tmp_path: Path, cluster: Cluster) -> None:
    source = tmp_path / "jobs.py"
    text = (
        "from sharegroups import Worker\n"
        f"worker = Worker(bootstrap_servers='{cluster.bootstrap}', group_id='{unique('reload')}')\n"
        "@worker.job('none-such')\ndef one(value): ...\n"
    )
    source.write_text(text)
    words = [sys.executable, "-c", "from sharegroups.cli import run; run()", "worker", "jobs:worker", "--reload"]
    with (tmp_path / "err").open("w") as errors:
        process = subprocess.Popen(words, cwd=tmp_path, stderr=errors, stdout=errors)
    try:
        until_said(tmp_path / "err", "one runs on threads")
        source.write_text(text.replace("one", "another"))
        until_said(tmp_path / "err", "jobs.py has changed: starting again")
        until_said(tmp_path / "err", "another runs on threads")
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 143
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def until_said(path: Path, words: str) -> None:
    deadline = time.monotonic() + BOUND_S
    while words not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.05)


@pytest.mark.rule("CL-125")
def test_a_worker_waits_for_its_cluster_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from sharegroups import Worker\n"
        "worker = Worker(bootstrap_servers='127.0.0.1:1', group_id='early')\n"
        "@worker.job('orders')\ndef one(value): ...\n"
    )
    words = [sys.executable, "-c", "from sharegroups.cli import run; run()", "worker", "jobs:worker"]
    with (tmp_path / "err").open("w") as errors:
        process = subprocess.Popen(words, cwd=tmp_path, stderr=errors, stdout=errors)
    try:
        until_said(tmp_path / "err", "the cluster at 127.0.0.1:1 does not answer yet, waiting for it")
        assert end(process) == 143
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
