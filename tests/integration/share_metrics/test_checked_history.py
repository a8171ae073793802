"""Compares the pipeline's numbers with what clients saw while services were killed, in a history that passed the
checkers."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner

from share_metrics.commands import metrics
from tests.chaos.checker import FINAL_TYPES, Place, place
from tests.chaos.experiment import PARTITIONS, Experiment
from tests.chaos.history import Acknowledged, Delivered, Event, Fault
from tools.report import demo_store


class Seen:
    """How records ended, as far as clients can know: a lost response leaves two possibilities.

    So does an acknowledgement that a killed consumer sent but could not record: a history contains it only once its
    response has arrived.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        #: Everything produced was delivered, since the topic was drained.
        self.records = len({place(event) for event in events if isinstance(event, Delivered)})
        self._asked: dict[Place, set[str]] = {}
        self._answered: dict[Place, set[str]] = {}
        for event in events:
            if isinstance(event, Acknowledged) and event.type in FINAL_TYPES:
                self._asked.setdefault(place(event), set()).add(event.type)
                if not event.error:
                    self._answered.setdefault(place(event), set()).add(event.type)
        for at in _untold(events):
            self._asked.setdefault(at, set()).update(FINAL_TYPES)

    def least(self, kind: str) -> int:
        """Return the number of records that certainly ended this way: it was confirmed, and no consumer requested
        another end."""
        return sum(kinds == {kind} == self._asked[at] for at, kinds in self._answered.items())

    def most(self, kind: str) -> int:
        """Return the number of records for which a consumer requested this end."""
        return sum(kind in kinds for kinds in self._asked.values())


def _untold(events: Sequence[Event]) -> set[Place]:
    """Return the records delivered to a killed consumer for which it recorded no acknowledgement."""
    killed = {event.target for event in events if isinstance(event, Fault) and event.name == "SIGKILL"}
    reported = {
        (event.worker, place(event), event.delivery_count) for event in events if isinstance(event, Acknowledged)
    }
    return {
        place(event)
        for event in events
        if isinstance(event, Delivered)
        and event.worker in killed
        and (event.worker, place(event), event.delivery_count) not in reported
    }


@contextmanager
def played(folder: Path) -> Iterator[Seen]:
    """A cluster whose services and one consumer were killed while it worked; drained, judged and stopped."""
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    with Experiment(folder, seed) as experiment:
        for target in ("partition_leader", "share_coordinator", "partition_leader"):
            experiment.pass_time(0.5, 1.0)
            experiment.kill(target)
        experiment.kill_worker(0)
        experiment.pass_time(0.5, 1.0)
        experiment.finish()
        yield Seen(experiment.history())


def report_on(folder: Path, history: Path) -> dict[str, Any]:
    """Return the totals of the page that `ingest` and `report` produce from the cluster's store."""
    with demo_store(folder / "data") as url:
        ingested = CliRunner().invoke(metrics, ["ingest", "--store", url, "--data", str(history)])
    assert ingested.exit_code == 0, ingested.output
    page = str(history / "report.html")
    reported = CliRunner().invoke(metrics, ["report", "--data", str(history), "--out", page, "--output", "json"])
    assert reported.exit_code == 0, reported.output
    found: dict[str, Any] = json.loads(reported.stdout)
    return found


def test_what_a_killed_consumer_did_not_report_may_have_ended_in_any_way() -> None:
    def delivered(worker: str, offset: int) -> Delivered:
        return Delivered(worker, "t", 0, offset, "v", 1, 0, 1)

    def accepted(worker: str, offset: int) -> Acknowledged:
        return Acknowledged(worker, "t", 0, offset, "ACCEPT", 1, "", 2, 3)

    killed: list[Event] = [delivered("consumer0", 0), accepted("consumer0", 0), delivered("consumer0", 1)]
    seen = Seen([*killed, Fault("SIGKILL", "consumer0", 4), delivered("consumer1", 2), accepted("consumer1", 2)])
    assert {kind: (seen.least(kind), seen.most(kind)) for kind in FINAL_TYPES} == {"ACCEPT": (2, 3), "REJECT": (0, 1)}


@pytest.mark.rule("PM-34", "PM-41", "PM-42", "PM-44", "PM-64")
@pytest.mark.usefixtures("spark")
def test_the_page_has_the_numbers_that_clients_saw_through_kills(tmp_path: Path) -> None:
    # Not in pytest's directory, whose path is too long for the sockets of a store.
    with TemporaryDirectory(prefix="sharegroups-seen-") as name, played(Path(name)) as seen:
        found = report_on(Path(name), tmp_path)
    print(found, {kind: (seen.least(kind), seen.most(kind)) for kind in FINAL_TYPES}, seen.records)
    assert found["share_partitions"] == PARTITIONS
    assert found["finished"] == seen.records > 0
    assert seen.least("ACCEPT") <= found["accepted"] <= seen.most("ACCEPT")
    assert seen.least("REJECT") <= found["rejected"] <= seen.most("REJECT")
    # Each record ended once, however many times its end was requested, repeated, or read back by the next leader.
    assert found["accepted"] + found["rejected"] + found["limited"] == seen.records
    assert [found[name] for name in ("lag", "lost", "quarantined", "unknown")] == [0, 0, 0, 0]
