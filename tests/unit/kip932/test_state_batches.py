"""The worked examples of the combiner, and the scenarios on merging."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from kip932.state_batches import StateBatch, clip, combine, merge_count, merge_into

_STATES = {"A": 0, "K": 2, "R": 4}


def batches(text: str) -> list[StateBatch]:
    """Parse `100-109/K/1 115/A/2` into batches."""
    found = []
    for word in text.split():
        match = re.fullmatch(r"(\d+)(?:-(\d+))?/([AKR])/(\d+)", word)
        assert match, word
        first, last, state, count = match.groups()
        found.append(StateBatch(int(first), int(last or first), _STATES[state], int(count)))
    return found


EXAMPLES = [
    (1, "", "", -1, ""),
    (2, "", "100-109/A/1", -1, "100-109/A/1"),
    (3, "", "100-109/K/1", 105, "105-109/K/1"),
    (4, "90-99/A/1", "", 100, ""),
    (5, "100-109/A/1", "100-109/A/1", -1, "100-109/A/1"),
    (6, "100-109/K/1", "110-119/K/1", -1, "100-119/K/1"),
    (7, "100-109/K/1", "110-119/K/2", -1, "100-109/K/1 110-119/K/2"),
    (8, "100-104/K/1", "110-114/K/1", -1, "100-104/K/1 110-114/K/1"),
    (9, "100-110/A/1", "105-120/A/1", -1, "100-120/A/1"),
    (10, "100-119/A/1", "105-109/A/2", -1, "100-104/A/1 105-109/A/2 110-119/A/1"),
    (11, "100-119/A/1", "105-109/K/1", -1, "100-104/A/1 105-109/K/1 110-119/A/1"),
    (12, "100-119/A/2", "105-109/K/1", -1, "100-119/A/2"),
    (13, "100-119/K/1", "105-109/A/1", -1, "100-119/K/1"),
    (14, "100-109/A/1", "105-114/A/2", -1, "100-104/A/1 105-114/A/2"),
    (15, "100-109/A/2", "105-114/A/1", -1, "100-109/A/2 110-114/A/1"),
    (16, "100-104/A/1", "100-109/K/1", -1, "100-109/K/1"),
    (17, "100-104/A/2", "100-109/K/1", -1, "100-104/A/2 105-109/K/1"),
    (18, "100-109/A/1", "100-104/K/1", -1, "100-104/K/1 105-109/A/1"),
    (19, "100-109/A/2", "100-104/K/1", -1, "100-109/A/2"),
    (20, "100-109/A/1", "105-109/R/1", -1, "100-104/A/1 105-109/R/1"),
    (21, "100-104/A/1 105-109/K/1", "100-109/R/2", -1, "100-109/R/2"),
    (22, "100-102/K/1 107-109/K/1", "103-106/K/1", -1, "100-109/K/1"),
    (23, "100-109/A/1 110-119/K/1", "105-114/A/2", 108, "108-114/A/2 115-119/K/1"),
    (24, "100/K/3", "100/A/1", -1, "100/K/3"),
    (25, "100/A/2", "100/A/0", -1, "100/A/2"),
    (26, "", "100-109/A/1 105-114/K/1", -1, "100-104/A/1 105-114/K/1"),
    # SC-108 [R]: we merge as far as possible, whereas Kafka leaves 9-14 and 15-21 separate.
    (27, "14/K/2 15-21/A/3", "15/R/1 9-14/A/3", -1, "9-21/A/3"),
    (28, "100/K/1", "100/R/1", -1, "100/R/1"),
]


@pytest.mark.rule("SC-100", "SC-101", "SC-102", "SC-104", "SC-105", "SC-108", "SC-109", "SC-110", "SC-103", "SC-106")
@pytest.mark.parametrize(("number", "current", "new", "start", "expected"), EXAMPLES, ids=[str(e[0]) for e in EXAMPLES])
def test_worked_example(number: int, current: str, new: str, start: int, expected: str) -> None:
    assert combine(batches(current), batches(new), start) == batches(expected)
    assert merge_into(batches(current), batches(new), start) == batches(expected)


@pytest.mark.scenario("S-098")
@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("100-110/A/1", "100-110/A/1"),
        ("100-105/A/1", "100-110/A/1"),
        ("100-115/A/1", "100-115/A/1"),
        ("105-108/A/1", "100-110/A/1"),
        ("105-110/A/1", "100-110/A/1"),
        ("105-115/A/1", "100-115/A/1"),
        ("111-115/A/1", "100-115/A/1"),
    ],
)
def test_batches_of_the_same_state_and_count_coalesce(new: str, expected: str) -> None:
    assert combine(batches("100-110/A/1"), batches(new)) == batches(expected)


@pytest.mark.scenario("S-099")
@pytest.mark.parametrize(
    ("current", "new", "expected"),
    [
        ((100, 110, 0, 1), (100, 105, 0, 2), [(100, 105, 0, 2), (106, 110, 0, 1)]),
        ((100, 110, 0, 1), (105, 110, 0, 2), [(100, 104, 0, 1), (105, 110, 0, 2)]),
        ((100, 115, 0, 1), (105, 110, 1, 1), [(100, 104, 0, 1), (105, 110, 1, 1), (111, 115, 0, 1)]),
        ((100, 110, 0, 1), (105, 115, 0, 2), [(100, 104, 0, 1), (105, 115, 0, 2)]),
    ],
)
def test_a_higher_count_or_state_wins_on_the_overlap(
    current: tuple[int, int, int, int], new: tuple[int, int, int, int], expected: list[tuple[int, int, int, int]]
) -> None:
    assert combine([StateBatch(*current)], [StateBatch(*new)]) == [StateBatch(*batch) for batch in expected]


@pytest.mark.rule("SC-42")
@pytest.mark.parametrize(
    ("start", "count", "expected"), [(-1, 9, 4), (19, 9, 4), (20, 3, 4), (20, 9, 9), (21, 3, 3), (21, 0, 0)]
)
def test_a_count_of_a_lower_start_is_ignored_of_the_same_the_larger_holds_and_of_a_higher_the_one_sent(
    start: int, count: int, expected: int
) -> None:
    assert merge_count(20, 4, start, count) == expected


def test_a_part_of_a_combined_list_is_cut_at_both_ends() -> None:
    stored = batches("100-104/A/1 105-109/K/1 120-124/R/2")
    assert clip(stored, 103, 121) == batches("103-104/A/1 105-109/K/1 120-121/R/2")
    assert clip(stored, 106, 107) == batches("106-107/K/1")
    assert clip(stored, 110, 119) == []


def test_a_batch_that_ends_before_it_begins_says_nothing() -> None:
    inverted = StateBatch(10, 5, 4, 9)
    assert combine((), [inverted]) == combine([inverted], [inverted]) == []
    assert merge_into(batches("0-20/A/1"), [inverted]) == batches("0-20/A/1")


@pytest.mark.rule("CM-17")
def test_coordinator_persister_and_pipeline_share_one_combiner_and_decoder_which_need_neither_spark_nor_grpc() -> None:
    program = """
import sys
from kip932 import state_batches
from kip932.records import share_state
assert not {"grpc", "pyspark"} & set(sys.modules), sorted(sys.modules)
from share_coordinator import codec
from share_coordinator.core import share_state as coordinator
from share_metrics.replay import replay
from share_metrics.reader.decoding import share_state as pipeline
from share_persister import messages as persister
assert coordinator.combine is replay.combine is state_batches.combine
assert {each.batches_from_messages for each in (codec, pipeline, persister)} == {share_state.batches_from_messages}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
