"""The members of each group and the partitions assigned to them (PM-17, PM-54)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import ORDER

_MEMBER = ("group_id", "member_id")
_GIVEN = ("member_epoch", "assigned")


def memberships(rows: DataFrame) -> DataFrame:
    """One row for each current member, from the newest records about it.

    Columns: `client_id`, `client_host`, `member_epoch` and `assigned`, its partitions. The last two are null before its
    first assignment.
    """
    newest_of = []
    for kind, columns in (("member", ("client_id", "client_host")), ("current", _GIVEN)):
        of_kind = F.when(F.col("record_type") == kind, F.struct(*ORDER))
        newest_of.append(F.max_by(F.struct("tombstone", *columns), of_kind).alias(kind))
    newest = rows.where(F.col("record_type").isin("member", "current")).groupBy(*_MEMBER).agg(*newest_of)
    given = F.when(~F.col("current.tombstone"), F.col("current"))
    return newest.where("not member.tombstone").select(
        *_MEMBER, "member.client_id", "member.client_host", *(given[name].alias(name) for name in _GIVEN)
    )
