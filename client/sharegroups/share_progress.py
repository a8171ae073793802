"""The progress of share groups, as the leaders of the partitions know it (CL-170)."""

from __future__ import annotations

from typing import NamedTuple


class ShareProgress(NamedTuple):
    """One group's progress in one topic (partition −1: the sum over its partitions), or in one partition."""

    group: str
    topic: str
    partition: int
    """−1: all of them."""
    partitions: int
    """How many share-partitions are summed; 1 for one."""
    lag: int | None
    """Records that are not finished; None: unknown (of some partition)."""
    oldest_ms: int | None
    """The age of the oldest record that is not finished; None: there is none, or it is unknown."""
    in_flight: int
    """Records that members hold."""
    delayed: int
    """Records that wait for the end of a delay."""
    dead_letters: int
    """Dead letters that are not written yet."""
    finished: int
    """Records accepted, rejected, or given up at the delivery limit, since the leader of their partition counts."""
    archived: int
    """Those of them that were rejected or given up."""
    arrived: int
    """Records appended since the leader counts."""
    recent_ms: int
    """The length of the time that the two next figures cover; 0: none yet."""
    recent_finished: int
    recent_arrived: int
    since_finish_ms: int | None
    """The time since a record was last finished; None: none was since the leader counts."""
    longest_member: str
    """The member that has held a record for longest; "" if no record is held."""
    longest_held_ms: int
    """How long it has held that record."""
    fetching: int
    """Share sessions that fetch at a leader now, or have within 30 s."""


class ProgressPage(NamedTuple):
    """The rows with the largest lag."""

    rows: tuple[ShareProgress, ...]
    """The largest lag first; those with an unknown lag last."""
    total: int
    """How many rows there are in all."""
    missing: tuple[str, ...]
    """The addresses of leaders that did not answer; the rows leave out their partitions."""
