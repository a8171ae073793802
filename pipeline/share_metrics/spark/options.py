"""The options of the data source, read once into a frozen value that is sent to workers (PM-5, PM-73). Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kip932.store_settings import StoreAccess
from share_metrics.reader import EntryId, Kind, ReadOptions, Store
from share_metrics.reader.offsets import read_ids
from share_metrics.reader.publishing import Publisher, checked_name
from share_metrics.reader.streams import check_cluster_id

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a query. They hold no password, only the name of the variable or the path of the file with it."""

    url: str
    kind: Kind
    password_env: str = ""
    shards: int | None = None
    num_partitions: int = 2
    split_entries: int = 250_000
    page_count: int = 5_000
    max_rows_per_trigger: int = 300_000
    max_rows_first_trigger: int = 300_000
    starting_ids: str = EARLIEST
    ending_ids: str = LATEST
    fail_on_data_loss: bool = False
    bad_records: str = "quarantine"
    fields: str = "all"
    read_from: str = "primary"
    reader_name: str = ""
    cluster_id: str = ""
    access: StoreAccess = field(default_factory=StoreAccess)

    @property
    def read_options(self) -> ReadOptions:
        """The options of the reader."""
        return ReadOptions(
            self.page_count,
            self.fail_on_data_loss,
            fail_on_bad_records=self.bad_records == "fail",
            light=self.fields == "light",
        )

    @property
    def starts(self) -> dict[str, EntryId]:
        """Ids to start from, by stream; empty unless `startingIds` names streams."""
        return {} if self.starting_ids in {EARLIEST, LATEST} else read_ids(self.starting_ids)

    @property
    def ends(self) -> dict[str, EntryId]:
        """Ids to end at, by stream; empty unless `endingIds` names streams."""
        return {} if self.ending_ids == LATEST else read_ids(self.ending_ids)

    def publisher(self) -> Publisher | None:
        """The publisher of a query's positions, if it has a reader name (PM-12); None without one.

        Also None for topic logs: their owners trim them by retention alone.
        """
        return Publisher(self.reader_name) if self.reader_name and self.kind is not Kind.LOG_META else None

    def cluster_store(self) -> Store:
        """A new store to plan with; the caller must close it. Raises OtherClusterError if it is of another cluster than
        `clusterId` says, and what `Store.call` raises."""
        store = self.store()
        if self.cluster_id:
            try:
                check_cluster_id(store, self.cluster_id)
            except BaseException:
                store.close()
                raise
        return store

    def store(self) -> Store:
        """A new store to read from; the caller must close it."""
        return Store(self.url, self.password_env, access=self.access, replicas=self.read_from == "replica")


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options that Spark passes; their names are case-insensitive. Raises ValueError, which names the option.

    Never copy `options`: a copy would have lower-case names, so that `get` would not find them (PM-73).
    """
    url = options.get("url", "")
    if not url:
        raise ValueError("option url is missing: the store, as in redis://127.0.0.1:6379")
    kind = options.get("kind", "")
    if kind not in set(Kind):
        raise ValueError(f"option kind is {kind!r}; expected one of {', '.join(Kind)}")
    rows = _number(options, "maxRowsPerTrigger", None) or 300_000
    found = SourceOptions(
        url,
        Kind(kind),
        password_env=options.get("passwordEnv", ""),
        shards=_number(options, "shards", None),
        num_partitions=_number(options, "numPartitions", 0) or 2 * (os.cpu_count() or 1),
        split_entries=_number(options, "splitEntries", None) or 250_000,
        page_count=_number(options, "pageCount", None) or 5_000,
        max_rows_per_trigger=rows,
        max_rows_first_trigger=min(rows, _number(options, "maxRowsFirstTrigger", None) or rows),
        starting_ids=options.get("startingIds", EARLIEST),
        ending_ids=options.get("endingIds", LATEST),
        fail_on_data_loss=_choice(options, "failOnDataLoss", ("false", "true")) == "true",
        bad_records=_choice(options, "badRecords", ("quarantine", "fail")),
        fields=_choice(options, "fields", ("all", "light")),
        read_from=_choice(options, "readFrom", ("primary", "replica")),
        reader_name=options.get("readerName", ""),
        cluster_id=options.get("clusterId", ""),
        access=StoreAccess.of(options),
    )
    if found.reader_name:
        checked_name(found.reader_name)
    if found.fields == "light" and found.kind is not Kind.SHARE_STATE:
        raise ValueError(f"option fields is 'light', which is for kind share_state, not {kind}")
    _ = found.starts, found.ends  # parse them now, so that an error is raised here and not in a worker
    return found


def _number(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"option {name} is {text!r}; expected a whole number from 1")
    return int(text)


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    found = options.get(name, choices[0]).lower()
    if found not in choices:
        raise ValueError(f"option {name} is {found!r}; expected one of {', '.join(choices)}")
    return found
