"""A workload with its own ledger, and every number that the pipeline reports of it compared with the ledger's.

    python -m tests.integration.share_metrics.workload --rounds 6 --records 300
    python -m tests.integration.share_metrics.workload --rounds 6 --alerts    # needs promtool

Groups with delivery limits of 3, 5 and 10 work while roles and the ingest are killed; one group stops, another hangs, a
topic is deleted and created again. A record's value decides its outcome, so that the ledger knows how each record ends,
however many times it is delivered, without reading anything from the pipeline. The table is printed; the exit status is
0 if all rows agree.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from kip932.ids import topic_id_text
from share_metrics.ingest.job import Cluster, Exposition, Job, collected, run
from share_metrics.ingest.writing import Source
from share_metrics.reader import Store
from share_metrics.replay.time_travel import replayed
from sharegroups import (
    AcknowledgeType,
    Admin,
    AlterConfig,
    ConfigResource,
    KafkaError,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from tests.chaos.experiment import SETTINGS
from tests.chaos.processes import ClusterProcesses
from tests.support.ports import free_port

from .workload_alerts import Watch, misjudged, missed, reported
from .world import SHAREGROUPS

LIMITS: Final = (3, 5, 10)
#: The group that works on the topic of each limit, and the groups at a standstill on the topic of limit 5.
WORKERS: Final = {f"limit-{limit}": f"work-{limit}" for limit in LIMITS}
STILL: Final = {"stopped": "work-5", "hung": "work-5"}
AGAIN: Final = "again"
ROLES: Final = ("partition_leader", "share_coordinator", "group_coordinator")
BOUND_S: Final = 120.0

FATES: Final = {
    "accept": AcknowledgeType.ACCEPT, "reject": AcknowledgeType.REJECT, "fail": AcknowledgeType.RELEASE
}  # fmt: skip


class Row(NamedTuple):
    """One number: what it counts, where the pipeline reports it, and the ledger's and the pipeline's values."""

    of: str
    number: str
    ledger: object
    reported: object

    @property
    def agrees(self) -> bool:
        return self.ledger == self.reported


class Ledger:
    """The records produced to each topic, and how they have ended for each group. A topic that is created again has a
    new life."""

    def __init__(self) -> None:
        self.produced: Counter[str] = Counter()
        self.ended: dict[tuple[str, str], Counter[str]] = {}

    def fate(self, number: int) -> str:
        return {3: "fail", 7: "reject"}.get(number % 20, "accept")

    def produce(self, bootstrap: str, life: str, count: int) -> None:
        """Produce records to a topic; a life is named by the topic's name, a colon and a number."""
        first = self.produced[life]
        with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(first, first + count):
                producer.produce(life.partition(":")[0], self.fate(number))
            assert producer.flush(BOUND_S) == 0
        self.produced[life] += count

    def drained(self, group: str, life: str) -> None:
        """Note that every record produced so far has ended for the group."""
        self.ended[group, life] = Counter(self.fate(number) for number in range(self.produced[life]))

    def lag(self, group: str, life: str) -> int:
        return self.produced[life] - sum(self.ended[group, life].values())


class Workload:
    """A cluster, the actions on it, and the ingest that runs meanwhile."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self.folder = folder
        self.data = folder / "history"
        self.ledger = Ledger()
        self.began = datetime.now(UTC)
        self._held = held
        self.cluster = ClusterProcesses(folder, SETTINGS)
        held.callback(self.cluster.stop)
        self.cluster.start()
        self.admin = held.enter_context(Admin(bootstrap_servers=self.cluster.bootstrap))
        for topic in (*WORKERS.values(), AGAIN):
            assert not any(self.admin.create_topics([NewTopic(topic)]).values())
        for limit in LIMITS:
            change = [AlterConfig("share.delivery.count.limit", str(limit))]
            asked = {ConfigResource.group(f"limit-{limit}"): change}
            assert not any(self.admin.incremental_alter_configs(asked).values())
        self._ingest: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def store(self) -> str:
        return self.cluster._store_url

    # ---- the actions

    def work(self, records: int, struck: str | None = None) -> None:
        """Produce to each topic, and let its group finish all records while a role is killed."""
        for topic in WORKERS.values():
            self.ledger.produce(self.cluster.bootstrap, topic, records)
        with self.striking(struck):
            for group, topic in WORKERS.items():
                with self.consumer(group, topic) as consumer:
                    self.drain(consumer, group, topic)

    @contextmanager
    def striking(self, struck: str | None) -> Iterator[None]:
        """Kill a role during this block."""
        killer = threading.Timer(0.5, self.cluster.kill, [struck]) if struck else None
        if killer is not None:
            killer.start()
        try:
            yield
        finally:
            if killer is not None:
                killer.join()

    def consumer(self, group: str, topic: str) -> ShareConsumer:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.interval.ms": "3600000",  # the hung consumer stays a member throughout
            }
        )
        consumer.subscribe([topic])
        return consumer

    def drain(self, consumer: ShareConsumer, group: str, life: str) -> None:
        """Consume until the cluster reports no lag for the group."""
        until = time.monotonic() + BOUND_S
        while time.monotonic() < until:
            try:
                for message in consumer.poll(0.3):
                    value = message.value()
                    assert value is not None
                    consumer.acknowledge(message, FATES[value.decode()])
                consumer.commit_sync(3.0)
                if self.left(group, life) == 0:
                    self.ledger.drained(group, life)
                    return
            except KafkaError as error:
                print(f"{group}: {error}", file=sys.stderr)
        raise AssertionError(f"group {group} did not end {life} within {BOUND_S:.0f} s")

    def left(self, group: str, life: str) -> int | None:
        """Return the group's lag, as the cluster reports it, on the topic of this life."""
        place = TopicPartition(life.partition(":")[0], 0)
        reported = self.admin.list_share_group_offsets({group: [place]})[group]
        offset = None if isinstance(reported, KafkaError) else reported.get(place)
        return None if offset is None else offset.lag

    def stand_still(self) -> None:
        """One group finishes all records and leaves; another finishes all records and stays without polling again."""
        with self.consumer("stopped", STILL["stopped"]) as consumer:
            self.drain(consumer, "stopped", STILL["stopped"])
        hung = self._held.enter_context(self.consumer("hung", STILL["hung"]))
        self.drain(hung, "hung", STILL["hung"])

    def create_again(self, records: int) -> None:
        """Delete a topic whose group is done, and create it again under the same name."""
        first, second = f"{AGAIN}:1", f"{AGAIN}:2"
        self.ledger.produce(self.cluster.bootstrap, first, records)
        with self.consumer(AGAIN, AGAIN) as consumer:
            self.drain(consumer, AGAIN, first)
        assert not any(self.admin.delete_topics([AGAIN]).values())
        assert not any(self.admin.create_topics([NewTopic(AGAIN)]).values())
        self.ledger.produce(self.cluster.bootstrap, second, records // 2)
        with self.consumer(AGAIN, AGAIN) as consumer:
            self.drain(consumer, AGAIN, second)

    # ---- the ingest

    def ingest(self) -> None:
        """Kill the ingest if it is running, and start it again."""
        self.end_ingest()
        command = [SHAREGROUPS, "metrics", "ingest", "--store", self.store, "--data", str(self.data)]
        with (self.folder / "ingest.log").open("ab") as log:
            command += ["--continuous", "--trigger", "2", "--metrics-port", str(self.port)]
            self._ingest = subprocess.Popen(command, stdout=log, stderr=log)

    def await_shown(self) -> None:
        """Wait until the ingest shows gauges of share-partitions, so that it has read what existed."""
        until = time.monotonic() + BOUND_S
        while time.monotonic() < until:
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as answer,
            ):
                if b"sharegroups_ingest_share_group_finished_offset{" in answer.read():
                    return
            time.sleep(0.5)
        raise AssertionError(f"the ingest showed nothing within {BOUND_S:.0f} s; see {self.folder / 'ingest.log'}")

    def end_ingest(self) -> None:
        """SIGKILL the ingest if it is running."""
        if self._ingest is not None:
            self._ingest.send_signal(signal.SIGKILL)
            self._ingest.wait(BOUND_S)
            self._ingest = None

    # ---- the pipeline's numbers

    def rows(self) -> list[Row]:
        """Ingest the rest, and return the comparison of the page, the gauges and the replay with the ledger."""
        self.end_ingest()
        gauges = self.folder / "gauges.prom"
        found = run(Job(Source(self.store), self.data), Exposition(textfile=gauges), Cluster("local[1]"), print)
        report = collected(self.data, (self.began, None), 60, False, Cluster("local[1]"), print)
        rows = [Row("all", "entries lost", 0, found.lost)]
        topics = self.admin.list_topics()
        lines = {line.name: line for line in report.partitions if not line.gone}
        scraped = _scraped(gauges.read_text())
        for (group, life), ended in sorted(self.ledger.ended.items()):
            topic = life.partition(":")[0]
            if life == f"{AGAIN}:1":
                continue
            of, place = f"{group} {life}", (group, topic)
            line, lag = lines[f"{group} · {topic}-0"], self.ledger.lag(group, life)
            done = sum(ended.values())
            rows += [
                Row(of, "page: lag", lag, line.lag), Row(of, "page: finished", done, line.finished),
                Row(of, "page: accepted", ended["accept"], line.accepted),
                Row(of, "page: rejected", ended["reject"], line.rejected),
                Row(of, "page: over limit", ended["fail"], line.limited),
                Row(of, "gauge: lag", lag, scraped["lag", *place]),
                Row(of, "gauge: finished", done, scraped["finished_offset", *place]),
                Row(of, "gauge: members", int(group == "hung"), scraped["members", group, ""]),
            ]  # fmt: skip
            topic_id = topic_id_text(topics[topic].topic_id)
            rows += [
                Row(of, "replay: finished", done, self.replayed(group, topic_id)),
                Row(of, "replay of the history", done, self.replayed(group, topic_id, self.data)),
            ]
        gone = [line for line in report.partitions if line.gone]
        rows.append(Row(f"{AGAIN} {AGAIN}:1", "page: lag", [None], [line.lag for line in gone]))
        failed = sum(ended["fail"] + ended["reject"] for ended in self.ledger.ended.values())
        rows.append(Row("all", "page: failed records", failed, report.found.poison))
        return rows

    def replayed(self, group: str, topic_id: str, data: Path | None = None) -> int | None:
        """Return the number of finished records: from the store's log, or from ingested data alone."""
        with Store(self.store) as store:
            state = replayed(store if data is None else None, group, topic_id, 0, None, data).state
        if state is None or state.start_offset is None:
            return None
        return state.start_offset + max(state.delivery_complete_count or 0, 0)


def _scraped(text: str) -> dict[tuple[str, str, str], float]:
    return {
        (
            sample.name.removeprefix("sharegroups_ingest_share_group_"),
            sample.labels["group"],
            sample.labels.get("topic", ""),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "group" in sample.labels
    }


def played(folder: Path, rounds: int, records: int) -> tuple[list[Row], list[str]]:
    """Run the workload; returns the rows of the table, and no findings about alerts."""
    with ExitStack() as held:
        workload = Workload(folder, held)
        held.callback(workload.end_ingest)
        workload.ingest()
        workload.work(records)
        workload.stand_still()
        workload.create_again(records)
        for number in range(rounds):
            workload.work(records, ROLES[number % len(ROLES)])
            workload.ingest()
        return workload.rows(), []


def watched(folder: Path, rounds: int, records: int) -> tuple[list[Row], list[str]]:
    """Run with the ingest's alerts evaluated throughout; returns the rows of the table, and the alerts that fired
    wrongly or failed to fire. It ends with an ingest that stays dead."""
    with ExitStack() as held:
        workload = Workload(folder, held)
        held.callback(workload.end_ingest)
        workload.ingest()
        watch = Watch(workload.port)
        held.callback(watch.end)
        workload.work(records)
        workload.stand_still()
        workload.create_again(records)
        for number in range(rounds):
            workload.work(records, ROLES[number % len(ROLES)])
            workload.ingest()  # kills it during a start of Spark, or after it has shown what it read
            if number % 2 or number == rounds - 1:
                workload.await_shown()
        workload.end_ingest()
        expected = missed(watch, 15)
        watch.end()
        fired = watch.fired()
        print(*reported(fired, watch.began), sep="\n")
        return workload.rows(), misjudged(fired, expected)


def table(rows: Sequence[Row]) -> str:
    """Return the table as text; rows that disagree are marked."""
    return "\n".join(f"{'  ' if row.agrees else '≠ '}{row.of:22} {row.number:22} {row.ledger!s:>8} {row.reported!s:>8}"
                     for row in rows)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.share_metrics.workload")
    parser.add_argument("--rounds", type=int, default=6, help="rounds in which a role is killed, and then the ingest")
    parser.add_argument("--records", type=int, default=300, help="records to each topic in each round")
    parser.add_argument(
        "--alerts", action="store_true", help="evaluate the ingest's alerts over it, which takes some minutes more"
    )
    options = parser.parse_args(arguments)
    Cluster("local[1]").session("ledger")  # before any connection is open: none survives the fork that starts Java
    with TemporaryDirectory(prefix="sharegroups-ledger-") as name:
        play = watched if options.alerts else played
        rows, misfired = play(Path(name), options.rounds, options.records)
    print(table(rows))
    wrong = [row for row in rows if not row.agrees]
    print(*misfired, f"{len(rows)} numbers, {len(wrong)} of them differ", sep="\n")
    if options.alerts:
        print(f"{len(misfired)} alerts fired where they should not, or did not where they should")
    return int(bool(wrong or misfired))


if __name__ == "__main__":
    sys.exit(main())
