"""Rows read back from Parquet, compared with a replay of all rows, and the files opened for them. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip932.ids import topic_id_text
from kip932.state_batches import StateBatch
from share_coordinator.core.records import ShareRecord, ShareTombstone
from share_metrics.archive import kept_rows
from share_metrics.archive.kept_rows import begin, read_positions, state_rows
from share_metrics.reader import EntryId, Gap, Kind, Position
from share_metrics.reader.decoding import decode, gap_row, to_batch
from share_metrics.reader.offsets import entry_id
from share_metrics.replay.time_travel import State, history
from tests.support.kept_files import keep
from tests.support.pipeline_entries import KEY, STREAM, TOPIC, UNHURRIED, snapshot, state_entry, update

OTHER = KEY._replace(partition=1)
COLUMNS = (KEY.group_id, topic_id_text(TOPIC), KEY.partition)
BASE_S = 36_000
HOUR_S = 3_600

Row = dict[str, Any]
Moment = datetime | EntryId | None


def row(seq: int, second: int, record: ShareRecord, stream: str = STREAM) -> Row:
    """The row of an entry that was appended `second` seconds after ten o'clock."""
    written = decode(Kind.SHARE_STATE, state_entry(EntryId(1, seq), record, (BASE_S + second) * 1_000, stream))
    return whole(written)


def whole(written: Row) -> Row:
    """The row with every column."""
    rows: list[Row] = to_batch(Kind.SHARE_STATE, [written]).to_pylist()
    return rows[0]


def at(second: float) -> datetime:
    return datetime.fromtimestamp(BASE_S + second, UTC)


def last(rows: Sequence[Row], moment: Moment) -> State | None:
    """The state at a moment as PM-39 defines it, from rows in order of their ids."""
    found = None
    for state in history(rows, KEY, COLUMNS[1]):
        if isinstance(moment, datetime) and state.ts is not None and state.ts > moment:
            break
        if isinstance(moment, EntryId) and entry_id(state.entry_id) > moment:
            break
        found = state
    return found


_RECORDS: st.SearchStrategy[ShareRecord] = st.one_of(
    st.builds(snapshot, st.integers(90, 99)),
    *[st.builds(update, st.integers(90, 110), batches=st.just([StateBatch(120, 121, 0, 1)]))] * 2,
    st.builds(update, st.integers(0, 9), key=st.just(OTHER)),
    st.just(ShareTombstone(KEY)),
)
#: Records, by the seconds since the previous one; a negative number is how far its owner's clock is behind.
_LOGS = st.lists(st.tuples(_RECORDS, st.integers(0, 1_800) | st.integers(-3 * HOUR_S, 0)), min_size=1, max_size=8)


@pytest.mark.rule("PM-35", "PM-39")
@settings(UNHURRIED, max_examples=60)
@given(_LOGS, st.data())
def test_files_answer_as_a_replay_of_all_rows_does(written: list[tuple[ShareRecord, int]], draw: st.DataObject) -> None:
    """The rows are cut into batches and the batches are merged at random."""
    rows, second = [], 4 * HOUR_S
    for seq, (record, ahead) in enumerate(written, start=1):
        second += max(ahead, 0)
        rows.append(row(seq, second + min(ahead, 0), record))
    cuts = sorted(draw.draw(st.sets(st.integers(0, len(rows)))) | {0, len(rows)})
    with TemporaryDirectory() as name:
        for number, (begins, ends) in enumerate(pairwise(cuts)):
            keep(
                Path(name),
                Kind.SHARE_STATE,
                rows[begins:ends],
                2 * number,
                draw.draw(st.sampled_from([2 * number + 1, None])),
            )
        moments: list[Moment] = [None, *(EntryId(1, seq) for seq in range(1, len(rows) + 1))]
        moments += [at(hours * HOUR_S + 1_000) for hours in range(10)] + [one["ts"] for one in rows]
        for moment in draw.draw(st.lists(st.sampled_from(moments), min_size=3, max_size=3)):
            assert last(state_rows(Path(name), COLUMNS, moment), moment) == last(rows, moment), moment


class Opened:
    """Records which files are opened, by batch and hour."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = data
        self.large: set[str] = set()
        self.light: set[str] = set()
        read = kept_rows.read_table

        def noted(files: Sequence[Any], kind: Kind, columns: Any, wanted: Any) -> Any:
            names = {"/".join(Path(file).parts[-4:-1:2]) for file in files}
            (self.large if "state_batches" in columns else self.light).update(names)
            return read(files, kind, columns, wanted)

        monkeypatch.setattr(kept_rows, "read_table", noted)

    def by(self, moment: Moment) -> tuple[set[str], set[str]]:
        """The files that a read-back opens: those read for keys and times, and those read for state batches."""
        self.large, self.light = set(), set()
        assert state_rows(self.data, COLUMNS, moment)
        return self.light, self.large


@pytest.mark.rule("PM-39")
def test_only_files_from_the_last_snapshot_up_to_the_time_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six hours, one batch each; there is a snapshot in the first, second and fifth."""
    written: list[ShareRecord] = [snapshot(0), snapshot(1), update(2), update(3, key=OTHER), snapshot(4), update(5)]
    for number, record in enumerate(written):
        keep(tmp_path, Kind.SHARE_STATE, [row(number + 1, number * HOUR_S, record)], number)
    opened = Opened(tmp_path, monkeypatch)

    def of(*numbers: int) -> set[str]:
        return {f"batch={number}-{number}.0/hour={10 + number}" for number in numbers}

    assert opened.by(None) == (of(4, 5), of(4, 5))
    assert opened.by(at(3.5 * HOUR_S)) == (of(1, 2, 3), of(1, 2)), "that of another share-partition is not read whole"
    assert opened.by(at(HOUR_S)) == (of(1), of(1))


@pytest.mark.rule("PM-7", "PM-39")
def test_an_owner_whose_clock_was_ahead_ends_the_time_that_its_successor_begins(tmp_path: Path) -> None:
    """By its writer's clock the second record was appended two hours later, so no record after it counts as earlier."""
    written: list[tuple[int, ShareRecord]] = [(0, snapshot(1)), (2 * HOUR_S, update(2)), (60, snapshot(3))]
    for number, (second, record) in enumerate(written):
        keep(tmp_path, Kind.SHARE_STATE, [row(number + 1, second, record)], number)
    found = [last(state_rows(tmp_path, COLUMNS, at(second)), at(second)) for second in (120, 2 * HOUR_S)]
    assert [one and one.start_offset for one in found] == [1, 3]


@pytest.mark.rule("PM-11", "PM-39")
def test_behind_a_gap_a_state_is_not_complete_until_a_snapshot(tmp_path: Path) -> None:
    lost = Gap(STREAM, EntryId(1, 2), EntryId(1, 7), 4, "trimmed")
    of_another = Gap("{sgs:9}:log", EntryId(1, 1), EntryId(1, 9), 7, "trimmed")
    keep(tmp_path, Kind.SHARE_STATE, [row(1, 0, snapshot(1)), row(2, 10, update(2)), gap_row(of_another)], 0)
    behind = [gap_row(lost), row(7, 100, update(3)), row(8, 110, snapshot(4))]
    keep(tmp_path, Kind.SHARE_STATE, behind, 1)

    def written(moment: Moment) -> tuple[str, bool]:
        state = last(state_rows(tmp_path, COLUMNS, moment), None)
        assert state is not None
        return state.entry_id, state.complete

    assert [written(EntryId(1, seq)) for seq in (1, 2)] == [("1-1", True), ("1-2", True)]
    assert [written(EntryId(1, seq)) for seq in (3, 6)] == [("1-2", False)] * 2, "it may be one of those that are gone"
    assert [written(EntryId(1, seq)) for seq in (7, 8)] == [("1-7", False), ("1-8", True)]
    assert [written(at(second)) for second in (9, 50, 105, 120)] == [
        ("1-1", True), ("1-2", False), ("1-7", False), ("1-8", True)
    ]  # fmt: skip


@pytest.mark.rule("PM-11", "PM-39")
def test_a_gap_long_after_the_time_says_nothing_of_it(tmp_path: Path) -> None:
    """Another share-partition of the stream has an entry between the time and the gap, so the lost entries are
    newer."""
    first = [row(1, 0, snapshot(1)), row(2, 60, update(5, key=OTHER))]
    keep(tmp_path, Kind.SHARE_STATE, [*first, gap_row(Gap(STREAM, EntryId(1, 2), EntryId(1, 5), 2, "trimmed"))], 0)
    states = [last(state_rows(tmp_path, COLUMNS, at(second)), None) for second in (30, 90)]
    assert [state and state.complete for state in states] == [True, False]


@pytest.mark.rule("PM-11", "PM-39")
def test_a_tail_that_the_store_lost_counts_from_where_it_was_read(tmp_path: Path) -> None:
    lost = Gap(STREAM, EntryId(1, 1), EntryId(1, 2), 1, "tail")
    keep(tmp_path, Kind.SHARE_STATE, [row(1, 0, snapshot(1)), row(2, 10, update(2)), gap_row(lost)], 0)
    found = [last(state_rows(tmp_path, COLUMNS, moment), None) for moment in (EntryId(1, 2), None)]
    assert [(one.start_offset, one.complete) for one in found if one] == [(2, True), (2, False)]


def test_how_far_back_and_how_far_on_the_files_go(tmp_path: Path) -> None:
    assert (begin(tmp_path), read_positions(tmp_path, Kind.SHARE_STATE)) == (None, {})
    keep(tmp_path, Kind.SHARE_STATE, [gap_row(Gap(STREAM, EntryId(0, 0), EntryId(1, 1), 2, "trimmed"))], 0)
    keep(tmp_path, Kind.SHARE_STATE, [row(2, 9, snapshot(1)), row(3, 5, update(2))], 1, positions=(
        f'v1\n{{"batchWatermarkMs":0}}\n{{"{STREAM}": {{"id": "1-3", "n": 5}}}}'
    ))  # fmt: skip
    assert begin(tmp_path) == at(5)
    assert read_positions(tmp_path, Kind.SHARE_STATE) == {STREAM: Position(EntryId(1, 3), 5)}


def test_where_there_is_nothing_nothing_is_found(tmp_path: Path) -> None:
    assert state_rows(tmp_path, COLUMNS, None) == []
    keep(tmp_path, Kind.SHARE_STATE, [row(1, 0, snapshot(1, key=OTHER))], 0)
    assert state_rows(tmp_path, COLUMNS, None) == state_rows(tmp_path, COLUMNS, at(-timedelta(hours=2).seconds)) == []
