"""The counters continue where a killed process ended, and no batch counts twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, Final

import pytest
from pyspark.sql import Row

from share_metrics.archive.folders import checkpoints
from share_metrics.gauges import gauges as module
from share_metrics.gauges.counters import Counters, CountersFile
from share_metrics.gauges.gauges import ROLLED_UP, Gauges, ResumeError
from share_metrics.reader import Kind

STATE: Final = Kind.SHARE_STATE
TOPIC: Final = "t"
COUNTS: Final = ("n_accept", "n_release", "n_reject", "n_timeout", "n_limit", "n_given_back", "poison_sightings")


class KilledError(Exception):
    """Raised in order to end the process."""


class Reported(list[Any]):
    """Rows as if aggregated by Spark."""

    def collect(self) -> list[Any]:
        return list(self)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the aggregation: a batch already consists of aggregated states."""
    monkeypatch.setattr(module, "newest_states", lambda rows: rows)
    for name in ("stream_news", "newest_members", "rebalances", "topic_names"):
        monkeypatch.setattr(module, name, lambda rows: Reported())


def query(data: Path, kind: Kind, number: str) -> None:
    folder = checkpoints(data, kind)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": number}))


def done(data: Path, kind: Kind, last: int) -> None:
    """Note, as Spark does, that this batch is the last one done."""
    folder = checkpoints(data, kind) / "commits"
    folder.mkdir(exist_ok=True)
    for note in folder.iterdir():
        note.unlink()
    (folder / str(last)).touch()


def never(words: str) -> None:
    raise AssertionError(words)


def batch(*partitions: tuple[int, int], **reported: Any) -> Reported:
    """A batch of (partition, writes) pairs; `reported` overrides further columns."""
    values = {"start_offset": 1, "delivery_complete_count": 0, "hwm": 1, "speo": 1, "state_epoch": 0}
    rest = {"gone": False, "begins": False, "early": {}, "first_write": None, "last_write": None, "hwm_s": 1.0}
    all_reported = values | rest | reported
    return Reported(
        Row(
            group_id="g", topic_id=TOPIC, partition=partition, writes=writes, **dict.fromkeys(COUNTS, 0), **all_reported
        )
        for partition, writes in partitions
    )


def shown(gauges: Gauges) -> Counter[str]:
    return Counter(
        {
            sample.labels["partition"]: int(sample.value)
            for family in gauges.collect()
            for sample in family.samples
            if sample.name == "sharegroups_ingest_share_group_writes_total"
        }
    )


def labels(gauges: Gauges) -> dict[str, list[dict[str, str]]]:
    """The labels of each metric that has samples."""
    return {family.name: [sample.labels for sample in family.samples] for family in gauges.collect() if family.samples}


@pytest.mark.rule("PM-38")
def test_what_was_counted_is_there_again(tmp_path: Path) -> None:
    file = CountersFile(tmp_path)
    counters = Counters(
        {("g", TOPIC, 3): Counter(writes=2, n_accept=9)},
        {("g", TOPIC): Counter(writes=1)},
        Counter(g=4),
        Counter({("{sgs:0}:log", "lost"): 7}),
        {STATE: 5, Kind.GROUP: 2},
    )
    assert file.load(never) == Counters()
    query(tmp_path, STATE, "a")
    query(tmp_path, Kind.GROUP, "b")
    for kind, last in (STATE, 4), (Kind.GROUP, 2):
        done(tmp_path, kind, last)
    file.save(counters)
    assert file.load(never) == counters
    done(tmp_path, STATE, 3)
    assert file.load(never) == Counters(), "the checkpoints are of a backup, and these batches come with other rows"
    done(tmp_path, STATE, 5)
    assert file.load(never) == counters
    query(tmp_path, Kind.GROUP, "c")
    assert file.load(never) == Counters(), "the rows of that kind were removed, and are ingested again"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"batches": {"of tomorrow": 1}, "queries": {}}'])
def test_a_file_that_cannot_be_read_is_reported_and_counts_from_now_on(tmp_path: Path, text: str) -> None:
    reported: list[str] = []
    (tmp_path / "counters.json").write_text(text)
    assert CountersFile(tmp_path).load(reported.append) == Counters()
    (words,) = reported
    assert words.startswith(f"{tmp_path}/counters.json cannot be read (")
    assert words.endswith("); counters for Prometheus begin at 0")


@pytest.mark.rule("PM-38")
def test_what_is_shown_was_kept_before() -> None:
    full = iter([True, False])

    def keep(counters: Counters) -> None:
        assert counters.batches == {STATE: 0}
        if next(full):
            raise OSError("no space left")

    gauges = Gauges(keep=keep)
    rows = batch((0, 1), last_write=(4, 1, 7))
    with pytest.raises(OSError, match="no space left"):
        gauges.take(STATE, rows, 0)  # type: ignore[arg-type]  # the test plays Spark's part
    assert shown(gauges) == {}
    for _ in range(2):  # the query is restarted, and once more after the batch was counted
        gauges.take(STATE, rows, 0)  # type: ignore[arg-type]
        assert shown(gauges) == {"0": 1}


def test_a_batch_that_comes_again_shows_no_gauges_of_the_state_before_it() -> None:
    """The batch starts with updates of the previous epoch, so by itself it does not show that its snapshot's epoch is
    new."""
    gauges = Gauges()
    gauges.take(STATE, batch((0, 1)), 0)  # type: ignore[arg-type]
    early = dict.fromkeys(("start_offset", "delivery_complete_count", "hwm", "speo"), True)
    for _ in range(2):
        gauges.take(STATE, batch((0, 1), state_epoch=1, speo=120, early=early), 1)  # type: ignore[arg-type]
        assert "sharegroups_ingest_share_group_in_flight_width" not in labels(gauges)


@pytest.mark.rule("PM-38")
def test_until_all_is_taken_that_was_kept_a_scrape_shows_nothing_of_it() -> None:
    """Until then topics have no names, and an alert would treat a series with a topic's id as a new one."""
    before, kept = Gauges(1), list[Counters]()
    before._keep = lambda counters: kept.append(counters.copy())
    before._names = {TOPIC: "orders"}
    rows = batch((0, 1), (1, 4))
    before.take(STATE, rows, 0)  # type: ignore[arg-type]
    after = Gauges(1)
    with after.resuming(kept[-1]):
        assert not list(after.collect())
        after.take(STATE, rows, kept=True)  # type: ignore[arg-type]
        assert not list(after.collect())
        after._names = {TOPIC: "orders"}
    assert labels(after) == labels(before)
    assert shown(after) == shown(before) == {"0": 1, ROLLED_UP: 4}


@pytest.mark.rule("PM-38", "PM-107")
@pytest.mark.parametrize("broken", [False, True], ids=["taken", "not taken"])
def test_new_batches_wait_until_what_was_kept_is_taken(broken: bool) -> None:
    """They are written by then. If they were counted first, older values would replace newer ones."""
    before, kept = Gauges(), list[Counters]()
    before._keep = lambda counters: kept.append(counters.copy())
    before.take(STATE, batch((0, 5)), 0)  # type: ignore[arg-type]  # the test plays Spark's part
    gauges, ended = Gauges(), list[str]()

    def take() -> None:
        try:
            gauges.take(STATE, batch((0, 1)), 1)  # type: ignore[arg-type]
        except ResumeError:
            ended.append("not counted")
        else:
            ended.append("counted")

    thread = Thread(target=take)
    with nullcontext() if not broken else pytest.raises(KilledError), gauges.resuming(kept[-1]):
        thread.start()
        gauges.take(STATE, batch((0, 5)), kept=True)  # type: ignore[arg-type]
        assert not ended
        if broken:
            raise KilledError
    thread.join()
    assert ended == ["not counted" if broken else "counted"]
    assert shown(gauges) == ({} if broken else {"0": 6})


class Ingest:
    """Batches, a process that may be killed at each step of a batch, and the values that a scrape has shown."""

    def __init__(self, data: Path, batches: Sequence[Reported], random: Random) -> None:
        query(data, STATE, "a")
        self._data = data
        self._file = CountersFile(data)
        self._batches = batches
        self._random = random
        #: The last batch in the commit log of rows, and the last one that Spark has recorded as done.
        self._committed = self._done = -1
        self.seen: Counter[str] = Counter()
        self.kills = 0

    def run(self) -> bool:
        """Run until killed (False), or until all batches are done (True)."""
        try:
            gauges, counters = Gauges(1, keep=self._keep), self._file.load(never)
            last = min(max(self._done, counters.batches.get(STATE, -1)), self._committed)
            with gauges.resuming(counters):
                for rows in self._batches[: last + 1]:
                    gauges.take(STATE, rows, kept=True)  # type: ignore[arg-type]
            self._scrape(gauges)
            while self._done + 1 < len(self._batches):
                number = self._done + 1
                self._step()
                self._committed = max(self._committed, number)
                self._step()
                gauges.take(STATE, self._batches[number], number)  # type: ignore[arg-type]
                self._scrape(gauges)
                self._step()
                self._done = number
                done(self._data, STATE, number)
                self._step()
        except KilledError:
            return False
        return True

    def _keep(self, counters: Counters) -> None:
        self._step()
        self._file.save(counters)
        self._step()

    def _step(self) -> None:
        if self._random.random() < 0.15:
            self.kills += 1
            raise KilledError

    def _scrape(self, gauges: Gauges) -> None:
        found = shown(gauges)
        assert all(found[name] >= value for name, value in self.seen.items()), "no counter falls"
        self.seen = found


@pytest.mark.rule("PM-38")
@pytest.mark.parametrize("seed", range(20))
def test_each_batch_counts_once_wherever_processes_are_killed(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    writes = [(random.randrange(5), random.randrange(5)) for _ in range(12)]
    ingest = Ingest(tmp_path, [batch((0, own), (1, other)) for own, other in writes], random)
    while not ingest.run():
        pass
    assert ingest.kills > 0
    sums = [sum(each) for each in zip(*writes, strict=True)]
    assert ingest.seen == {"0": sums[0], ROLLED_UP: sums[1]}
