"""The demo's jobs and its ledger: exact totals in spite of redelivery, and a discrepancy is seen."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from share_node.demo.jobs import (
    PLANTED,
    BrokenRecordError,
    FileInput,
    InputError,
    StandardLibrary,
    direct_count,
    job_for,
)
from share_node.demo.ledger import Ledger, Place, Report

HERE = Place("t", 0, 5)


@pytest.mark.rule("CM-71")
def test_a_redelivered_record_overwrites_its_result() -> None:
    ledger = Ledger(produced={HERE})
    ledger.add(Report(HERE, 1, 1, "released", Counter()))
    assert ledger.unfinished == 1
    ledger.add(Report(HERE, 1, 2, "accepted", Counter(lines=3)))
    ledger.add(Report(HERE, 2, 3, "accepted", Counter(lines=3)))
    assert (ledger.totals, ledger.accepted, ledger.redelivered) == (Counter(lines=3), 1, 1)
    assert ledger.delivery_counts == {3: 1}
    assert ledger.discrepancies(Counter(lines=3), 1, 0) == []


@pytest.mark.rule("CM-71")
def test_every_kind_of_discrepancy_is_named() -> None:
    ledger = Ledger(produced={HERE})
    ledger.add(Report(Place("t", 0, 6), 1, 1, "accepted", Counter(lines=3)))
    found = "; ".join(ledger.discrepancies(Counter(lines=4), 2, 1))
    assert "accepted: 1 through the queue, 2 directly" in found
    assert "rejected: 0" in found
    assert "lines: 3 through the queue, 4 directly" in found
    assert "1 records were produced and never finished" in found
    assert "never produced" in found


@pytest.mark.parametrize(("key", "value"), PLANTED, ids=[key for key, _ in PLANTED])
def test_planted_records_cannot_be_parsed(key: str, value: bytes) -> None:
    assert key.startswith("planted/")
    with pytest.raises(BrokenRecordError):
        StandardLibrary().process(value)


def test_a_source_file_is_counted() -> None:
    assert StandardLibrary().process(b"def f():\n    async def g(): ...\n") == Counter(functions=2, lines=2)


def test_a_csv_row_of_another_width_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b'a,b\n1,"x,y"\nonly one\n'))
    totals, accepted, rejected = direct_count(FileInput(path))
    assert (accepted, rejected, totals["fields"]) == (2, 1, 4)


def test_jsonl_and_lines_are_told_apart_by_ending(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"k": 1}\nnot json\n')
    (tmp_path / "a.txt").write_text("one\nnot json\n")
    assert direct_count(FileInput(tmp_path / "a.jsonl"))[1:] == (1, 1)
    assert direct_count(FileInput(tmp_path / "a.txt"))[1:] == (2, 0)


def test_unreadable_input_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        job_for(str(tmp_path / "missing"))
    (tmp_path / "bad.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match=r"cannot read .*bad\.gz"):
        direct_count(job_for(str(tmp_path / "bad.gz")))
