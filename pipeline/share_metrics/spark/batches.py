"""Shortens the errors of functions for `foreachBatch`."""

from __future__ import annotations

from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from share_metrics.causes import SHORT_MAX, without_frames

Write = Callable[[DataFrame, int], None]


class BatchError(Exception):
    """Spark failed in a batch; the text says why, without Java's stacks."""


def with_short_errors(write: Write) -> Write:
    """Wrap `write` so that its Java errors have no stacks in their texts.

    To distinguish a stopped query from a failed one, Spark searches that text for the name of py4j's exception followed
    by that of an interruption. Its regular expression recurses for each character between the two. So with stacks in
    the text, the thread's stack overflowed when a query was stopped in the middle of a batch.

    Exceptions that pyspark has converted, such as those of a reading task, have no such name in their text, and Spark
    never takes them for an interruption: they are shortened only if they are long.
    """

    def brief(batch: DataFrame, number: int) -> None:
        try:
            write(batch, number)
        except Py4JJavaError as error:
            raise BatchError(f"py4j.protocol.Py4JJavaError: {without_frames(str(error))}") from None
        except PySparkException as error:
            words = str(error)
            if len(words) <= SHORT_MAX:
                raise
            kind = type(error)
            raise BatchError(f"\n{kind.__module__}.{kind.__qualname__}: {without_frames(words)}") from None

    return brief
