"""What lay in the cluster when a run was over and everything at rest; checkers compare it with the history."""

from __future__ import annotations

from dataclasses import dataclass, field

from kip932.api.v1.record_batch_pb2 import Record
from tests.simulation.history import HeadersSeen, Share, StateSeen

#: A record's key, and its headers in their order.
Labels = tuple[bytes | None, HeadersSeen]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A topic-partition's log as its leader has it."""

    log_start_offset: int
    high_watermark: int


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
    fatal: tuple[str, ...] = ()
    #: Streams of the persisted state and their lengths, with the bound that compaction promises.
    streams: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: What stands in the streams of the persisted state though no coordinator writes it (SC-54, SC-70), in words.
    torn: tuple[str, ...] = ()
    #: The logs as they ended once every process had been killed and started again.
    logs_replayed: dict[tuple[str, int], LogEnd] = field(default_factory=dict)


def labels(record: Record) -> Labels:
    """A stored record's key and headers, null and empty told apart."""
    headers = tuple((each.key, each.value if each.HasField("value") else None) for each in record.headers)
    return record.key if record.HasField("key") else None, headers
