"""Bounds how many things one request may name (CM-62), before the request is processed.

Our client knows the same bounds and splits its requests. A request that exceeds them is refused with a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kip932.errors import InvalidRequestError
from kip932.failures import FAILURES_MAX
from kip932.ids import (
    ACKNOWLEDGED_RANGES_MAX,
    CHANGED_TOPICS_MAX,
    EXPLAINED_OFFSETS_MAX,
    GROUP_ID_MAX,
    PRODUCED_BATCHES_MAX,
    REQUEST_CONFIGS_MAX,
    REQUEST_GROUPS_MAX,
    REQUEST_PARTITIONS_MAX,
    SHARE_PARTITION_BATCHES_MAX,
    STATE_BATCHES_MAX,
)

#: The number of bytes from which work on them waits for a turn of the event loop: it takes 2 ms or more.
LARGE_BYTES: Final = 1024 * 1024
#: The maximum number of turns of the event loop that one piece of such work waits.
LARGE_TURNS_MAX: Final = 256


class Turns:
    """Lets other tasks run from time to time during long work, so that they need not wait about 20 ms for it (CM-94).

    Use it only where other tasks may act in between, never in the middle of a decision.
    """

    __slots__ = ("_every", "_left")

    def __init__(self, every: int) -> None:
        self._every = self._left = every

    async def step(self, cost: int = 1) -> None:
        """Count one more entry as done, or `cost` of them; when enough are done, let other tasks run."""
        self._left -= cost
        if self._left <= 0:
            self._left = self._every
            await asyncio.sleep(0)


class LargeWork:
    """Spreads work on many bytes that cannot be interrupted, such as building and serializing an answer, over the turns
    of the event loop: one such work per turn, so that no other task waits for all of them together (CM-94)."""

    __slots__ = ("_queued",)

    def __init__(self) -> None:
        self._queued = 0

    async def turn(self, size: int) -> None:
        """Wait for a turn to work on `size` bytes, and do the work before the next await. Less than `LARGE_BYTES` need
        no turn. If more than `LARGE_TURNS_MAX` are waiting, several may get the same one."""
        if size < LARGE_BYTES:
            return
        self._queued += 1
        try:
            for _ in range(min(self._queued, LARGE_TURNS_MAX)):
                await asyncio.sleep(0)
        finally:
            self._queued -= 1


def check_partitions(*lists: tuple[Sequence[Any], str]) -> None:
    """Bound the partitions of a request. Each argument is a list of topics and the name of a topic's field that lists
    its partitions.

    Raises InvalidRequestError, which ends the call as INVALID_ARGUMENT.
    """
    count = 0
    for topics, field in lists:
        named = len(topics)
        if named <= REQUEST_PARTITIONS_MAX:
            named = max(named, sum(len(getattr(topic, field)) for topic in topics))
        count += named
    if count > REQUEST_PARTITIONS_MAX:
        raise InvalidRequestError(
            f"the request names {count} topics or partitions; at most {REQUEST_PARTITIONS_MAX} go into one request"
        )


def check_topics(count: int) -> None:
    """Bound the topics of a request that names no partitions. Raises InvalidRequestError as `check_partitions`."""
    if count > CHANGED_TOPICS_MAX:
        raise InvalidRequestError(f"the request names {count} topics; at most {CHANGED_TOPICS_MAX} go into one request")


def check_groups(count: int, group_ids: Iterable[str]) -> None:
    """Bound the number of groups in a request, and their ids. Raises InvalidRequestError as `check_partitions`."""
    if count > REQUEST_GROUPS_MAX:
        raise InvalidRequestError(f"{count} groups were asked for; at most {REQUEST_GROUPS_MAX} go into one request")
    longest = max(map(len, group_ids), default=0)
    if longest > GROUP_ID_MAX:
        raise InvalidRequestError(f"a group id has {longest} characters; at most {GROUP_ID_MAX} are allowed")


def check_configs(count: int) -> None:
    """Bound the configs of a request's topics or resources. Raises InvalidRequestError as `check_partitions`."""
    if count > REQUEST_CONFIGS_MAX:
        raise InvalidRequestError(f"the request names {count} configs; at most {REQUEST_CONFIGS_MAX} in one request")


def check_batches(count: int) -> None:
    """Bound the record batches of a Produce. Raises InvalidRequestError as `check_partitions`."""
    if count > PRODUCED_BATCHES_MAX:
        raise InvalidRequestError(
            f"the request brings {count} record batches; at most {PRODUCED_BATCHES_MAX} go into one request"
        )


def check_state_batches(counts: Sequence[int], failures: Sequence[int] = ()) -> None:
    """Bound a write's state batches and reasons of failures, per partition and in total. Raises InvalidRequestError as
    `check_partitions`."""
    if sum(counts) + sum(failures) > STATE_BATCHES_MAX:
        raise InvalidRequestError(
            f"the request brings {sum(counts)} state batches and {sum(failures)} reasons of failures; together at most "
            f"{STATE_BATCHES_MAX} go into one request"
        )
    if max(failures, default=0) > FAILURES_MAX:
        raise InvalidRequestError(
            f"a share-partition has {max(failures)} reasons of failures; at most {FAILURES_MAX} at a time"
        )
    if max(counts, default=0) > SHARE_PARTITION_BATCHES_MAX:
        raise InvalidRequestError(
            f"a share-partition has {max(counts)} state batches; at most {SHARE_PARTITION_BATCHES_MAX} at a time"
        )


def check_state_spans(counts: Sequence[int]) -> None:
    """Bound the offsets whose state batches are requested, per partition and in total: each has at most one batch.
    Raises InvalidRequestError as `check_partitions`."""
    if max(counts, default=0) > EXPLAINED_OFFSETS_MAX:
        raise InvalidRequestError(
            f"state batches are asked for {max(counts)} offsets of a share-partition; at most {EXPLAINED_OFFSETS_MAX} "
            "at a time"
        )
    if sum(counts) > STATE_BATCHES_MAX:
        raise InvalidRequestError(
            f"state batches are asked for {sum(counts)} offsets; at most {STATE_BATCHES_MAX} go into one request"
        )


def check_ranges(count: int) -> None:
    """Bound the ranges that a request acknowledges. Raises InvalidRequestError as `check_partitions`."""
    if count > ACKNOWLEDGED_RANGES_MAX:
        raise InvalidRequestError(
            f"the request acknowledges {count} ranges of offsets; at most {ACKNOWLEDGED_RANGES_MAX} go into one request"
        )
