"""Functions for `foreachBatch` that fail in few words."""

from __future__ import annotations

from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from share_metrics.causes import SHORT_MAX, without_frames

Write = Callable[[DataFrame, int], None]


class BatchError(Exception):
    """Spark could not do what a batch asked of it; says why without Java's stacks."""


def told_briefly(write: Write) -> Write:
    """The same function, but what Java raises in it is told without its stacks.

    Spark looks into that text for the name of py4j's exception and behind it that of an interruption, to tell a query
    that is stopped from one that failed. Its regular expression recurs for each character between the two: with the
    stacks the thread of a query that is stopped amid a batch overflowed.

    What pyspark has made an exception of its own of, as it does with what a reading task raised, has no such name in
    its text and is no interruption to Spark: only a long text of it is shortened.
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
