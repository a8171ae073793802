"""What a worker of the demo makes of a record."""

from __future__ import annotations

from collections import Counter
from itertools import count
from types import SimpleNamespace
from typing import Any

from share_node.demo.jobs import BrokenRecordError, fails_first_attempt
from share_node.demo.worker import outcome_of

FAILING = next(key for key in map(str, count()) if fails_first_attempt(key))
SOUND = next(key for key in map(str, count()) if not fails_first_attempt(key))


class Lines:
    """A job that counts lines; an empty record is broken."""

    name = "lines"

    def records(self) -> Any:
        raise AssertionError("a worker makes no records")

    def process(self, value: bytes) -> Counter[str]:
        if not value:
            raise BrokenRecordError
        return Counter(lines=value.count(b"\n"))


def delivered(key: str, value: bytes = b"a\nb\n", times: int = 1) -> Any:
    return SimpleNamespace(key=key.encode, value=lambda: value, delivery_count=lambda: times)


def test_a_sound_record_is_accepted_with_its_tally() -> None:
    assert outcome_of(Lines(), delivered(SOUND)) == ("accepted", Counter(lines=2))


def test_an_injected_failure_releases_the_first_delivery_only() -> None:
    assert outcome_of(Lines(), delivered(FAILING)) == ("released", Counter())
    assert outcome_of(Lines(), delivered(FAILING, times=2)) == ("accepted", Counter(lines=2))


def test_a_broken_record_is_rejected() -> None:
    assert outcome_of(Lines(), delivered(SOUND, b"")) == ("rejected", Counter())
