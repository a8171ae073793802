"""A cluster with a group for each way to work or to stand still, an outage of its ingest, and a ledger of all of it.

The ledger knows only what was confirmed to producers, consumers and the admin client, and when: each action has a time
before which it had not happened and one after which it had. So at any time each number lies between two, which are the
same except while something happens.

An outage of five minutes is one of OUTAGE_S here, with windows of a second. So a test has to make a log's end old after
FRESH_S instead of a minute and a half.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from share_metrics.ingest.job import Cluster, Exposition, Job, run
from share_metrics.ingest.writing import Source
from share_metrics.reader import Store
from share_metrics.reader.log_ends import log_ends
from share_metrics.reader.streams import topics
from sharegroups import (
    AcknowledgeType,
    Admin,
    AlterConfig,
    ConfigResource,
    Message,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from sharegroups.admin_values import ShareGroupOffset
from tests.support import node

BOUND_S: Final = 120
OUTAGE_S: Final = 12
FRESH_S: Final = 3
#: Rows have whole milliseconds, of clocks that know the store's time to half a round trip to it (CM-170).
CLOCK_S: Final = 0.05
LETTERS: Final = "dlq.work"
REJECTED: Final = 5
RELEASED: Final = 7
#: Takes records, says how many, and waits to be killed with them.
_HOLDER: Final = """
import sys, time
from sharegroups import ShareConsumer
settings = {"share.acknowledgement.mode": "explicit", "share.acquire.mode": "record_limit", "max.poll.records": 20}
consumer = ShareConsumer(settings, bootstrap_servers=sys.argv[1], group_id=sys.argv[2])
consumer.subscribe([sys.argv[3]])
while not (found := consumer.poll(1)):
    pass
print(len(found), flush=True)
time.sleep(600)
"""


class Event(NamedTuple):
    """`records` of a topic were produced, or given an outcome by a group, between two times, s since 1970."""

    what: str
    topic: str
    group: str
    records: int
    since: float
    until: float


class Ledger:
    """What happened, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @contextmanager
    def during(self, what: str, topic: str, group: str, count: int) -> Iterator[None]:
        """Note what happens inside."""
        since = time.time()
        yield
        self.events.append(Event(what, topic, group, count, since, time.time()))

    def bounds(self, whats: tuple[str, ...], topic: str, group: str, at: float) -> tuple[int, int]:
        """How many records at least and at most had this happen to them by a time of the services' clocks."""
        mine = [one for one in self.events if one.what in whats and (one.topic, one.group) == (topic, group)]
        least = sum(one.records for one in mine if one.until + CLOCK_S <= at)
        return least, sum(one.records for one in mine if one.since - CLOCK_S < at)

    def total(self, what: str, topic: str, group: str) -> int:
        return sum(one.records for one in self.events if one[:3] == (what, topic, group))

    def finished(self, group: str, topic: str, at: float) -> tuple[int, int]:
        return self.bounds(("accept", "reject", "skip"), topic, group, at)

    def lag(self, group: str, topic: str, at: float, seen_at: float | None = None) -> tuple[int, int]:
        """The least and the greatest lag at a time; `seen_at`: when the end of the log was last seen, if earlier."""
        low, high = self.finished(group, topic, at)
        least, _ = self.bounds(("produce",), topic, "", at if seen_at is None else seen_at)
        _, most = self.bounds(("produce",), topic, "", at)
        return max(least - high, 0), max(most - low, 0)


class Play:
    """The cluster, its ledger, and an ingest that is run now and then."""

    #: The groups that have share-partitions at the end, with the topic of each.
    PARTITIONS: Final = {"stopped": "orders", "hung": "orders", "busy": "orders", "never": "orders", "work": "jobs"}

    def __init__(self, held: ExitStack, data: Path) -> None:
        self.data = data
        self.ledger = Ledger()
        self.cluster = held.enter_context(node.Cluster(node.QUICK))
        self.bootstrap = self.cluster.bootstrap
        self.admin = held.enter_context(Admin(bootstrap_servers=self.bootstrap))
        self.began = datetime.now(UTC)
        self._held = held
        self.ingested: list[tuple[float, float]] = []

    def act(self) -> None:
        """Everything, up to the last ingest."""
        self._set_up()
        self.ingest()
        self._outage()
        self.ingest()
        time.sleep(2)
        self.produce("orders", 5)
        self.ingest()

    def _set_up(self) -> None:
        self.admin.create_topics([NewTopic(name) for name in ("orders", "jobs", "deleted", "unread")])
        self.admin.create_topics([NewTopic(LETTERS, config={"errors.deadletterqueue.group.enable": "true"})])
        groups = ("stopped", "hung", "busy", "work", "orphan", "only")
        change = [AlterConfig("share.auto.offset.reset", "earliest")]
        letters = [*change, AlterConfig("errors.deadletterqueue.topic.name", LETTERS)]
        failed = self.admin.incremental_alter_configs(
            {ConfigResource.group(group): letters if group == "work" else change for group in groups}
        )
        assert not any(failed.values()), failed
        for topic, count in (("orders", 100), ("jobs", 60), ("deleted", 20), ("unread", 15)):
            self.produce(topic, count)
        self.consume("stopped", "orders", 100)
        self.consume("orphan", "deleted", 10)
        hung = self._held.enter_context(self._consumer("hung"))
        hung.subscribe(["orders"])
        self._accept(hung, "hung", "orders", 100)
        with self.ledger.during("skip", "orders", "never", 40):
            assert not any(self.admin.alter_share_group_offsets("never", {TopicPartition("orders", 0): 40}).values())
        peek = self._held.enter_context(self._consumer("peek"))
        peek.subscribe(["orders"])
        for _ in range(3):
            peek.poll(0.5, max_records=0)  # it is a member, and has never fetched
        self.consume("busy", "orders", 100)
        self._work()

    def _work(self) -> None:
        """Accept, reject and release, and lose what a member holds that is killed."""
        holding = [sys.executable, "-c", _HOLDER, self.bootstrap, "work", "jobs"]
        with subprocess.Popen(holding, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            held = int(holder.stdout.readline())
            with self.ledger.during("give back", "jobs", "work", held):
                os.kill(holder.pid, signal.SIGKILL)
                consumer = self._consumer("work", "explicit")
                consumer.subscribe(["jobs"])
                found = _first(consumer)
                assert found[0].offset() == 0, "what the killed member held is delivered again"
        with consumer:
            released = found[:RELEASED]
            for number, message in enumerate(found):
                kind = AcknowledgeType.RELEASE if number < len(released) else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, kind)
            rest = len(found) - len(released)
            with (
                self.ledger.during("release", "jobs", "work", len(released)),
                self.ledger.during("accept", "jobs", "work", rest),
            ):
                _commit(consumer)
            # A rejected record is finished once its letter is written, and the write after that is stored.
            with self.ledger.during("reject", "jobs", "work", REJECTED):
                self._finish(consumer, 60 - rest)
                self._wait_for_letters(REJECTED)
                self._wait_for_start("work", TopicPartition("jobs", 0), 60)

    def _finish(self, consumer: ShareConsumer, left: int) -> None:
        """Reject the first REJECTED of the next `left` records, and accept the others."""
        to_reject = REJECTED
        while left:
            found = _first(consumer)
            kinds = [AcknowledgeType.REJECT] * min(to_reject, len(found))
            to_reject -= len(kinds)
            accepted = len(found) - len(kinds)
            for message, kind in zip(found, kinds + [AcknowledgeType.ACCEPT] * accepted, strict=True):
                consumer.acknowledge(message, kind)
            with self.ledger.during("accept", "jobs", "work", accepted):
                _commit(consumer)
            left -= len(found)

    def _wait_for_letters(self, count: int) -> None:
        deadline = time.monotonic() + BOUND_S
        with Store(self.cluster.store_url) as store:
            (letters,) = [topic.topic_id for topic in topics(store) if topic.name == LETTERS]
            while [end.high_watermark for end in log_ends(store) if end.topic_id == letters] != [count]:
                assert time.monotonic() < deadline, f"fewer than {count} letters were written within {BOUND_S} s"
                time.sleep(0.1)

    def _wait_for_start(self, group: str, partition: TopicPartition, offset: int) -> None:
        deadline = time.monotonic() + BOUND_S
        while True:
            found = self.admin.list_share_group_offsets({group: None})[group]
            assert isinstance(found, Mapping), found
            at = found[partition]
            if isinstance(at, ShareGroupOffset) and at.start_offset == offset:
                return
            assert time.monotonic() < deadline, f"{group} in {partition} is at {at}, not at {offset}"
            time.sleep(0.05)

    def _outage(self) -> None:
        """No ingest runs, and much happens."""
        begun = time.monotonic()
        time.sleep(2)
        self.produce("orders", 546)
        time.sleep(3)
        self.consume("busy", "orders", 300)
        self.produce("orders", 30)
        assert not any(self.admin.delete_topics(["deleted"]).values())
        self.admin.create_topics([NewTopic("deleted")])
        self.produce("deleted", 7)
        self.consume("busy", "orders", 276)
        time.sleep(max(0.0, begun + OUTAGE_S - time.monotonic()))

    def produce(self, topic: str, count: int) -> None:
        with Producer(bootstrap_servers=self.bootstrap) as producer, self.ledger.during("produce", topic, "", count):
            for number in range(count):
                producer.produce(topic, str(number))
            assert producer.flush(BOUND_S) == 0

    def consume(self, group: str, topic: str, count: int) -> None:
        """Accept `count` records with a member of its own."""
        with self._consumer(group) as consumer:
            consumer.subscribe([topic])
            self._accept(consumer, group, topic, count)

    def ingest(self) -> str:
        """Ingest all that is stored, as one run of the command; returns the gauges."""
        out = self.data.with_suffix(".prom")
        since = time.time()
        job = Job(Source(self.cluster.store_url), self.data, log_meta=True)
        found = run(job, Exposition(textfile=out), Cluster("local[1]"), print)
        self.ingested.append((since, time.time()))
        assert found.lost == 0
        return out.read_text()

    def _consumer(self, group: str, mode: str = "implicit") -> ShareConsumer:
        settings = {"share.acquire.mode": "record_limit", "max.poll.records": 20, "share.acknowledgement.mode": mode}
        return ShareConsumer(settings, bootstrap_servers=self.bootstrap, group_id=group)

    def _accept(self, consumer: ShareConsumer, group: str, topic: str, count: int) -> None:
        left = count
        while left:
            found = _first(consumer, left)
            with self.ledger.during("accept", topic, group, len(found)):
                _commit(consumer)
            left -= len(found)


def _first(consumer: ShareConsumer, most: int | None = None) -> list[Message]:
    """The next records, within a bounded time."""
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        if found := consumer.poll(1, max_records=most):
            return list(found)
    raise AssertionError(f"no record came within {BOUND_S} s")


def _commit(consumer: ShareConsumer) -> None:
    assert not [error for error in consumer.commit_sync().values() if error is not None]
