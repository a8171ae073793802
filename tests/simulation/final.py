"""The state of the cluster when a run was over and everything at rest; checkers compare it with the history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kip932.api.v1.record_batch_pb2 import Record
from tests.simulation.history import HeadersSeen, Share, StateSeen

#: A record's key, and its headers in their order.
Labels = tuple[bytes | None, HeadersSeen]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A topic-partition's log as its leader has it."""

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
    """A group as its coordinator holds it: the lists of its STATE record, and the change under way, "" for none.

    `initializing` has (topic id, partition, start offset, state epoch) of each entry; `dropping`: its topics are being
    deleted because the group is.
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
        """Return True if a change is under way, or was interrupted and waits to be resumed."""
        return bool(self.deleting or self.dropping or self.under_way)


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a run.

    `served` is what the coordinators held when all was drained; `replayed` is the same after every process was killed
    and started again; `rebuilt` is what a reader of the store's streams alone, without the services, makes of snapshots
    and updates. `values` holds each log as stored, by (topic id, partition) and offset, `labels` the keys and headers
    of its records. `leftovers` are keys in the store that nothing owns any more. `fatal` holds the reasons of processes
    that gave up.
    """

    served: dict[Share, StateSeen] = field(default_factory=dict)
    replayed: dict[Share, StateSeen] = field(default_factory=dict)
    rebuilt: dict[Share, StateSeen] = field(default_factory=dict)
    logs: dict[tuple[str, int], LogEnd] = field(default_factory=dict)
    values: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    labels: dict[tuple[str, int], dict[int, Labels]] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()
    #: The records of the dead-letter topic; `values` and `labels` are without them.
    letters: tuple[Letter, ...] = ()
    fatal: tuple[str, ...] = ()
    #: The special conditions of the run (`shape.PRESSURES`).
    pressures: tuple[str, ...] = ()
    #: Records of aborted transactions, which no group that reads committed records is to see, and those of transactions
    #: that were never ended; `values` has neither.
    hidden: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    open: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    #: Streams of the persisted state and their lengths, with the bound that compaction guarantees.
    streams: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Entries in the streams of the persisted state that no coordinator writes (SC-54, SC-70), in words.
    torn: tuple[str, ...] = ()
    #: The logs as they ended once every process had been killed and started again.
    logs_replayed: dict[tuple[str, int], LogEnd] = field(default_factory=dict)
    #: The groups that were served, by id, and the same once every process had been killed and started again.
    groups: dict[str, GroupEnd] = field(default_factory=dict)
    groups_replayed: dict[str, GroupEnd] = field(default_factory=dict)


def labels(record: Record) -> Labels:
    """Return a stored record's key and headers, with null and empty distinguished."""
    headers = tuple((each.key, each.value if each.HasField("value") else None) for each in record.headers)
    return record.key if record.HasField("key") else None, headers
