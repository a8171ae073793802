"""The errors that a coordinator's callers get for failures below it."""

from __future__ import annotations

import pytest

from kip932 import errors
from shard_runtime.hosting.kafka_errors import coordinator_failure
from shard_runtime.record_log.protocol import AppendRefusedError, ShardLostError, StoreUnavailableError, TailLostError

LOADING, AWAY, MOVED, UNKNOWN = 14, 15, 16, -1


@pytest.mark.rule("GC-5", "SC-15")
@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (errors.NetworkError("cut"), LOADING, "cut"),
        (errors.NotEnoughReplicasError("one of two"), AWAY, "one of two"),
        (errors.NotEnoughReplicasAfterAppendError("one of two"), AWAY, "one of two"),
        (errors.RequestTimedOutError("late"), AWAY, "late"),
        (TimeoutError("late"), AWAY, "late"),
        (StoreUnavailableError("no store"), AWAY, "no store"),
        (AppendRefusedError("OOM"), AWAY, "OOM"),
        (errors.NotLeaderOrFollowerError("moved"), MOVED, "moved"),
        (errors.KafkaStorageError("disk"), MOVED, "disk"),
        (ShardLostError("fenced"), MOVED, "fenced"),
        (TailLostError("tail"), MOVED, "tail"),
        (errors.MessageTooLargeError("2 MB"), UNKNOWN, "2 MB"),
        (errors.InvalidRequestError("what is wrong"), 42, "what is wrong"),
        (errors.FencedStateEpochError("stale"), 124, "stale"),
        (errors.NotCoordinatorError("go there"), MOVED, "go there"),
    ],
)
def test_each_failure_has_its_error(failure: Exception, code: int, message: str) -> None:
    answer = coordinator_failure(failure)
    assert (answer.code, answer.message) == (code, message)


@pytest.mark.rule("GC-5", "SC-15")
def test_what_was_not_foreseen_is_reported_without_its_text() -> None:
    answer = coordinator_failure(ZeroDivisionError("secret"))
    assert (answer.code, "secret" in answer.message) == (UNKNOWN, False)
