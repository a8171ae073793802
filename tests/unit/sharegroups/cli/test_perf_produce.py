"""`sharegroups perf produce` on the fake cluster. Rates and latencies differ from run to run and are replaced."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from sharegroups.cli.main import main
from sharegroups.cli.perf_produce import Load
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

INEXACT = [
    (r"[\d.]+ records/sec \([\d.]+ MB/sec\)", "RATE records/sec (RATE MB/sec)"),
    (r"[\d.]+ ms", "MS ms"),
]
#: TOPIC_AUTHORIZATION_FAILED: final for every record of its request, which on a slow machine may have several.
REFUSED = 29


@pytest.mark.rule("CT-98")
def test_the_transcript(fake: FakeCluster) -> None:
    check(
        "perf-produce",
        [
            "perf produce --topic t --num-records 50 --record-size 200",
            "perf produce --topic t --num-records 3 --throughput 1000 --command-property batch.num.records=1",
            "perf produce --topic nope --num-records 1",
            "perf produce --topic t --num-records 1 --throughput 0",
            "perf produce --topic t",
        ],
        INEXACT,
    )
    assert fake.log("t", 0).end + fake.log("t", 1).end == 53


@pytest.mark.rule("CT-98")
def test_a_record_that_is_not_taken_is_not_counted_and_ends_with_1(fake: FakeCluster) -> None:
    fake.errors["produce"].append(REFUSED)
    given = ("--num-records", "4", "--throughput", "200", "--command-property", "batch.num.records=1")
    result = sharegroups("perf", "produce", "--topic", "t", *given)
    assert result.exit_code == 1
    sent = int(result.stdout.partition(" records sent, ")[0])
    (refused,) = map(int, re.findall(r"^Error: (\d+) records were not delivered; the first: ", result.stderr))
    assert sent == fake.log("t", 0).end + fake.log("t", 1).end == 4 - refused
    assert refused >= 1


@pytest.mark.rule("CT-98")
def test_an_interval_has_a_line_of_its_own(fake: FakeCluster) -> None:
    given = ("--num-records", "20", "--throughput", "400", "--reporting-interval", "10")
    result = sharegroups("perf", "produce", "--topic", "t", *given)
    *intervals, last = result.stdout.splitlines()
    assert "99.9th" in last
    assert intervals
    assert not any("99.9th" in line for line in intervals)
    assert sum(int(line.split()[0]) for line in intervals) <= 20 == int(last.split()[0])
    stored = [len(batch.batch) for number in (0, 1) for batch in fake.log("t", number).batches]
    assert 20 * 1_000 < sum(stored) < 20 * 1_100, "a record has 1000 bytes"


@pytest.mark.rule("CT-98")
def test_for_programs_each_line_is_a_document(fake: FakeCluster) -> None:
    given = ("--num-records", "20", "--throughput", "400", "--reporting-interval", "10", "--output", "json")
    result = sharegroups("perf", "produce", "--topic", "t", *given)
    *intervals, last = [json.loads(line) for line in result.stdout.splitlines()]
    assert (last["total"], last["records"]) == (True, 20)
    assert list(last["latency_percentiles_ms"]) == ["50th", "95th", "99th", "99.9th"]
    assert last["latency_percentiles_ms"]["50th"] <= last["latency_max_ms"]
    assert intervals
    assert not any(each["total"] or "latency_percentiles_ms" in each for each in intervals)


def test_payloads_are_of_one_size_and_differ() -> None:
    payloads = Load("t", 1, 300, -1, 5)._payloads
    assert {len(payload) for payload in payloads} == {300}
    assert len(set(payloads)) == len(payloads)


@pytest.mark.parametrize("words", [("--record-size", "0"), ("--reporting-interval", "0"), ("--throughput", "-2")])
def test_what_cannot_be_is_refused(words: tuple[str, str]) -> None:
    result = CliRunner().invoke(main, ["perf", "produce", "--topic", "t", "--num-records", "1", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert words[1] in result.stderr
