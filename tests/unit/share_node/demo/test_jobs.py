"""The demo's jobs: their counts, and records that cannot be parsed."""

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


def test_a_csv_row_may_go_over_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'id,text\r\n1,"two\nlines, one field"\r\n2,"\xe2\x80\xa8 stays"\n3,\xff\n4,"never closed\n')
    rows = list(FileInput(path).records())
    assert rows == [
        ("1", b"id,text"),
        ("2", b'1,"two\nlines, one field"'),
        ("3", b'2,"\xe2\x80\xa8 stays"'),
        ("4", b"3,\xff"),
        ("5", b'4,"never closed'),
    ]
    job = FileInput(path)
    assert job.process(rows[1][1])["fields"] == 2
    assert direct_count(job)[1:] == (4, 1)
    with pytest.raises(BrokenRecordError, match="2 rows"):
        job.process(b"1,2\n3,4")


def test_a_csv_row_that_cannot_be_read_is_rejected_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n" + b"x" * 200_000 + b",1\n1,2\n")
    assert [number for number, _ in FileInput(path).records()] == ["1", "2", "3"]
    assert direct_count(FileInput(path))[1:] == (2, 1)


def test_jsonl_and_lines_are_distinguished_by_file_name_ending(tmp_path: Path) -> None:
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
