"""The demo's jobs and its ledger: exact totals in spite of redelivery, and a discrepancy is seen."""

import gzip
from collections import Counter
from pathlib import Path
from typing import Self

import pytest

from share_node.demo import run
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
from share_node.demo.run import Demo
from sharegroups import KafkaError, NetworkError, UnknownTopicOrPartitionError

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


@pytest.mark.rule("CM-71")
@pytest.mark.parametrize(
    ("records", "workers", "kills"), [(24, 2, False), (25, 2, True), (25, 1, False), (0, 4, False)]
)
def test_a_worker_is_killed_only_when_one_must_get_so_far(
    tmp_path: Path, records: int, workers: int, kills: bool
) -> None:
    (tmp_path / "a.txt").write_text("line\n" * records)
    assert Demo("h:1", FileInput(tmp_path / "a.txt"), workers, None).kills is kills


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


class _FakeAdmin:
    """Answers a deletion with the error it was made with."""

    def __init__(self, error: KafkaError | None) -> None:
        self._error = error
        self.deleted: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def delete_topics(self, names: list[str]) -> dict[str, KafkaError | None]:
        self.deleted += names
        return dict.fromkeys(names, self._error)


@pytest.mark.rule("CM-71")
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, "topic {0} is deleted; group {0} stays"),
        (
            UnknownTopicOrPartitionError(),
            "topic {0} is deleted; group {0} stays",
        ),  # the answer to a try was lost
        (NetworkError("gone"), "topic {0} and group {0} stay: gone"),
    ],
)
def test_a_demo_in_a_cluster_of_the_users_deletes_its_topic_and_says_what_stays(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError | None, told: str
) -> None:
    admin = _FakeAdmin(error)
    monkeypatch.setattr(run, "Admin", lambda settings: admin)
    demo = Demo("127.0.0.1:1", StandardLibrary(), 1, None)
    assert demo.clear_away() == told.format(demo.topic)
    assert admin.deleted == [demo.topic]
