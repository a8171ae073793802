"""The state of the cluster after a run, with everything at rest; checkers compare it with the history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kip932.api.v1.record_batch_pb2 import Record
from tests.simulation.history import HeadersSeen, Share, StateSeen

#: A record's key, and its headers in their order.
Labels = tuple[bytes | None, HeadersSeen]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A topic-partition's log as its leader sees it."""

    log_start_offset: int
    high_watermark: int


class Letter(NamedTuple):
    """A record in the dead-letter topic; `value` None for null."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: HeadersSeen


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """A group as its coordinator sees it: the lists of its STATE record, and the change in progress, "" for none.

    `initializing` has (topic id, partition, start offset, state epoch) of each entry; `dropping`: its topics are being
    deleted because the group is being deleted.
    """

    epoch: int
    members: int = 0
    initialized: tuple[tuple[str, int], ...] = ()
    initializing: tuple[tuple[str, int, int, int], ...] = ()
    deleting: tuple[str, ...] = ()
    dropping: bool = False
    under_way: str = ""

    @property
    def changing(self) -> bool:
        """Return True if a change is in progress, or was interrupted and waits to be resumed."""
        return bool(self.deleting or self.dropping or self.under_way)


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a run.

    `served` is the coordinators' state when everything was drained; `replayed` is the same after every process was
    killed and restarted; `rebuilt` is the state that a reader derives from the snapshots and updates in the store's
    streams alone. `values` has each log as stored, by (topic id, partition) and offset; `labels` has the keys and
    headers of its records. `leftovers` are keys in the store that no longer belong to anything. `fatal` has the reasons
    of processes that gave up.
    """

    served: dict[Share, StateSeen] = field(default_factory=dict)
    replayed: dict[Share, StateSeen] = field(default_factory=dict)
    rebuilt: dict[Share, StateSeen] = field(default_factory=dict)
    logs: dict[tuple[str, int], LogEnd] = field(default_factory=dict)
    values: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    labels: dict[tuple[str, int], dict[int, Labels]] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()
    #: The records of the dead-letter topic; `values` and `labels` do not contain them.
    letters: tuple[Letter, ...] = ()
    fatal: tuple[str, ...] = ()
    #: The special conditions of the run (`shape.PRESSURES`).
    pressures: tuple[str, ...] = ()
    #: Records of aborted transactions, which a group with read_committed must not receive, and those of transactions
    #: that were never ended; `values` contains neither.
    hidden: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    open: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    #: The streams of the persisted state, with their lengths and the maximum that compaction guarantees.
    streams: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Descriptions of entries in these streams that no coordinator would write (SC-54, SC-70).
    torn: tuple[str, ...] = ()
    #: The start and end of every log after every process was killed and restarted.
    logs_replayed: dict[tuple[str, int], LogEnd] = field(default_factory=dict)
    #: The groups that were served, by id, and the same after every process was killed and restarted.
    groups: dict[str, GroupEnd] = field(default_factory=dict)
    groups_replayed: dict[str, GroupEnd] = field(default_factory=dict)


def labels(record: Record) -> Labels:
    """Return a stored record's key and headers, with null and empty distinguished."""
    headers = tuple((each.key, each.value if each.HasField("value") else None) for each in record.headers)
    return record.key if record.HasField("key") else None, headers
