"""`sharegroups perf consume` on the fake cluster. Times and rates differ from run to run and are replaced."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from sharegroups.cli import clients, perf_consume
from sharegroups.cli.main import main
from sharegroups.cli.perf_consume import Race
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import produce
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

INEXACT = [
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", "TIME"),
    (r"(TIME, TIME, [\d.]+, )[\d.]+, [\d.]+, (\d+), \d+", r"\1RATE, RATE, \2, MS"),
    (r"after \d+ ms; from then on [\d.]+ MB and [\d.]+ records", "after MS ms; from then on RATE MB and RATE records"),
    (r"-rate: [\d.]+", "-rate: RATE"),
]
KILOBYTE = b"x" * 1_022


@pytest.mark.rule("CT-33", "CT-34")
def test_the_transcript(fake: FakeCluster) -> None:
    for number in (0, 1):
        produce(fake, 10, partition=number, value=KILOBYTE)
    perf = "perf consume --topic t --num-records 20 --group"
    check(
        "perf-consume",
        [
            f"{perf} a",
            f"{perf} b --hide-header --show-detailed-stats --show-consumer-stats "
            "--command-property share.acquire.mode=batch_optimized",
            f"{perf} a --timeout 100",
            "perf consume --topic nope --num-records 1",
            f"{perf} a --date-format EEE",
            f"{perf} a --socket-buffer-size 2097152",
            "perf consume --topic t",
        ],
        INEXACT,
    )
    for number in (0, 1):
        assert Counter(fake.states("t", "a", number).values()) == {"acknowledged": 10}


@pytest.mark.rule("CT-33")
def test_older_names_of_options_do_what_the_new_ones_do(fake: FakeCluster, tmp_path: Path) -> None:
    produce(fake, 5)
    file = tmp_path / "client.properties"
    file.write_text("client.id=mine\n")
    result = sharegroups(
        "perf", "consume", "--topic", "t", "--messages", "5", "--consumer.config", str(file), "--show-consumer-stats"
    )
    assert result.exit_code == 0
    assert "Share consumer 1 having client id mine-1 consumption metrics- " in result.stdout
    assert "use --num-records" in result.stderr
    assert "use --command-config" in result.stderr


@pytest.mark.rule("CT-33")
def test_all_metrics_are_printed_when_they_are_asked_for(fake: FakeCluster) -> None:
    produce(fake, 3)
    text = sharegroups("perf", "consume", "--topic", "t", "--num-records", "3", "--print-metrics").stdout
    assert "\nMetric Name " in text
    assert "consumer-share-fetch-manager-metrics:records-consumed-total " in text


@pytest.mark.rule("CT-97")
def test_for_programs_each_row_is_a_document(fake: FakeCluster) -> None:
    produce(fake, 5, value=KILOBYTE)
    words = ["perf", "consume", "--topic", "t", "--num-records", "5", "--threads", "2", "--output", "json"]
    result = sharegroups(*words, "--show-detailed-stats", "--show-consumer-stats")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["consumer"] for row in rows] == [1, 2, "all", 1, 2]
    assert rows[0]["records"] + rows[1]["records"] == rows[2]["records"] == 5
    assert rows[0]["bytes"] + rows[1]["bytes"] == rows[2]["bytes"] >= 5 * len(KILOBYTE)
    assert rows[2]["start_ms"] + rows[2]["first_record_after_ms"] <= rows[2]["end_ms"]
    name = "consumer-share-fetch-manager-metrics:records-consumed-total"
    consumed = [row["metrics"].get(name, 0) for row in rows[3:]]  # one may have taken all before the other polled
    assert sum(consumed) == 5


@pytest.mark.rule("CT-97")
def test_too_few_records_are_an_error_and_the_row_is_printed_all_the_same(fake: FakeCluster) -> None:
    produce(fake, 3)
    result = sharegroups("perf", "consume", "--topic", "t", "--num-records", "4", "--timeout", "100")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split(", ")[5] == "3"
    assert "WARNING: Exiting before consuming the expected number of records: timeout (100 ms)" in result.stderr


class Ending:
    """Takes 10 ms for each of the `records` polls that return a record, and 100 ms for each later poll."""

    def __init__(self, clock: list[int], records: int) -> None:
        self._clock, self._left = clock, records

    def subscribe(self, topics: list[str]) -> None: ...

    def poll(self, timeout: float) -> list[Any]:
        self._clock[0] += 10 if self._left else 100
        if not self._left:
            return []
        self._left -= 1
        return [SimpleNamespace(key=lambda: None, value=lambda: b"12345678")]

    def commit_sync(self, timeout: float | None = None) -> None: ...

    def metrics(self) -> dict[tuple[str, str], float]:
        return {}

    def close(self, timeout: float) -> None: ...


@pytest.mark.rule("CT-97")
@pytest.mark.parametrize("records", [3, 0])
def test_the_wait_after_the_last_record_counts_in_no_rate(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    clock = [1_000]
    monkeypatch.setattr(clients, "open_client", lambda *_: Ending(clock, records))
    monkeypatch.setattr(perf_consume, "now_ms", lambda: clock[0])
    race = Race("t", 4, 0, [{}])
    race.run(60.0, lambda: None)
    assert clock[0] >= 1_100
    for found in (race.each[0], race.total()):
        assert (found.start_ms, found.end_ms) == (1_000, 1_030 if records else clock[0])
        assert found.values()["records_per_second"] == pytest.approx(100.0 if records else 0.0)


class StubConsumer:
    """Returns one record per poll, and records its calls."""

    def __init__(self, asked: list[tuple[str, float | None]]) -> None:
        self._asked = asked

    def subscribe(self, topics: list[str]) -> None: ...

    def poll(self, timeout: float) -> list[Any]:
        self._asked.append(("poll", timeout))
        return [SimpleNamespace(key=lambda: b"k", value=lambda: b"1234567")]

    def commit_sync(self, timeout: float | None = None) -> None:
        self._asked.append(("commit_sync", timeout))

    def metrics(self) -> dict[tuple[str, str], float]:
        return {}

    def close(self, timeout: float) -> None:
        self._asked.append(("close", timeout))


@pytest.mark.rule("CT-33", "CT-34")
@pytest.mark.parametrize("threads", [1, 3])
def test_each_consumer_polls_for_100_ms_accepts_what_it_has_and_closes_in_500(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    given: list[dict[str, str]] = []
    asked: list[list[tuple[str, float | None]]] = []

    def opened(_kind: object, settings: dict[str, str]) -> StubConsumer:
        given.append(settings)
        asked.append([])
        return StubConsumer(asked[-1])

    monkeypatch.setattr(clients, "open_client", opened)
    race = Race("t", 7, 1_000, [{"client.id": str(number)} for number in range(threads)])
    race.run(60.0, lambda: None)
    assert [settings["client.id"] for settings in given] == [str(number) for number in range(threads)]
    for one in asked:
        assert {step for step in one if step[0] == "poll"} <= {("poll", 0.1)}
        assert one[-2:] == [("commit_sync", None), ("close", 0.5)]
    total = race.total()
    assert total.records >= 7
    assert (total.records, total.size) == (sum(one.records for one in race.each), 8 * total.records)
    assert total.records == sum(step[0] == "poll" for one in asked for step in one)


@pytest.mark.rule("CT-34")
def test_an_error_of_a_consumer_ends_all_with_1(fake: FakeCluster) -> None:
    fake.errors["heartbeat"].append(24)
    result = sharegroups("perf", "consume", "--topic", "t", "--num-records", "1")
    assert result.exit_code == 1
    assert "Error: Consuming failed: " in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--num-records", "1"), "Missing option '--topic'"),
        (("--topic", "t", "--num-records", "0"), "0 is not in the range x>=1"),
        (("--topic", "t", "--num-records", "1", "--threads", "0"), "0 is not in the range x>=1"),
        (("--topic", "t", "--num-records", "1", "--reporting-interval", "0"), "0 is not in the range x>=1"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, ["perf", "consume", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
