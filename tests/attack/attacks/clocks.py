"""A leader whose clock is set while it serves: no record may be deleted because of that."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final

from sharegroups import Admin, NewTopic, Producer, TopicPartition
from tests.attack.definition import Attack, Target

_DAY_MS: Final = 86_400_000
#: Kafka's `retention.ms` is a week; the attacked leaders check five times a second.
_AHEAD_MS: Final = 8 * _DAY_MS
_EARLIEST: Final = -2


def _ahead(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    """Set the clock ahead by a week and a day while records arrive, then back; earlier records must still be in the
    log.

    Uses a separate topic: the attacked one has `retention.bytes`, which may delete records of an earlier attack
    meanwhile.
    """
    bootstrap = target.dial.settings(target.coordinator())
    topic = f"clock-{rng.randbytes(5).hex()}"
    places = [TopicPartition(topic, number) for number in range(4)]
    sent = 0
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        errors = admin.create_topics([NewTopic(topic, len(places))])
        assert not any(errors.values()), f"{topic} was not created: {errors}"
        for place in places:
            producer.produce(place.topic, b"kept", partition=place.partition)
        producer.flush()
        before = admin.list_offsets(dict.fromkeys(places, _EARLIEST))
        deadline = time.monotonic() + seconds
        try:
            for clock in target.clocks.values():
                clock.set(wall_ms=_AHEAD_MS)
            while time.monotonic() < deadline:
                producer.produce(topic, b"more", partition=rng.randrange(len(places)))
                sent += 1
                time.sleep(0.01)
            producer.flush()
        finally:
            for clock in target.clocks.values():
                clock.set(wall_ms=0)
        after = admin.list_offsets(dict.fromkeys(places, _EARLIEST))
        admin.delete_topics([topic])
    assert after == before, f"a clock that was ahead deleted records: logs began at {before}, now at {after}"
    return f"{len(target.clocks)} leaders 8 days ahead; {sent} records came, none went"


CLOCK_ATTACKS: Final = (
    Attack("clock-ahead", "A leader's wall clock 8 days ahead, past retention.ms, while records come", _ahead),
)
