"""SIGTERM to the commands as users run them: the next consumer gets every unfinished record at once.

Locks last 30 s here and sessions 45 s: a next consumer that gives up after 15 s without a record gets all of them only
if the previous one has released them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import select
import signal
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip932.ids import OFFSET_LATEST
from sharegroups import Admin, NewTopic, Producer, TopicPartition
from tests.support.node import BOUND_S, TERMINATED, Cluster, StartedProcess, unique, up_words

RECORDS = 400
#: The exit status of a process that gets SIGTERM before it runs our code.
NOT_BEGUN = -signal.SIGTERM


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


_STARTED: list[Tool] = []


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """End the processes that a failed test has left. Commands start with the default handler for SIGINT: tests that run
    in the background ignore SIGINT, and a command would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
    while _STARTED:
        tool = _STARTED.pop()
        if tool.process.poll() is None:
            tool.process.kill()
            tool.process.wait()
        tool.close()


class Tool:
    """`sharegroups <words>` with pipes; its standard error goes to a file."""

    def __init__(self, cluster: Cluster, folder: Path, *words: str) -> None:
        self._errors = folder / unique("stderr")
        command = [sys.executable, "-c", "import sharegroups.cli; sharegroups.cli.run()", *words]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, "--bootstrap-server", cluster.bootstrap],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0,
            )  # fmt: skip
        _STARTED.append(self)

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def lines(self, count: int) -> list[bytes]:
        """Return the next `count` lines of its standard output."""
        found = []
        for _ in range(count):
            assert self.process.stdout is not None
            assert select.select([self.process.stdout], [], [], BOUND_S)[0], self.errors
            found.append(self.process.stdout.readline())
        return found

    def terminate(self, number: int = signal.SIGTERM) -> tuple[int, list[bytes]]:
        """Send a signal; returns the exit status and the rest of the output. The process must end by itself."""
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=BOUND_S)
        return self.process.returncode, rest.splitlines()

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def topic_of(cluster: Cluster, records: int = RECORDS, size: int = 0) -> str:
    """Create a topic with `records` numbered records; returns its name."""
    topic = unique("leaving")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(records):
            producer.produce(topic, f"{number} {'x' * size}")
    return topic


def consume(cluster: Cluster, folder: Path, topic: str) -> Tool:
    return Tool(cluster, folder, "consume", topic, "--group", topic, "--output", "json")


def number_of(line: bytes) -> int:
    return int(json.loads(line)["value"].split()[0])


def rest_of(cluster: Cluster, folder: Path, topic: str, wanted: int) -> Counter[int]:
    """Return the next consumer's records, by number: `wanted` of them, or those that arrive before 15 s pass without a
    record."""
    words = ["consume", topic, "--group", topic, "--output", "json"]
    tool = Tool(cluster, folder, *words, "--max-messages", str(wanted), "--timeout-ms", "15000")
    written, _ = tool.process.communicate(timeout=BOUND_S)
    return Counter(number_of(line) for line in written.splitlines())


@pytest.mark.rule("CT-80")
def test_amid_its_records_a_consumer_gives_back_what_it_has_not_written(cluster: Cluster, tmp_path: Path) -> None:
    topic = topic_of(cluster)
    tool = consume(cluster, tmp_path, topic)
    written = tool.lines(random.Random(topic).randrange(1, 200))
    status, more = tool.terminate()
    done = Counter(map(number_of, written + more))
    assert status == TERMINATED
    assert f"Processed a total of {sum(done.values())} messages" in tool.errors
    assert "Traceback" not in tool.errors
    rest = rest_of(cluster, tmp_path, topic, RECORDS - len(done))
    assert done + rest == Counter(range(RECORDS)), "each once"


@pytest.mark.rule("CT-80")
def test_a_consumer_that_waits_leaves_its_partitions(cluster: Cluster, tmp_path: Path) -> None:
    topic = topic_of(cluster, 10)
    tool = consume(cluster, tmp_path, topic)
    assert {number_of(line) for line in tool.lines(10)} == set(range(10))
    assert tool.terminate() == (TERMINATED, [])
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(10, 20):
            producer.produce(topic, f"{number} ")
    assert rest_of(cluster, tmp_path, topic, 10) == Counter(range(10, 20))


@pytest.mark.rule("CT-36", "CT-37", "CT-80", "CT-95")
@pytest.mark.parametrize(("number", "mode"), [(signal.SIGTERM, "auto"), (signal.SIGINT, "sync")])
def test_a_verifying_consumer_acknowledges_all_that_it_took(
    cluster: Cluster, tmp_path: Path, number: signal.Signals, mode: str
) -> None:
    topic = topic_of(cluster)
    words = ["verify-consumer", "--topic", topic, "--group-id", topic, "--acknowledgement-mode", mode]
    tool = Tool(cluster, tmp_path, *words)
    written = tool.lines(random.Random(topic).randrange(2, 6))
    status, more = tool.terminate(number)
    assert (status, tool.errors) == (128 + number, "")
    reported = [json.loads(line) for line in written + more]
    assert [event["name"] for event in reported][:: len(reported) - 1] == ["startup_complete", "shutdown_complete"]
    assert "shutdown_requested" in {event["name"] for event in reported}
    taken, acknowledged = (
        sum(event["count"] for event in reported if event["name"] == name)
        for name in ("records_consumed", "offsets_acknowledged")
    )
    assert taken == acknowledged > 0
    rest = rest_of(cluster, tmp_path, topic, RECORDS - taken) if taken < RECORDS else Counter()
    assert sum(rest.values()) == RECORDS - taken


@pytest.mark.rule("CT-33", "CT-80", "CT-97")
def test_a_measurement_shows_what_it_has_by_then(cluster: Cluster, tmp_path: Path) -> None:
    topic = topic_of(cluster)
    words = ("--topic", topic, "--num-records", "1000000", "--reporting-interval", "200")
    two = ("--group", topic, "--threads", "2", "--show-detailed-stats", "--timeout", "60000")
    consumer = Tool(cluster, tmp_path, "perf", "consume", *words, *two)
    (header,) = consumer.lines(1)
    assert header.startswith(b"start.time, ")
    while sum(int(row.split(b", ")[5]) for row in consumer.lines(2)) < RECORDS:
        pass
    status, more = consumer.terminate()
    assert status == TERMINATED
    assert int(more[-1].split(b", ")[5]) == RECORDS
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        offsets = admin.list_share_group_offsets({topic: None})[topic]
    assert isinstance(offsets, dict)
    assert [offset.lag for offset in offsets.values() if offset is not None] == [0, 0], "all are accepted"
    producer = Tool(cluster, tmp_path, "perf", "produce", *words, "--throughput", "500")
    producer.lines(2)
    status, more = producer.terminate(signal.SIGINT)
    assert (status, producer.errors) == (128 + signal.SIGINT, "")
    assert b"99.9th" in more[-1]


def _ended_while_python_starts(status: int, number: int, errors: str) -> bool:
    """Return whether the signal came before Python ran our code. If so, the signal itself ends the process, or the
    status is 1 and Python's own message names the step of its start that SIGINT interrupted."""
    return status == -number or (
        number == signal.SIGINT and status == 1 and errors.startswith("Fatal Python error: init_")
    )


@pytest.mark.rule("CT-80")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_at_any_moment_of_its_start(cluster: Cluster, tmp_path: Path, number: signal.Signals) -> None:
    topic = topic_of(cluster, 20)
    done: Counter[int] = Counter()
    chance = random.Random(topic)
    for _ in range(6):
        tool = consume(cluster, tmp_path, topic)
        time.sleep(chance.uniform(0.0, 2.0))
        status, lines = tool.terminate(number)
        done += Counter(map(number_of, lines))
        if not _ended_while_python_starts(status, number, tool.errors):
            assert status == 128 + number, tool.errors
            assert "Traceback" not in tool.errors, tool.errors
    rest = rest_of(cluster, tmp_path, topic, 20 - len(done)) if len(done) < 20 else Counter()
    assert done + rest == Counter(range(20))


def _waits_in_its_pipe(tool: Tool) -> None:
    """Wait until the pipe of its standard output, which nothing reads, is full."""
    assert tool.process.stdout is not None
    last, same = -1, 0
    for _ in range(BOUND_S * 10):
        found = int.from_bytes(fcntl.ioctl(tool.process.stdout, termios.FIONREAD, b"\0" * 4), sys.byteorder)
        same = same + 1 if found == last and found > 16_384 else 0
        if same == 10:
            return
        last = found
        time.sleep(0.1)
    raise AssertionError(f"the pipe holds {last} bytes: {tool.errors}")


@pytest.mark.rule("CT-80")
def test_its_output_is_not_taken(cluster: Cluster, tmp_path: Path) -> None:
    topic = topic_of(cluster, 200, 2_000)
    tool = consume(cluster, tmp_path, topic)
    _waits_in_its_pipe(tool)
    tool.process.send_signal(signal.SIGTERM)
    assert tool.process.wait(BOUND_S) == TERMINATED, "with a full pipe"
    assert "standard output took no more" in tool.errors
    written, _ = tool.process.communicate(timeout=BOUND_S)
    whole = Counter(number_of(line) for line in written.splitlines() if line.endswith(b"}"))
    rest = rest_of(cluster, tmp_path, topic, 200 - len(whole))
    assert not Counter(range(200)) - (whole + rest), "none is lost"
    assert sum((whole & rest).values()) <= 1, "at most the one in the middle of which the reader stopped"


@pytest.mark.rule("CT-80")
def test_its_reader_went_away(cluster: Cluster, tmp_path: Path) -> None:
    topic = topic_of(cluster, 200, 2_000)
    tool = consume(cluster, tmp_path, topic)
    done = Counter(map(number_of, tool.lines(3)))
    assert tool.process.stdout is not None
    tool.process.stdout.close()
    tool.process.wait(BOUND_S)
    assert "Traceback" not in tool.errors
    processed = int(tool.errors.split("Processed a total of ")[1].split()[0])
    rest = rest_of(cluster, tmp_path, topic, 200 - processed)
    assert len(rest) == 200 - processed
    assert max(rest.values()) == 1
    assert not done - Counter(range(200))


@pytest.mark.rule("CT-80")
def test_a_producer_waits_for_what_it_has_read(cluster: Cluster, tmp_path: Path) -> None:
    topic = topic_of(cluster, 0)
    tool = Tool(cluster, tmp_path, "produce", topic)
    assert tool.process.stdin is not None
    for number in range(100):
        tool.process.stdin.write(b"%d \n" % number)
    _until_stored(cluster, topic, 100)
    tool.process.send_signal(signal.SIGTERM)  # the input stays open
    assert tool.process.wait(BOUND_S) == TERMINATED
    assert "after line 100 of the input: 100 records delivered, 0 failed, 0 not confirmed." in tool.errors
    assert rest_of(cluster, tmp_path, topic, 100) == Counter(range(100))


@pytest.mark.rule("CT-80")
def test_a_producer_amid_its_input(cluster: Cluster, tmp_path: Path) -> None:
    """Every record reported as delivered is stored, and the fate of every line that it read is reported."""
    topic = topic_of(cluster, 0)
    (tmp_path / "input").write_bytes(b"".join(b"%d \n" % number for number in range(300_000)))
    tool = Tool(cluster, tmp_path, "produce", topic, "--input", str(tmp_path / "input"))
    _until_stored(cluster, topic, 1)
    assert tool.terminate()[0] == TERMINATED
    line, delivered = _numbers(tool.errors)
    assert 0 < line < 300_000
    assert line == delivered == _until_stored(cluster, topic, 1)


def _numbers(errors: str) -> tuple[int, int]:
    words = errors[errors.index("Stopped after line ") :].split()
    return int(words[3]), int(words[7])


def _until_stored(cluster: Cluster, topic: str, records: int) -> int:
    """Wait until a topic contains at least `records` records; returns their number."""
    found = 0
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        for _ in range(BOUND_S * 10):
            ends = admin.list_offsets({TopicPartition(topic, part): OFFSET_LATEST for part in range(2)})
            found = sum(end for end in ends.values() if isinstance(end, int))
            if found >= records:
                return found
            time.sleep(0.1)
    raise AssertionError(f"{topic} holds {found} records, expected {records}")


@contextlib.contextmanager
def _away(cluster: Cluster) -> Iterator[None]:
    """Make the cluster unresponsive during this block; connections to it remain open."""
    os.kill(cluster.node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(cluster.node.pid, signal.SIGCONT)


@pytest.mark.rule("CT-80")
@pytest.mark.parametrize("again", [False, True])
def test_the_cluster_is_away(cluster: Cluster, tmp_path: Path, again: bool) -> None:
    """Leaving ends by itself, and immediately on a second signal."""
    topic = topic_of(cluster, 50)
    consumer = consume(cluster, tmp_path, topic)
    producer = Tool(cluster, tmp_path, "produce", topic)
    consumer.lines(50)
    assert producer.process.stdin is not None
    producer.process.stdin.write(b"50 \n")
    consumer.lines(1)
    _until_stored(cluster, topic, 51)
    with _away(cluster):
        producer.process.stdin.write(b"51 \n52 \n")
        time.sleep(0.5)
        for tool in (consumer, producer):
            tool.process.send_signal(signal.SIGTERM)
        if again:
            time.sleep(0.2)
            for tool in (consumer, producer):
                tool.process.send_signal(signal.SIGTERM)
        assert [tool.process.wait(BOUND_S) for tool in (consumer, producer)] == [TERMINATED] * 2
    if not again:
        assert "after line 3 of the input: 1 records delivered, 0 failed, 2 not confirmed, which may" in producer.errors


def _below(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found |= {int(child)} | _below(int(child))
    return found


def _all_end(pids: set[int]) -> bool:
    def lives(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    for _ in range(BOUND_S * 10):
        if not any(map(lives, pids)):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.rule("CT-80")
def test_up_at_any_moment_of_its_start(tmp_path: Path) -> None:
    chance = random.Random(str(tmp_path))
    for number in range(5):
        node = StartedProcess(up_words(tmp_path / "data", None, *(["--processes"] if number % 2 else [])), tmp_path)
        time.sleep(chance.uniform(0.3, 2.5))
        children = _below(node.pid)
        assert node.stop() in {TERMINATED, NOT_BEGUN}, node.errors
        assert _all_end(children)
        assert "Traceback" not in node.errors
    node = StartedProcess(up_words(tmp_path / "data"), tmp_path)
    node.first_line()
    os.kill(node.pid, signal.SIGINT)
    assert node.ended() == 0, "Ctrl-C is the usual way to end a server"


@pytest.mark.rule("CT-80")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    node = StartedProcess(["share_node", "demo", "--keep", str(tmp_path / "kept")], tmp_path)
    assert "is up at" in node.line()
    time.sleep(random.Random(str(tmp_path)).uniform(0.0, 3.0))
    below = _below(node.pid)
    os.kill(node.pid, number)
    assert node.ended() == (TERMINATED if number == signal.SIGTERM else -signal.SIGKILL)
    assert _all_end(below)
    assert "Traceback" not in node.errors
