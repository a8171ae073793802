"""`sharegroups metrics ingest`, killed with SIGKILL at any point and started again, stores every entry exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from share_metrics.ingest.job import Cluster, Exposition, Job, run
from share_metrics.ingest.writing import Source
from tests.support.pipeline_entries import update

from .account import PROPERTY, account
from .world import SHAREGROUPS, Log, World

STREAMS: Final = ("{sgs:0}:log", "{sgs:1}:log")
#: The number of processes to kill, each at the cost of a start of Spark; `make ingest-kills` kills twenty.
KILLS: Final = int(os.environ.get("INGEST_KILLS", "1"))
BOUND_S: Final = 120
#: Jobs that may give up by themselves on a very busy machine; these do not count as kills, and are started again.
GIVEN_UP_MAX: Final = 5
#: A job that is killed before its first batch is killed within this many seconds of its start.
STARTING_S: Final = 8


class Process:
    """`sharegroups metrics ingest --continuous` as a process, from its start to SIGKILL."""

    def __init__(self, world: World, data: Path, log: Any) -> None:
        self.data = data
        command = [SHAREGROUPS, "metrics", "ingest", "--store", world.url, "--data", str(data)]
        command += ["--continuous", "--trigger", "0.05", "--metrics-port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=log, text=True)

    def live_for(self, batches: int) -> bool:
        """Wait until the job has reported this many batches; if 0, until it starts Spark. Returns False if it gave up
        first.

        It gives up if the machine is so busy that Spark's Python workers repeatedly connect too late; it then says that
        it may be run again.
        """
        assert self.process.stderr is not None
        newest: deque[str] = deque(maxlen=200)
        seen = 0
        for line in self.process.stderr:
            if not line.lstrip().startswith("at "):  # Java's stack frames would push out the messages above them
                newest.append(line)
            seen += "is written" in line
            if seen == batches:
                return True
        status, said = self.process.wait(BOUND_S), "".join(newest)
        if status == 1 and "run it again" in said and "Python worker failed to connect back" in said:
            return False
        raise AssertionError(f"the job ended by itself, with {status}, in {self.data}:\n{said[-4000:]}")

    def kill(self) -> None:
        """Send SIGKILL; the job's Java process notices that by itself."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(BOUND_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


class Writer:
    """Writes states until it is stopped, and counts them."""

    def __init__(self, world: World, random: Random) -> None:
        self._logs = [Log(world, stream) for stream in STREAMS]
        self._random = random
        self._over = threading.Event()
        self.written = 0

    def wait(self, seconds: float) -> None:
        """Wait for this many seconds, or until the writer has ended."""
        self._over.wait(seconds)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Write during this block."""
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(BOUND_S)

    def _work(self) -> None:
        while not self._over.wait(0.02):
            updates = [update(number) for number in range(1, 4)]
            self._random.choice(self._logs).state(*updates)
            self.written += len(updates)


def counted(shown: str) -> float:
    """Return the number of state writes according to the counters in a text file."""
    return sum(
        float(line.split()[-1])
        for line in shown.splitlines()
        if line.startswith("sharegroups_ingest_share_group_writes_total{")
    )


@pytest.mark.rule("PM-36", "PM-68", "PM-71")
def test_a_killed_process_leaves_every_entry_once_and_counted_once(
    spark: SparkSession, world: World, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    world.make_cluster(state_shards=len(STREAMS))
    data = tmp_path / "data"
    writer = Writer(world, Random(36))
    with writer.working(), (tmp_path / "out").open("w") as out:
        left, given_up = KILLS, 0
        while left:
            random = Random(left)
            batches = random.randrange(1, 6) if left % 4 == 1 else random.randrange(6)
            job = Process(world, data, out)
            try:
                struck = job.live_for(batches)
                # A random moment within the next batch or the start: it only decides when the kill happens; no
                # assertion depends on it.
                writer.wait(random.random() * (1 if batches else STARTING_S) if struck else 0)
            finally:
                job.kill()
            left -= struck
            given_up += not struck
            assert given_up <= GIVEN_UP_MAX
            print(f"{left} kills left; the last one behind {batches} batches" if struck else "the job gave up")
    # Ingest everything written since in one batch, which may be large.
    shown = tmp_path / "gauges"
    run(Job(Source(world.url), data), Exposition(textfile=shown), Cluster("local[1]"), print)
    found = account(spark, world, data, kills=KILLS)
    record_property(PROPERTY, list(found))
    assert (found.lost, found.doubled) == (0, 0), found
    assert found.rows == found.entries > 0
    assert counted(shown.read_text()) == writer.written, "no killed process has kept to itself what it had counted"
