"""What lay in the cluster when a run was over and everything at rest; checkers compare it with the history."""

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
    deleted because it is.
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
        """Whether a change is under way, or was interrupted and waits for its resume."""
        return bool(self.deleting or self.dropping or self.under_way)


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a run.

    `served` is what the coordinators held when all was drained; `replayed` is the same after every process was killed
    and started again; `rebuilt` is what a reader of the store's streams alone, without the services, makes of snapshots
    and updates. `values` holds each log as it lies in the store, by (topic id, partition) and offset, `labels` the keys
    and headers beside them. `leftovers` are keys in the store that nothing owns any more. `fatal` holds what processes
    said when they gave up.
    """

    served: dict[Share, StateSeen] = field(default_factory=dict)
    replayed: dict[Share, StateSeen] = field(default_factory=dict)
    rebuilt: dict[Share, StateSeen] = field(default_factory=dict)
    logs: dict[tuple[str, int], LogEnd] = field(default_factory=dict)
    values: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    labels: dict[tuple[str, int], dict[int, Labels]] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()
    #: What lies in the dead-letter topic; `values` and `labels` are without it.
    letters: tuple[Letter, ...] = ()
    fatal: tuple[str, ...] = ()
    #: What the run had beside the usual (`shape.PRESSURES`).
    pressures: tuple[str, ...] = ()
    #: Records of aborted transactions, which no group that reads committed records is to see, and those of transactions
    #: that nobody has ended; `values` has neither.
    hidden: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    open: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    #: Streams of the persisted state and their lengths, with the bound that compaction promises.
    streams: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: What stands in the streams of the persisted state though no coordinator writes it (SC-54, SC-70), in words.
    torn: tuple[str, ...] = ()
    #: The logs as they ended once every process had been killed and started again.
    logs_replayed: dict[tuple[str, int], LogEnd] = field(default_factory=dict)
    #: The groups that were served, by id, and the same once every process had been killed and started again.
    groups: dict[str, GroupEnd] = field(default_factory=dict)
    groups_replayed: dict[str, GroupEnd] = field(default_factory=dict)


def labels(record: Record) -> Labels:
    """A stored record's key and headers, null and empty told apart."""
    headers = tuple((each.key, each.value if each.HasField("value") else None) for each in record.headers)
    return record.key if record.HasField("key") else None, headers
