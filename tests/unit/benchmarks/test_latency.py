"""The samples that `benchmarks.latency` counts and leaves out, and its table. Nothing here is timed."""

from __future__ import annotations

import sys

import pytest

from benchmarks.latency import Case, available, counted, table
from benchmarks.latency_clients import HEAD, Notes, paced
from benchmarks.processes import BenchmarkError

CASE = Case(per_second=10.0, consumers=2, seconds=0.5, value_bytes=100)


def test_each_record_counts_that_came_after_the_warm_up() -> None:
    assert (CASE.count, CASE.warm) == (10, 5)
    seen = [[(number, 9_000.0) for number in range(5)], [(number, 1_000.0 * number) for number in range(5, 10)]]
    found = counted(CASE, 10, seen)
    assert found == {"records": 5, "twice": 0, "p50_ms": 7.0, "p99_ms": 9.0, "max_ms": 9.0, "by_consumer": [5, 5]}


@pytest.mark.parametrize(
    ("confirmed", "numbers", "words"),
    [
        (9, range(10), "9 of 10 records were confirmed"),
        (10, range(9), "9 of 10 records were seen, 0 of them"),
        (10, [*range(9), 4], "9 of 10 records were seen, 1 of them more than once"),
    ],
)
def test_a_run_with_a_record_too_few_is_not_counted(confirmed: int, numbers: list[int], words: str) -> None:
    with pytest.raises(BenchmarkError, match=words):
        counted(CASE, confirmed, [[(number, 1.0) for number in numbers], []])


@pytest.mark.asyncio
async def test_values_have_their_size_their_number_and_their_moment() -> None:
    notes = Notes()
    values = [value async for value in paced(3, 1e9, 100)]
    assert [len(value) for value in values] == [100] * 3
    for value in values:
        notes.take(value)
    assert [number for number, _ in notes.seen] == [0, 1, 2]
    moments = [HEAD.unpack_from(value)[0] for value in values]
    assert moments == sorted(moments)
    assert all(us >= 0 for _, us in notes.seen)


def test_what_is_not_installed_is_reported_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.peers.find_program", lambda name: None)
    monkeypatch.setitem(sys.modules["benchmarks.latency"]._NEEDS, "nats", (("no_such_module",), ("nats-server",)))
    assert list(available(["sharegroups", "nats", "kafka"], sys.executable, "")) == ["sharegroups"]
    reported = capsys.readouterr().err.splitlines()
    assert reported[0].startswith("nats is left out; it needs the program nats-server, the module no_such_module")
    assert reported[1].startswith("kafka is left out; it needs --kafka HOST:PORT of a broker")


def _run(system: str, number: int, p50_ms: float) -> dict[str, object]:
    return {
        "system": system, "round": number, "per_second": 100.0, "consumers": 1, "p50_ms": p50_ms, "p99_ms": p50_ms * 2,
        "cpu_us_per_record": 7, "flagged": number == 2,
    }  # fmt: skip


def test_ratios_are_to_nats_in_the_same_round_and_graded_for_ours() -> None:
    runs = [_run("sharegroups", 1, 2.0), _run("nats", 1, 1.0), _run("sharegroups", 2, 40.0), _run("nats", 2, 10.0)]
    _, case, ours, nats = table(runs).splitlines()
    assert case == "100, 1"
    assert ours.split() == [
        "sharegroups",
        "21.00",
        "3.00",
        "42.00",
        "3.00",
        "7",
        "2,",
        "1",
        "goals:",
        "excellent,",
        "excellent",
    ]
    assert nats.split()[:5] == ["nats", "5.50", "1.00", "11.00", "1.00"]


def test_without_nats_there_are_no_ratios() -> None:
    assert table([_run("sharegroups", 1, 2.0)]).splitlines()[2].split() == [
        "sharegroups",
        "2.00",
        "4.00",
        "7",
        "1,",
        "0",
    ]
