"""Compares the rows of an ingest with the store: each stored entry is in Parquet once, or it is lost or doubled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import SparkSession

from share_metrics.ingest.writing import stored
from share_metrics.reader import Kind

if TYPE_CHECKING:  # this module is imported before pytest starts, which must load its plugins itself
    from .world import World

#: The name of a test's property that holds its account, for `make ingest-kills`.
PROPERTY: Final = "ingest"


class Account(NamedTuple):
    """A job's faults, the store's entries, the rows in Parquet, the missing rows and the surplus rows."""

    kills: int
    ends: int
    entries: int
    rows: int
    lost: int
    doubled: int

    def __add__(self, other: object) -> Account:
        """Return the sum of both."""
        if not isinstance(other, Account):
            return NotImplemented
        return Account(*(mine + its for mine, its in zip(self, other, strict=True)))

    def __str__(self) -> str:
        """Return the closing line of `make ingest-kills`."""
        return " ".join(f"{name}={value}" for name, value in self._asdict().items())


def account(spark: SparkSession, world: World, data: Path, *, kills: int = 0, ends: int = 0) -> Account:
    """Return the account of the share-state streams as they are now."""
    streams = [f"{{sgs:{number}}}:log" for number in range(int(world.redis.get("sgs:config")))]
    entries = Counter((stream, key.decode()) for stream in streams for key, _ in world.redis.xrange(stream))
    found = stored(spark, data, Kind.SHARE_STATE).select("stream", "entry_id").collect()
    rows = Counter((row.stream, row.entry_id) for row in found)
    lost, doubled = (entries - rows).total(), (rows - entries).total()
    return Account(kills, ends, entries.total(), rows.total(), lost, doubled)
