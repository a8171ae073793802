"""Spark's long error texts, and the single line that a person gets."""

from __future__ import annotations

import pytest

from share_metrics.causes import PASSING, cause, without_frames
from share_metrics.commands import query_failure

# How Spark 4.3 reports a task that fails inside a batch's function, shortened in places.
BATCH_FAILED = """[STREAM_FAILED] Query [id = 1f56] terminated: Reason: Traceback (most recent call last):
  File "py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
py4j.protocol.Py4JJavaError: An error occurred while calling o147.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
\tat java.base/java.io.ObjectInputStream.readObject0(ObjectInputStream.java:1685)
\tat java.base/java.io.ObjectInputStream.readObject0(ObjectInputStream.java:1685)

Driver stacktrace:
Caused by: java.io.OptionalDataException
\t... 34 more
 SQLSTATE: 39000
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback
py4j.protocol.Py4JJavaError: An error occurred while calling o147.parquet.
"""
WORKER_FAILED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "share_metrics/reader/store.py", line 9, in call
OSError: [Errno 24] Too many open files
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (BATCH_FAILED, "OptionalDataException"),
        (WORKER_FAILED, "OSError: [Errno 24] Too many open files"),
        (
            "x\norg.apache.spark.SparkException: Python worker failed to connect back.\n\tat y\n"
            "Caused by: java.net.SocketTimeoutException: Accept timed out",
            "SparkException: Python worker failed to connect back., caused by SocketTimeoutException: Accept timed out",
        ),
        (
            "\n".join(f"Caused by: a.b.{name}Exception: no" for name in "ABCDA"),
            "BException: no, caused by CException: no, caused by DException: no",
        ),
        (
            "SparkException: Job aborted due to stage failure: x: Traceback (most recent call last):\n"
            '  File "share_metrics/reader/reading.py", line 9, in rows\n    pa.RecordBatch.from_arrays(columns)\n'
            "pyarrow.lib.ArrowInvalid: Column 3 named seq expected length 2 but got length 1",
            "ArrowInvalid: Column 3 named seq expected length 2 but got length 1",
        ),
        ("[A.B] no such source.\nmore", "[A.B] no such source."),
        (
            ": org.apache.spark.SparkException: Job aborted due to stage failure: 7",
            "SparkException: Job aborted due to stage failure: 7",
        ),
        ("", "nothing"),
    ],
)
def test_the_cause_is_what_was_raised_innermost(words: str, sentence: str) -> None:
    assert cause(words) == sentence


def test_without_frames_everything_else_stays_in_order() -> None:
    short = without_frames(BATCH_FAILED)
    assert "ObjectInputStream.java" not in short
    assert "more" not in short
    assert short.splitlines()[0] == BATCH_FAILED.splitlines()[0]
    assert cause(short) == cause(BATCH_FAILED)


def test_of_what_is_too_long_both_ends_stay() -> None:
    short = without_frames("\n".join(["begin", *(f"line {number}" for number in range(5000)), "end"]))
    assert len(short) < 2100
    assert short.startswith("begin")
    assert short.endswith("end")


NODES = ",".join(f"valkey-{number}.valkey-headless.kafka.svc.cluster.local:6379" for number in range(6))
AWAY = f"no node of the cluster answers: {'; '.join([f'the store at {NODES} does not answer: Error 111'] * 6)}"


def traceback_of(raised: str) -> str:
    frames = [f'  File "site-packages/pyspark/worker.py", line {number}, in main\n    run()' for number in range(60)]
    return "\n".join(["Traceback (most recent call last):", *frames, raised])


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (f"share_metrics.reader.store.StoreUnreachableError: {AWAY}", 4, AWAY),
        ("share_metrics.reader.reading.DataLossError: s lost 7 entries", 3, "s lost 7 entries"),
    ],
)
def test_of_a_long_text_what_gives_the_exit_status_stays_whole(raised: str, status: int, message: str) -> None:
    """The text contains the traceback of a task and, around it, that of the batch's function."""
    task = traceback_of(raised)
    short = without_frames(f"begin\n{task}\n\nDuring handling another exception occurred:\n\n{task}\n{task}\nend")
    assert short.count(raised) == 1
    assert len(short) < 2_000 + len(raised) + 100
    assert (short.splitlines()[0], short.splitlines()[-1]) == ("begin", "end")
    failure = query_failure(RuntimeError(short))
    assert (failure.exit_code, failure.message) == (status, message)


@pytest.mark.rule("PM-36")
@pytest.mark.parametrize("words", ["Caused by: java.lang.InterruptedException", *PASSING])
def test_of_a_long_text_what_spark_and_the_job_search_for_stays(words: str) -> None:
    around = [f"line {number}" for number in range(500)]
    assert words in without_frames("\n".join([*around, words, *around])).splitlines()


def test_of_a_long_text_what_was_raised_last_stays() -> None:
    around = [f"line {number}" for number in range(500)]
    sentence = without_frames("\n".join([*around, "Caused by: java.io.IOException: disk full", *around]))
    assert cause(sentence) == "IOException: disk full"


def test_however_much_there_is_to_report_a_text_is_bounded() -> None:
    """Spark's regular expression recurses for each character: 8,000 of them overflowed a stack of 4 MB."""
    for length in (30, 300, 3_000):
        lines = [f"StoreUnreachableError: {number} {'x' * length}" for number in range(500)]
        lines += [f"IOException: {number} {'x' * length}" for number in range(500)]
        assert len(without_frames("\n".join(lines))) < 5_000
    assert len(without_frames("x" * 100_000)) < 2_000
