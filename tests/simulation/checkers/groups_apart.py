"""INV-15: only a group's own settings and deliveries affect how it is served."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from kip932.ids import OFFSET_MAX, STATE_ARCHIVED
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import StateKey, numbered, offsets
from tests.simulation.final import Final as FinalState
from tests.simulation.history import (
    Administered,
    Configured,
    History,
    LimitsSeen,
    StateAnswered,
)
from tests.simulation.leader_events import Locked
from tests.simulation.shape import TRANSACTIONS

#: A group's config, the cluster-wide setting that is its fallback, and that setting's default.
_LIMITS: Final = (
    ("share.delivery.count.limit", "group.share.delivery.count.limit", "5"),
    ("share.record.lock.duration.ms", "group.share.record.lock.duration.ms", "30000"),
    ("share.partition.max.record.locks", "group.share.partition.max.record.locks", "2000"),
)


class OwnSettings:
    """For a group, a leader uses only values that were set for that group, or the cluster's initial ones."""

    rules: tuple[str, ...] = ("INV-15",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check every read of settings by a leader. A change counts from the time of its request, because the
        response may arrive late or never."""
        del final
        asked_ms: dict[tuple[str, str, str], int] = {}
        for event in history.of(Administered):
            if event.call == "IncrementalAlterConfigs":
                name, _, value = event.detail.partition("=")
                key = (event.target, name, value)
                asked_ms[key] = min(event.asked_ms, asked_ms.get(key, event.asked_ms))
        flags: dict[str, str] = {}
        for event in history.of(Configured, LimitsSeen):
            if isinstance(event, Configured):
                flags = dict(event.flags)
                continue
            seen = (event.delivery_count_limit, event.lock_ms, event.max_record_locks)
            for value, (name, setting, default) in zip(map(str, seen), _LIMITS, strict=True):
                since = asked_ms.get((event.group_id, name, value), event.at_ms + 1)
                if value != flags.get(setting, default) and since > event.at_ms:
                    yield Violation(
                        "INV-15",
                        f"{event.process} takes {value} for {name} of {event.group_id}, which no request asked for",
                        (event,),
                    )


class OwnDeliveries:
    """A delivery count that is written for a group's record is that of a delivery to a member of this group."""

    rules: tuple[str, ...] = ("INV-15",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check every confirmed write against the ranges delivered and the states read before it. A record of an
        aborted transaction is archived before any member acquires it, with the count that it then had (T18)."""
        known: dict[StateKey, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for _, event in numbered(history, Locked, StateAnswered):
            counts = known[StateKey(event.share, event.state_epoch)]
            if isinstance(event, Locked):
                for offset in offsets(event.first_offset, event.last_offset):
                    counts[offset].add(event.delivery_count)
            elif event.code == 0 and event.call == "Write":
                yield from self._written(event, counts, final)

    @staticmethod
    def _written(event: StateAnswered, counts: dict[int, set[int]], final: FinalState) -> Iterator[Violation]:
        partition = event.share.topic_id, event.share.partition
        hidden, log = final.hidden.get(partition, {}), final.logs.get(partition)
        below = 0  # records that the log no longer has may have been aborted
        if TRANSACTIONS in final.pressures:
            below = log.log_start_offset if log is not None else OFFSET_MAX
        for first, last, state, count, *_ in event.batches:
            strange = [
                offset
                for offset in offsets(first, last)
                if count
                and count not in counts.get(offset, ())
                and not (state == STATE_ARCHIVED and (offset in hidden or offset < below))
            ]
            if strange:
                yield Violation(
                    "INV-15",
                    f"{event.share} offset {strange[0]} was written with count {count}; its group was given it with "
                    f"{sorted(counts.get(strange[0], ())) or 'none'}",
                    (event,),
                )
                return
