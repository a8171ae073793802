"""How long, and after which pauses, a query that ended is restarted."""

from __future__ import annotations

import pytest

from share_metrics.causes import PASSING
from share_metrics.ingest.writing import RestartPolicy

LATE = f"x\nCaused by: SparkException: {PASSING[0]}: for an unknown reason"
#: A message of Spark's OutputCommitCoordinator.
UNSURE = (
    "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Authorized committer "
    "(attemptNumber=0, stage=4, partition=1) failed; but task commit success, data duplication may happen. "
    "reason=ExecutorLostFailure(1)"
)
AWAY = "x\nshare_metrics.reader.store.StoreUnreachableError: the store at h:1 does not answer: Error 111\ny"


def pauses(patience: RestartPolicy, words: str, times: list[float]) -> list[float | None]:
    return [patience.pause_s(words, at) for at in times]


@pytest.mark.rule("PM-36")
@pytest.mark.parametrize("words", [LATE, UNSURE])
def test_what_passes_at_once_is_begun_again_at_once_a_few_times_in_a_row(words: str) -> None:
    patience = RestartPolicy(300.0)
    assert pauses(patience, words, [0.0] * 5) == [0.0, 0.0, 0.0, 0.0, None]
    patience.moved()
    assert patience.pause_s(words, 0.0) == 0.0


@pytest.mark.rule("PM-36")
def test_a_store_that_is_away_is_waited_for_behind_pauses_that_double_until_the_end() -> None:
    patience = RestartPolicy(300.0)
    now_s, found = 1_000.0, []
    while (pause_s := patience.pause_s(AWAY, now_s)) is not None:
        found.append(pause_s)
        now_s += pause_s
    assert found == [1, 2, 4, 8, 16, *[30] * 8, 29]
    assert now_s == 1_300


@pytest.mark.rule("PM-36")
def test_a_store_that_came_back_may_go_again() -> None:
    patience = RestartPolicy(10.0)
    assert pauses(patience, AWAY, [0.0, 1.0, 3.0]) == [1, 2, 4]
    patience.moved()
    assert pauses(patience, AWAY, [100.0, 109.0, 110.0]) == [1, 1, None]


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize(
    "words",
    [
        "share_metrics.reader.store.StoreReplyError: k: WRONGTYPE",
        "share_metrics.reader.reading.DataLossError: s lost 7 entries",
        f"share_metrics.archive.folders.FolderError: they are gone\n{AWAY}",
        "java.io.IOException: disk full",
    ],
)
def test_what_does_not_pass_is_not_waited_for(words: str) -> None:
    assert RestartPolicy(300.0).pause_s(words, 0.0) is None


@pytest.mark.rule("PM-39")
def test_a_job_that_is_to_end_waits_for_no_store() -> None:
    assert RestartPolicy().pause_s(AWAY, 0.0) is None
    assert RestartPolicy().pause_s(LATE, 0.0) == 0.0
