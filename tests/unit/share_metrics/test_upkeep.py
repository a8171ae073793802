"""A job's tasks beside its queries: their schedule, and that they never end the job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from share_metrics.ingest.job import COMPACT_FROM, Upkeep
from share_metrics.reader import Kind, StoreReplyError, StoreUnreachableError

KINDS = (Kind.SHARE_STATE, Kind.GROUP)
FAILED = "where logs end was not sampled"
MIDNIGHT = ["sample", *((kind, 2) for kind in KINDS)]


class Job:
    """Upkeep with a clock that is set by the test, and the tasks that it ran."""

    def __init__(self, trigger_s: float | None = None, error: Exception | None = None) -> None:
        self.at = datetime(2026, 11, 22, 23, 58, tzinfo=UTC)
        self.error = error
        self.did: list[object] = []
        self.reported: list[str] = []
        self.upkeep = Upkeep(
            KINDS, self._compact, {FAILED: self._sample}, trigger_s, self.reported.append, lambda: self.at
        )

    def checked(self, seconds: float) -> list[object]:
        """The tasks run by a check `seconds` later."""
        self.at += timedelta(seconds=seconds)
        self.did = []
        self.upkeep.run_due()
        return self.did

    def _do(self, what: object) -> None:
        self.did.append(what)
        if self.error is not None:
            raise self.error

    def _compact(self, kind: Kind, at_least: int) -> None:
        self._do((kind, at_least))

    def _sample(self) -> None:
        self._do("sample")


@pytest.mark.rule("PM-18")
def test_a_job_that_goes_on_samples_at_each_trigger_whether_there_are_batches_or_not() -> None:
    """Of PM-18 it shows when samples of `log_ends` are taken, not their columns and nothing of `log_meta`."""
    job = Job(trigger_s=60)
    job.upkeep.begin()
    assert job.did == ["sample"]
    found = [job.checked(seconds) for seconds in (0, 30, 30, 59, 1)]
    assert found == [[], [], ["sample"], [], MIDNIGHT]


@pytest.mark.rule("PM-18", "PM-110")
def test_a_clock_that_is_set_back_by_an_hour_delays_no_sample() -> None:
    """Of PM-18 and PM-110 it shows when samples are taken, not what they have, nor by whose clock."""
    job = Job(trigger_s=60)
    job.upkeep.begin()
    found = [job.checked(seconds) for seconds in (30, -3_600, 59, 1)]
    assert found == [[], ["sample"], [], ["sample"]]


@pytest.mark.rule("PM-18", "PM-35")
def test_a_job_that_ends_samples_twice_and_puts_together_what_has_become_much() -> None:
    job = Job()
    job.upkeep.begin()
    assert job.did == ["sample"]
    assert job.checked(60) == []
    job.upkeep.end()
    assert job.did == ["sample", *((kind, COMPACT_FROM) for kind in KINDS)]


@pytest.mark.rule("PM-18", "PM-35")
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), StoreUnreachableError("it is away")])
def test_upkeep_that_fails_is_reported_and_ends_nothing(error: Exception) -> None:
    job = Job(trigger_s=60, error=error)
    assert job.checked(120) == MIDNIGHT
    assert job.reported == [
        f"{FAILED}, which is retried later: {error}",
        *(f"{kind}: batches were not merged, which is retried later: {error}" for kind in KINDS),
    ]
    assert job.checked(0) == []


@pytest.mark.rule("PM-18", "PM-121")
def test_of_equal_failures_in_a_row_the_first_is_reported() -> None:
    job = Job(trigger_s=60)
    for words in ("no", "no", "never", "", "no"):
        job.error = StoreUnreachableError(words) if words else None
        job.checked(60)
    said = [words for words in job.reported if words.startswith(FAILED)]
    assert said == [f"{FAILED}, which is retried later: {words}" for words in ("no", "never", "no")]


@pytest.mark.rule("PM-121")
@pytest.mark.parametrize(
    ("error", "expected"),
    [(StoreUnreachableError("it hangs"), ["first"]), (StoreReplyError("it refuses"), ["first", "second"])],
)
def test_a_store_that_does_not_answer_is_asked_once_in_a_trigger(error: Exception, expected: list[str]) -> None:
    """To find that it does not takes many seconds, in which the job does nothing else."""
    did: list[str] = []

    def first() -> None:
        did.append("first")
        raise error

    tasks = {"the first failed": first, "the second failed": lambda: did.append("second")}
    Upkeep((), lambda *_: None, tasks, 60, lambda _: None).begin()
    assert did == expected


def test_a_mistake_of_ours_is_not_hidden() -> None:
    job = Job(trigger_s=60, error=TypeError("x"))
    with pytest.raises(TypeError):
        job.upkeep.run_due()
