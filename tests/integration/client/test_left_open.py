"""Programs that end without closing a client: a blocking client finishes its work, and lost records are logged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip932.errors import KafkaError
from sharegroups import Admin, NewTopic, ShareConsumer, TopicPartition
from tests.support.node import BOUND_S, Cluster, unique

_BLOCKING = """
from sharegroups import Producer
def main():
    p = Producer(bootstrap_servers="{bootstrap}")
    for i in range(5):
        p.produce("{topic}", str(i), on_delivery=lambda error, report: print("reported", error))
main()
"""
_ASYNC = """
import asyncio
from sharegroups.aio import Producer
async def main():
    p = Producer(bootstrap_servers="{bootstrap}")
    for i in range(5):
        await p.produce("{topic}", str(i))
asyncio.run(main())
"""
_CONSUMER = """
from sharegroups import ShareConsumer
def main():
    c = ShareConsumer(bootstrap_servers="{bootstrap}", group_id="left", share_acknowledgement_mode="explicit")
    c.subscribe(["{topic}"])
    (message,) = c.poll(10)
    print(message.delivery_count())
    c.acknowledge(message)
main()
"""
_POLLING = """
from sharegroups import ShareConsumer
c = ShareConsumer(bootstrap_servers="{bootstrap}", group_id="left")
def main():
    c.subscribe(["{topic}"])
    c.poll(30)
main()
"""
_LATE = """
from sharegroups import Producer, left_open
left_open.LEFT_OPEN_S = 0.0
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def ended(folder: Path, program: str, cluster: Cluster) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a program until it ends; also returns the topic that it writes to."""
    topic = unique("left")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    (folder / "program.py").write_text(program.format(bootstrap=cluster.bootstrap, topic=topic))
    words = [sys.executable, str(folder / "program.py")]
    return subprocess.run(words, capture_output=True, text=True, timeout=BOUND_S, check=False), topic


def stored(cluster: Cluster, topic: str) -> int:
    with ShareConsumer(
        bootstrap_servers=cluster.bootstrap, group_id=unique("g"), share_acquire_mode="batch_optimized"
    ) as consumer:
        consumer.subscribe([topic])
        return len(consumer.poll(5))


@pytest.mark.rule("CL-140")
@pytest.mark.parametrize(("end", "status"), [("", 0), ("1 / 0\n", 1), ("raise SystemExit(3)\n", 3)])
def test_a_blocking_producers_records_are_sent_at_the_end(
    tmp_path: Path, cluster: Cluster, end: str, status: int
) -> None:
    done, topic = ended(tmp_path, _BLOCKING + end, cluster)
    assert (done.returncode, done.stdout.splitlines()) == (status, ["reported None"] * 5)
    assert "a producer with 5 records that wait for their delivery was not closed" in done.stderr
    assert "may be lost" not in done.stderr
    assert stored(cluster, topic) == 5


@pytest.mark.rule("CL-140")
@pytest.mark.parametrize("program", [_ASYNC, _LATE + _BLOCKING])
def test_records_that_were_not_sent_are_reported(tmp_path: Path, cluster: Cluster, program: str) -> None:
    done, _ = ended(tmp_path, program, cluster)
    assert done.returncode == 0
    assert "5 records of a producer that was not closed may be lost" in done.stderr


@pytest.mark.rule("CL-140")
def test_a_producer_that_is_closed_or_has_nothing_left_says_nothing(tmp_path: Path, cluster: Cluster) -> None:
    for last in ("    p.flush()\n", "    p.close()\n"):
        done, _ = ended(tmp_path, _BLOCKING.replace("main()\n", f"{last}main()\n").replace(f"{last}main():", "main():"),
                        cluster)  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.rule("CL-140")
def test_a_forked_process_sends_nothing_of_its_parents(tmp_path: Path, cluster: Cluster) -> None:
    forked = "import os, sys\nif os.fork() == 0:\n    sys.exit(0)\nassert os.wait()[1] == 0\n"
    done, topic = ended(tmp_path, _BLOCKING + forked, cluster)
    assert (done.returncode, done.stdout.count("reported"), "may be lost" in done.stderr) == (0, 5, False)
    assert stored(cluster, topic) == 5


@pytest.mark.rule("CL-141")
def test_a_blocking_consumer_is_closed_at_the_end(tmp_path: Path, cluster: Cluster) -> None:
    made = "from sharegroups import Producer\n"
    made += 'with Producer(bootstrap_servers="{bootstrap}") as p:\n    p.produce("{topic}", "x")\n'
    done, topic = ended(tmp_path, made + _CONSUMER, cluster)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "a consumer of group left was not closed: closing it" in done.stderr
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        group = admin.describe_share_groups(["left"])["left"]
        assert not isinstance(group, KafkaError)
        assert not group.members
        (explained,) = admin.explain_record("left", TopicPartition(topic, 0), 0).records
        assert explained.state == "finished", "its acknowledgement was sent"


@pytest.mark.rule("CL-141")
def test_a_consumer_that_another_thread_uses_at_the_end_is_left_as_it_is(tmp_path: Path, cluster: Cluster) -> None:
    used = _POLLING.replace("\nmain()", "\nthreading.Thread(target=main, daemon=True).start()\ntime.sleep(1)")
    done, _ = ended(tmp_path, f"import threading, time\n{used}", cluster)
    assert done.returncode == 0
    assert "the consumer of group left was not closed: the consumer is in use by another thread" in done.stderr


@pytest.mark.rule("CL-141")
@pytest.mark.parametrize("program", [_POLLING + "c.close()\n", _POLLING.replace("main()\n", "")])
def test_a_consumer_that_is_closed_or_has_not_polled_says_nothing(
    tmp_path: Path, cluster: Cluster, program: str
) -> None:
    done, _ = ended(tmp_path, program.replace("c.poll(30)", "c.poll(0.1)"), cluster)
    assert (done.returncode, done.stderr) == (0, "")
