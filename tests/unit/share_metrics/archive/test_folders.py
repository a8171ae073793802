"""Which folders of batches are used, and when existing rows were written for other positions. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from share_metrics.archive.commits import POSITIONS, Written, commit, raw, spans
from share_metrics.archive.folders import FolderError, checkpoints, written
from share_metrics.ingest.writing import Watch, write_batch
from share_metrics.reader import Kind
from tests.support.kept_files import batch_name

STATE = Kind.SHARE_STATE


def put(data: Path, first: int, last: int | None = None, positions: str | None = None) -> Path:
    """Commit batches with the positions for which they were written; without positions, create a folder as an earlier
    build did."""
    if positions is None:
        folder = raw(data, STATE) / batch_name(first, last)
        folder.mkdir(parents=True)
        return folder
    name = f"batch={first}.{first if last is None else last}"
    commit(data, STATE, (first, first if last is None else last), Written(name, []), positions)
    return raw(data, STATE) / name


def put_before(data: Path, first: int, last: int, positions: str) -> Path:
    """Create a folder of batches that an earlier build merged."""
    folder = put(data, first, last)
    (folder / POSITIONS).write_text(positions)
    return folder


def note(data: Path, number: int, positions: str) -> None:
    """Note where a batch ends, as Spark does before it runs the batch."""
    offsets = checkpoints(data, STATE) / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(number)).write_text(positions)


@pytest.mark.rule("PM-35", "PM-36")
def test_a_batch_that_was_put_together_with_others_is_not_hidden_behind_them(tmp_path: Path) -> None:
    """The checkpoints are one batch older than the rows, so the batch is planned again, with another end."""
    put(tmp_path, 0, 2, positions="to 1-9")
    note(tmp_path, 2, "to 1-11")
    nothing: Any = None
    with pytest.raises(FolderError, match="restore those checkpoints"):
        write_batch(nothing, tmp_path, STATE, nothing, 2, Watch())


@pytest.mark.rule("PM-36")
@pytest.mark.parametrize("made", [put, put_before], ids=["committed", "of an earlier build"])
def test_a_batch_that_was_put_together_and_comes_again_with_its_positions_is_there_already(
    tmp_path: Path, made: Callable[[Path, int, int, str], Path]
) -> None:
    folder = made(tmp_path, 0, 2, "to 1-9")
    note(tmp_path, 2, "to 1-9")
    found = written(tmp_path, STATE, 2)
    assert found is not None
    assert found.folder == str(folder)
    assert written(tmp_path, STATE, 3) is None


@pytest.mark.rule("PM-36")
@pytest.mark.parametrize("known", ["", None], ids=["of an earlier build", "without a note"])
def test_of_many_batches_whose_positions_are_not_known_none_may_come_again(tmp_path: Path, known: str | None) -> None:
    put(tmp_path, 0, 2, positions=known)
    with pytest.raises(FolderError, match="holds rows of other positions"):
        written(tmp_path, STATE, 2)


@pytest.mark.rule("PM-36")
def test_a_batch_amid_those_that_were_put_together_does_not_come_again(tmp_path: Path) -> None:
    put(tmp_path, 0, 2, positions="to 1-9")
    note(tmp_path, 1, "to 1-9")
    with pytest.raises(FolderError, match="holds rows of other positions"):
        written(tmp_path, STATE, 1)


@pytest.mark.rule("PM-36")
def test_the_folder_of_one_batch_is_taken_for_its_positions(tmp_path: Path) -> None:
    folder = put(tmp_path, 0, positions="to 1-3")
    note(tmp_path, 0, "to 1-3")
    found = written(tmp_path, STATE, 0)
    assert found is not None
    assert found.folder == str(folder)
    note(tmp_path, 0, "to 1-4")
    with pytest.raises(FolderError, match="holds rows of other positions"):
        written(tmp_path, STATE, 0)


@pytest.mark.rule("PM-35")
def test_the_folder_of_an_earlier_build_may_come_again_though_its_positions_are_not_known(tmp_path: Path) -> None:
    folder = put(tmp_path, 0)
    note(tmp_path, 0, "to 1-3")
    found = written(tmp_path, STATE, 0)
    assert found is not None
    assert found.folder == str(folder)
    assert [span.positions for span in spans(tmp_path, STATE)] == [""]
