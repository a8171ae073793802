"""Two kinds of trouble with dead letters. Tests run them briefly; run by hand they take longer and print figures.

python -m tests.integration.dead_letters.plays away --seconds 60 --rate 100
python -m tests.integration.dead_letters.plays kill --records 1000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from sharegroups import Message, Producer
from tests.integration.dead_letters.queues import ACCEPT, ENABLE_CONFIG, REJECT, Queues, said
from tests.support.node import BOUND_S, QUICK, Cluster, unique
from tests.support.ports import free_port


class Worker:
    """One consumer in a thread: acknowledges each record as `act` decides, commits after each poll, and survives
    errors."""

    def __init__(self, queues: Queues, act: Callable[[Message], object], records_max: int) -> None:
        self._queues = queues
        self._act = act
        self._records_max = records_max
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker")
        self.failure: BaseException | None = None
        self.deliveries: Counter[int] = Counter()
        self.answered: dict[int, object] = {}
        self.again: list[int] = []
        self.delivered_at: list[float] = []

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Worker]:
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join(BOUND_S)
        if self.failure is not None:
            raise self.failure
        assert not self._thread.is_alive(), "the worker did not end in time"

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + BOUND_S
        while not done():
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, f"not in time: {what}"
            time.sleep(0.02)

    def _run(self) -> None:
        try:
            with self._queues.consumer(max_poll_records=self._records_max) as consumer:
                while not self._over.is_set():
                    messages = consumer.poll(timeout=0.1)
                    chosen = {message.offset(): self._act(message) for message in messages}
                    for message in messages:
                        self._note(message)
                        consumer.acknowledge(message, chosen[message.offset()])  # type: ignore[arg-type]
                    if all(error is None for error in consumer.commit_sync().values()):
                        self.answered |= chosen
        except BaseException as error:
            self.failure = error

    def _note(self, message: Message) -> None:
        self.delivered_at.append(time.monotonic())
        self.deliveries[message.offset()] += 1
        if message.offset() in self.answered:
            self.again.append(message.offset())


@dataclass(frozen=True, slots=True)
class Away:
    """The results while the dead-letter topic was missing, and afterwards."""

    away_s: float
    produced: int
    accepted: int
    rejected: int
    waited_most: int
    letters: int
    duplicates: int
    longest_pause_s: float
    written_after_s: float
    delivered_again: int


def play_away(queues: Queues, away_s: float, rate: int) -> Away:
    """Run a producer and a worker; every tenth record is rejected. The dead-letter topic is deleted, and created again
    after `away_s` s."""
    worker = Worker(queues, lambda message: REJECT if message.offset() % 10 == 0 else ACCEPT, 50)
    produced = 0
    with Producer(bootstrap_servers=queues.cluster.bootstrap) as producer, worker.at_work():

        def produce(until: float) -> None:
            nonlocal produced
            while time.monotonic() < until:
                for _ in range(max(1, rate // 20)):
                    producer.produce(queues.topic, b"v")
                    produced += 1
                producer.flush()
                time.sleep(0.05)

        produce(time.monotonic() + 0.5)
        worker.until(lambda: len(worker.answered) >= 10, "the first acknowledgements are confirmed")
        assert queues.admin.delete_topics([queues.dlq]) == {queues.dlq: None}
        before = len(worker.delivered_at) - 1
        produce(time.monotonic() + away_s)
        worker.until(
            lambda: len(worker.answered) == produced, "every acknowledgement is confirmed while the topic is missing"
        )
        waited = queues.offsets(backlog=True).dead_letters or 0
        queues.create(queues.dlq, 1, **{ENABLE_CONFIG: "true"})
        began = time.monotonic()
        after = len(worker.delivered_at)
        produce(began + 0.5)
        worker.until(lambda: len(worker.answered) == produced, "every acknowledgement is confirmed")
        queues.until_letters(waited + sum(offset % 10 == 0 for offset in list(worker.answered)[after:]))
        written_s = time.monotonic() - began
        queues.until_start(produced)
    pauses = zip(worker.delivered_at[before:after], worker.delivered_at[before + 1 : after], strict=False)
    found = Counter(int(said(letter)["offset"]) for letter in queues.letters())
    rejected = sorted(offset for offset, kind in worker.answered.items() if kind is REJECT)
    assert set(found) <= set(rejected)
    assert set(rejected[-waited:] if waited else []) <= set(found), "a waiting dead letter was lost"
    return Away(
        away_s,
        produced,
        len(worker.answered) - len(rejected),
        len(rejected),
        waited,
        len(found),
        found.total() - len(found),
        round(max(later - sooner for sooner, later in pauses), 3),
        round(written_s, 2),
        len(worker.again),
    )


def _start(queues: Queues) -> int | None:
    """Return the start offset; None while no leader reports it."""
    with contextlib.suppress(KeyError):
        return queues.offsets().start_offset
    return None


@dataclass(frozen=True, slots=True)
class Killed:
    """The results after a leader was killed while records were being rejected."""

    records: int
    answered_before: int
    letters: int
    duplicates: int
    delivered_again: int


def led_by_another(queues: Queues) -> None:
    """Use a source topic that the second leader leads; which node leads a topic depends on its random id."""
    queues.cluster.add_leader("second")
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        settled = time.monotonic() + 5
        while time.monotonic() < settled:
            (part,) = queues.admin.list_topics([queues.topic])[queues.topic].partitions
            if part.leader == 2:
                return
            time.sleep(0.1)
        queues.topic = unique("t")
        queues.create(queues.topic)
    raise AssertionError("no topic is led by the second leader")


def play_kill(records: int, *, takeover: bool = False) -> Killed:
    """Let a worker reject records, and kill the leader after a third of the responses. Restart it on the same data or,
    with `takeover`, let another leader take its place."""
    with Cluster(QUICK, "--port", str(free_port())) as cluster:
        queues = Queues(cluster)
        try:
            if takeover:
                led_by_another(queues)
            queues.produce(records)
            worker = Worker(queues, lambda _: REJECT, 20)
            with worker.at_work():
                worker.until(
                    lambda: len(worker.answered) >= records // 3, "a third of the acknowledgements is confirmed"
                )
                if takeover:
                    cluster.kill_leader()
                else:
                    cluster.node.kill()
                before = set(worker.answered)
                if not takeover:
                    cluster.start()
                # Not every response reaches the worker: one may be lost.
                worker.until(lambda: _start(queues) == records, "every record is finished")
            letters = queues.letters()
            found = {int(said(letter)["offset"]) for letter in letters}
            assert found == set(range(records)), "a dead letter was lost"
            assert len({letter.key for letter in letters}) == records, (
                "a duplicate must have the same key as the original"
            )
            again = [offset for offset in worker.again if offset in before]
            return Killed(records, len(before), len(found), len(letters) - len(found), len(again))
        finally:
            queues.close()


def main() -> None:
    """Run one of the two, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("play", choices=("away", "kill", "takeover"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=int, default=100, help="records a second")
    parser.add_argument("--records", type=int, default=1_000)
    given = parser.parse_args()
    if given.play != "away":
        print(json.dumps(asdict(play_kill(given.records, takeover=given.play == "takeover"))))
        return
    with Cluster(QUICK) as cluster:
        queues = Queues(cluster)
        try:
            print(json.dumps(asdict(play_away(queues, given.seconds, given.rate))))
        finally:
            queues.close()


if __name__ == "__main__":
    main()
