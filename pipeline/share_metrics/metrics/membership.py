"""Who is a member of a group, and which partitions each was given (PM-17, PM-54)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from .common import ORDER

_MEMBER = ("group_id", "member_id")


def memberships(rows: DataFrame) -> DataFrame:
    """One row for each member that is there, by the newest records about it.

    `client_id`, `client_host`; `member_epoch` and `assigned`, the partitions that it was given, null for one that was
    given none yet.
    """
    newest = {}
    for kind, columns in (("member", ("client_id", "client_host")), ("current", ("member_epoch", "assigned"))):
        told = F.max_by(F.struct("tombstone", *columns), F.struct(*ORDER)).alias("told")
        found = rows.where(F.col("record_type") == kind).groupBy(*_MEMBER).agg(told)
        newest[kind] = found.where("not told.tombstone").select(*_MEMBER, *(f"told.{name}" for name in columns))
    return newest["member"].join(newest["current"], [*_MEMBER], "left")
