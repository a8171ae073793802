"""The loop of `verify-consumer` with a consumer whose polls the test plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from kip932.errors import InvalidRecordStateError, KafkaError
from sharegroups.cli.console import ConsoleConsumer
from sharegroups.cli.verification import Verification
from sharegroups.messages import AcknowledgeType, TopicIdPartition

PARTITION = TopicIdPartition("t", 0, b"t" * 16)
Kind = AcknowledgeType


class Record:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> None: ...


class StubConsumer:
    """Returns the planned polls, then nothing; every commit succeeds unless an error is planned for it."""

    def __init__(self, polls: Iterable[Iterable[int]], errors: Iterable[KafkaError | None] = ()) -> None:
        self._polls = iter(polls)
        self._errors = iter(errors)
        self._callback: Callable[[Any, KafkaError | None], None]
        self.wanted: list[int] = []
        self.given: dict[int, Kind] = {}
        self._unsent: set[int] = set()
        self.polled = 0

    def set_acknowledgement_commit_callback(self, callback: Callable[[Any, KafkaError | None], None]) -> None:
        self._callback = callback

    def want(self, count: int) -> None:
        self.wanted.append(count)

    def poll(self, timeout: float) -> list[Record]:
        self.polled += 1
        assert self.polled < 50, "it goes on for ever"
        return [Record(offset) for offset in next(self._polls, ())]

    def acknowledge(self, message: Record, kind: Kind) -> None:
        self.given[message.offset()] = kind
        self._unsent.add(message.offset())

    def commit_sync(self) -> None:
        if self._unsent:
            sent, self._unsent = self._unsent, set()
            self._callback({PARTITION: sent}, next(self._errors, None))

    commit_async = commit_sync


def reported(capsys: pytest.CaptureFixture[str], name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [event for event in found if event["name"] == name]


def play(consumer: StubConsumer, limit: int | None, *pattern: Kind, mode: str = "sync") -> Verification:
    made = Verification(limit, mode, pattern or [Kind.ACCEPT], verbose=False, prints_types=len(pattern) > 1)
    made.run(cast(ConsoleConsumer, consumer))
    return made


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_what_comes_beyond_the_limit_is_given_back_and_not_reported(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer = StubConsumer([range(5)])
    assert play(consumer, 3, mode=mode).acknowledged == 3
    assert list(consumer.given.values()) == [Kind.ACCEPT] * 3 + [Kind.RELEASE] * 2
    (event,) = reported(capsys, "offsets_acknowledged")
    assert event["partitions"] == [{"topic": "t", "partition": 0, "count": 3, "offsets": [0, 1, 2]}]


def test_for_what_was_refused_another_record_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    consumer = StubConsumer([[0, 1], [2, 3]], [InvalidRecordStateError("late")])
    assert play(consumer, 2).acknowledged == 2
    assert consumer.wanted == [2, 2]
    first, second = reported(capsys, "offsets_acknowledged")
    assert (first["success"], first["error"]) == (False, "INVALID_RECORD_STATE: late")
    assert (second["success"], "error" in second) == (True, False)


def test_a_renewed_record_counts_once_however_often_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    consumer = StubConsumer([[0, 1], [1], [1]])
    assert play(consumer, 2, Kind.ACCEPT, Kind.RENEW, Kind.RENEW, Kind.ACCEPT).acknowledged == 2
    kinds = [event["ackTypeCounts"] for event in reported(capsys, "offsets_acknowledged")]
    assert kinds == [{"accept": 1, "renew": 1}, {"renew": 1}, {"accept": 1}]


def test_an_answer_that_comes_late_is_waited_for() -> None:
    class Late(StubConsumer):
        """Confirms acknowledgements only at every third commit."""

        commits = 0

        def commit_async(self) -> None:
            self.commits += 1
            if self.commits % 3 == 0:
                super().commit_sync()

        def commit_sync(self) -> None:
            self.commit_async()

    consumer = Late([[0, 1], [1]])
    assert play(consumer, 2, Kind.ACCEPT, Kind.RENEW, Kind.ACCEPT, mode="async").acknowledged == 2
    assert (consumer.polled, set(consumer.given)) == (2, {0, 1}), "nothing else was asked for"


def test_a_renewed_record_that_does_not_come_is_made_up_by_another() -> None:
    consumer = StubConsumer([[0, 1], [], [2]])
    assert play(consumer, 2, Kind.ACCEPT, Kind.RENEW, Kind.ACCEPT).acknowledged == 2
    assert consumer.given[2] is Kind.ACCEPT
