"""A leader whose clock is set while it serves: no record may be deleted for that."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final

from sharegroups import Admin, Producer, TopicPartition
from tests.attack.definition import Attack, Target

_DAY_MS: Final = 86_400_000
#: Kafka's `retention.ms` is a week; the siege's leaders look five times a second.
_AHEAD_MS: Final = 8 * _DAY_MS
_EARLIEST: Final = -2


def _ahead(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    """A week and a day ahead while records come, then back; what lay in the log before lies there still."""
    bootstrap = {"bootstrap.servers": target.coordinator()}
    places = [TopicPartition(target.topic, number) for number in range(4)]
    sent = 0
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        for place in places:
            producer.produce(place.topic, b"kept", partition=place.partition)
        producer.flush()
        before = admin.list_offsets(dict.fromkeys(places, _EARLIEST))
        deadline = time.monotonic() + seconds
        try:
            for clock in target.clocks.values():
                clock.tell(wall_ms=_AHEAD_MS)
            while time.monotonic() < deadline:
                producer.produce(target.topic, b"more", partition=rng.randrange(4))
                sent += 1
                time.sleep(0.01)
            producer.flush()
        finally:
            for clock in target.clocks.values():
                clock.tell(wall_ms=0)
        after = admin.list_offsets(dict.fromkeys(places, _EARLIEST))
    assert after == before, f"a clock that was ahead deleted records: logs began at {before}, now at {after}"
    return f"{len(target.clocks)} leaders 8 days ahead; {sent} records came, none went"


CLOCK_ATTACKS: Final = (
    Attack("clock-ahead", "A leader's wall clock 8 days ahead, past retention.ms, while records come", _ahead),
)
