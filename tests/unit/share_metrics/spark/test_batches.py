"""An error raised by a batch's function is passed to Spark as a short message."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from share_metrics.commands import query_failure
from share_metrics.spark.batches import BatchError, with_short_errors

AWAY = "share_metrics.reader.store.StoreUnreachableError: the store at h:1 does not answer"
FRAMES = "\n".join(f"\tat org.apache.spark.Dispatcher.run{number}(Dispatcher.scala:1)" for number in range(500))


def raised_by(error: Exception) -> str:
    """The error that Spark receives."""

    def write(batch: object, number: int) -> None:
        raise error

    with pytest.raises((BatchError, PySparkException)) as reported:
        with_short_errors(write)(None, 0)  # type: ignore[arg-type] # the failure needs no session
    return f"{type(reported.value).__module__}.{type(reported.value).__name__}: {reported.value}"


@pytest.mark.rule("PM-39")
def test_what_a_reading_task_raised_is_reported_without_stacks_and_keeps_its_exit_status() -> None:
    reported = raised_by(PySparkException(f"\n  An exception was thrown\n{AWAY}\n\nJVM stacktrace:\n{FRAMES}"))
    assert len(reported) < 1_000
    assert "pyspark.errors.exceptions.base.PySparkException" in reported
    assert "py4j.protocol.Py4JJavaError" not in reported  # this name would make Spark search for an interruption
    failure = query_failure(RuntimeError(reported))
    assert (failure.exit_code, failure.message) == (4, "the store at h:1 does not answer")


def test_what_is_short_is_handed_on_as_it_is() -> None:
    error = PySparkException("no such column")
    assert raised_by(error) == f"pyspark.errors.exceptions.base.PySparkException: {error}"
