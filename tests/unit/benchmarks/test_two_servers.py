"""The names, turns and table of `benchmarks.two_servers`. Nothing is started or timed here."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import two_servers
from benchmarks.goals import TWO_SERVERS, Bound
from benchmarks.processes import Crew, Process
from benchmarks.two_servers import CASES, DRAINS, RATES, Drain, Server, Side, main
from benchmarks.two_servers_clients import _Notes
from benchmarks.two_servers_table import FIELDS, lines, table


@pytest.fixture
def kafka_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.missing", lambda python, modules: "")


def _run(case: str, system: str, number: int, **figures: float | None) -> dict[str, Any]:
    return {"case": case, "system": system, "round": number, "flagged": number == 2, **figures}


RUNS = [
    *(_run("1p1c", "listener", number, consume_per_s=rate) for number, rate in ((1, 300), (2, 280), (3, 100))),
    *(_run("1p1c", "broker", number, consume_per_s=100, consume_us=None) for number in (1, 2, 3)),
    _run("1p1c", "native", 1, consume_per_s=1000),
    _run("first", "listener", 1, first_s=0.04),
    _run("first", "broker", 1, first_s=5.0),
]


def test_a_ratio_is_the_listeners_to_the_other_side_of_the_same_round() -> None:
    found = {(line.field, line.case, line.below): line for line in lines(RUNS)}
    assert found["consume_per_s", "1p1c", "broker"].rounds == (3.0, 2.8, 1.0)
    assert found["consume_per_s", "1p1c", "broker"].value == 2.8
    assert found["consume_per_s", "1p1c", "native"].rounds == (0.3,)
    assert found["first_s", "first", ""].rounds == (0.04,)  # a bound of its own, in seconds
    assert ("consume_per_s", "1p1c", "") not in found
    assert ("consume_us", "1p1c", "broker") not in found  # the broker's process was not given


def test_the_table_grades_what_has_a_bound_and_counts_flagged_runs() -> None:
    text = table(RUNS)
    assert "1p1c    consumed, records/s                                  280         100       1,000" in text
    (broker,) = [line for line in text.splitlines() if "records/s / broker" in line]
    (native,) = [line for line in text.splitlines() if "records/s / native" in line]
    assert broker.split()[-7:] == ["2.80", "3.00", "2.80", "1.00", "≥", "1.3", "met"]
    assert native.split()[-4:] == ["0.30", "≥", "0.4", "MISSED"]
    assert text.splitlines()[-1].startswith("2 of 9 runs are flagged")


def test_a_run_that_had_no_turn_has_an_empty_table() -> None:
    assert len(table([]).splitlines()) == 3


@pytest.mark.parametrize(("lower", "verdicts"), [(True, ["met", "met", "MISSED"]), (False, ["MISSED", "met", "met"])])
def test_a_bound_is_kept_at_its_value(lower: bool, verdicts: list[str]) -> None:
    bound = Bound("p50_ms", "200/s", "native", 1.0, lower_is_better=lower)
    assert [bound.verdict(value) for value in (0.9, 1.0, 1.1)] == verdicts


def test_every_bound_is_of_a_case_and_a_field_that_are_measured() -> None:
    cases = {*CASES, *(f"{rate}/s" for rate in RATES)} - {"latency"}
    assert {bound.case for bound in TWO_SERVERS} <= cases
    assert {bound.field for bound in TWO_SERVERS} <= FIELDS.keys()
    assert len({bound[:3] for bound in TWO_SERVERS}) == len(TWO_SERVERS)


def test_a_drain_has_spare_records_for_each_consumer() -> None:
    drain = DRAINS["1p4c"]
    assert isinstance(drain, Drain)
    assert drain.produced - drain.records == 16_000


def test_every_topic_is_a_group_and_each_round_has_a_new_one() -> None:
    topics, groups = two_servers._names(["listener"], 2)
    assert topics["listener-4p4c"] == 4
    assert set(groups) - set(topics) == {f"listener-first-{number}" for number in range(3)}


def test_costs_of_a_server_without_a_process_are_not_made_up() -> None:
    unknown = Server("broker", "127.0.0.1:9092", 0)
    assert (unknown.memory_mib(), unknown.per_record(0.0, 10)) == (None, None)
    known = Server("listener", "127.0.0.1:9092", os.getpid())
    assert known.memory_mib()
    assert known.per_record(0.0, 1)


@pytest.mark.parametrize(
    ("native", "case", "turns"),
    [(False, "1p1c", 1), (True, "1p1c", 1), (True, "latency", 2), (True, "first", 0), (False, "first", 1),
     (True, "memory", 0), (False, "memory", 1), (False, "java", 0)],
)  # fmt: skip
def test_our_own_client_has_no_part_in_what_concerns_the_server(native: bool, case: str, turns: int) -> None:
    admin = cast("Process", None)  # no turn is begun
    side = Side("listener", Server("listener", "", 0), Crew(), Path(), admin, native)
    options = argparse.Namespace(scale=1.0, seconds=2.5)
    assert len(two_servers._turns(side, case, options)) == turns


def test_notes_keep_the_order_of_records() -> None:
    notes = _Notes()
    notes.take_all([bytes(8) + number.to_bytes(8, "little") for number in (1, 2)])
    assert [number for number, _ in notes.seen] == [1, 2]


def test_without_kafkas_client_nothing_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--python", "/bin/false"]) == 1
    assert capsys.readouterr().err.startswith("B15 needs the module confluent_kafka")


@pytest.mark.usefixtures("kafka_client")
def test_a_folder_without_kafka_is_refused_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--kafka", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path} and its folders hold no kafka*.jar; give --kafka another folder"
    ]
