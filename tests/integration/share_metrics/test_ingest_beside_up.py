"""A continuous ingest beside `sharegroups up`: killed and started again itself, and while `up` is killed and restarted.

Its gauges are scraped all the time: a lag is right, or there is none.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from share_metrics.ingest.outages import spans
from sharegroups import Admin, AlterConfig, ConfigResource, NewTopic, Producer, ShareConsumer
from tests.support import node

BOUND_S = 300
TRIGGER_S = 2
LAG = re.compile(r'^sharegroups_ingest_share_group_lag\{group="halted".*\} (\S+)$', re.MULTILINE)
UNKNOWN = re.compile(r'^sharegroups_ingest_share_group_lag_unknown\{group="halted".*\} (\S+)$', re.MULTILINE)


class Ingest:
    """The command as a process; what it printed, and what its gauges show."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.printed: list[str] = []
        self.shown: list[float | None] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.printed.extend(self.process.stderr)  # adds each line as it comes

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def scrape(self) -> tuple[float | None, float | None] | None:
        """The lag and the number of unknown ones; None while nothing is served."""
        served = re.search(r"http://\S+", "".join(self.printed))
        if served is None:
            return None
        text = urllib.request.urlopen(served.group(), timeout=60).read().decode()
        lag, unknown = (found and float(found.group(1)) for found in (LAG.search(text), UNKNOWN.search(text)))
        self.shown.append(lag)
        assert lag is None or unknown == 0, "a lag is shown, and also counted as unknown"
        return lag, unknown

    def until(self, condition: Callable[[tuple[float | None, float | None]], bool]) -> None:
        """Scrape until the condition holds, for a bounded time."""
        end = time.monotonic() + BOUND_S
        while time.monotonic() < end and self.process.poll() is None:
            if (found := self.scrape()) is not None and condition(found):
                return
            time.sleep(0.2)
        raise AssertionError(f"in vain, after {self.shown[-5:]}: {''.join(self.printed)[-4000:]}")


@contextmanager
def ingesting(up: Path, data: Path) -> Iterator[Ingest]:
    words = ["ingest", "--up", str(up), "--data", str(data), "--continuous", "--trigger", str(TRIGGER_S)]
    command = [sys.executable, "-m", "share_metrics", *words, "--metrics-port", "0"]
    ingest = Ingest(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    try:
        yield ingest
    finally:
        ingest.close()


def produce(cluster: node.Cluster, count: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(count):
            producer.produce("orders", str(number))
        assert producer.flush(60) == 0


def halted(cluster: node.Cluster) -> None:
    """Let a group finish 100 records, and produce 1,400 more, of which no write of its state knows."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("orders")])
        earliest = {ConfigResource.group("halted"): [AlterConfig("share.auto.offset.reset", "earliest")]}
        assert not any(admin.incremental_alter_configs(earliest).values())
        produce(cluster, 100)
        with ShareConsumer(bootstrap_servers=cluster.bootstrap, group_id="halted") as consumer:
            consumer.subscribe(["orders"])
            left, end = 100, time.monotonic() + BOUND_S
            while left and time.monotonic() < end:
                left -= len(consumer.poll(1))
                assert not [error for error in consumer.commit_sync().values() if error is not None]
            assert left == 0
    produce(cluster, 1_400)


@pytest.mark.rule("PM-38", "PM-105", "PM-106", "PM-109")
def test_lags_are_right_or_unknown_while_an_ingest_and_the_up_it_reads_are_killed(tmp_path: Path) -> None:
    data, began = tmp_path / "data", datetime.now(UTC)
    with node.Cluster() as cluster:
        halted(cluster)
        with ingesting(cluster.folder / "data", data) as first:
            first.until(lambda found: found == (1_400, 0))
            assert set(first.shown) == {None, 1_400}
        produce(cluster, 46)
        with ingesting(cluster.folder / "data", data) as second:
            second.until(lambda found: found == (None, 1))
            second.until(lambda found: found == (1_446, 0))
            assert set(second.shown) == {None, 1_446}
            second.shown.clear()
            cluster.node.signal(signal.SIGKILL)
            cluster.node.ended()
            second.until(lambda found: found == (None, 1))
            away = time.monotonic()
            second.until(lambda _: time.monotonic() - away > 4 * TRIGGER_S)
            assert second.scrape() == (None, 1), "as long as it is down"
            cluster.start()
            produce(cluster, 4)
            second.until(lambda found: found == (1_450, 0))
            assert set(second.shown) <= {None, 1_446, 1_450}
            printed = "".join(second.printed)
            assert f"is at {cluster.store_url} now" in printed
            assert "; it waits for up to 300 s" in printed
            assert second.process.poll() is None
    ended = datetime.now(UTC)
    later = ended + timedelta(hours=1)
    *_, outage = spans(data, began, later, later)
    assert began.timestamp() < outage[0] <= ended.timestamp(), "since its last trigger it reads nothing"
    assert outage[1] == round(later.timestamp())
