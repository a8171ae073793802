"""The end of a log after a claim, and the batches that are rewritten."""

from __future__ import annotations

import pytest

from partition_leader.topic_log.core.recovery import Found, TailMemory, recover

from .batches import stored

FOUND = Found(log_end=10, newest_epoch=5, previous_epoch=5, suspect=True)
LOST = (stored(10, 2), stored(12, 3))


@pytest.mark.rule("CM-47")
@pytest.mark.parametrize(
    ("found", "memory", "expected"),
    [
        (Found(10, 5, 5, False), None, (10, 0, False)),
        (FOUND, None, (1_010, 0, True)),
        (FOUND, TailMemory(5, 10, ()), (10, 0, False)),
        (FOUND, TailMemory(5, 15, LOST), (10, 2, False)),
        (Found(10, 5, 5, False), TailMemory(5, 15, LOST), (10, 2, False)),
        (FOUND, TailMemory(4, 15, LOST), (1_015, 0, True)),
        (Found(10, 4, 6, True), TailMemory(5, 15, LOST), (1_015, 0, True)),
        (FOUND, TailMemory(5, 15, LOST[1:]), (1_015, 0, True)),
        (FOUND, TailMemory(5, 16, LOST), (1_016, 0, True)),
        (Found(20, 8, 8, False), TailMemory(5, 15, LOST), (20, 0, False)),
    ],
)
def test_the_end_of_a_log_after_a_claim(
    found: Found, memory: TailMemory | None, expected: tuple[int, int, bool]
) -> None:
    decision = recover(found, memory, jump_offsets=1_000)
    assert (decision.log_end, len(decision.again), decision.jump) == expected
