"""Common questions about share groups, each as a view in SQL (PM-89). Text only; `views` registers the views.

They read the tables that `views` builds from the metrics. Unknown values are null, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Question(NamedTuple):
    """A view: its name, the question it answers, the meanings of its columns in order, and its query."""

    view: str
    asks: str
    columns: Mapping[str, str]
    sql: str


_GROUP: Final = {"group_id": "the group"}
_TOPIC: Final = _GROUP | {"topic": "name of the topic, or its id if no record names it"}
_PARTITION: Final = _TOPIC | {"partition": "number of the partition"}
_NOW: Final = "share_windows WHERE window = last_window AND NOT gone"

LAG: Final = Question(
    "share_lag",
    "How far behind is each group now?",
    {
        **_GROUP,
        "share_partitions": "how many it has",
        "lag": "records that are not finished, from where the logs end; null if no share-partition's lag is known",
        "unknown": "share-partitions whose lag is not known",
        "at_least": "true if the lag may be greater, since some logs' ends were last seen minutes ago, or never",
        "delayed": "the records in the lag that are delayed",
    },
    f"""
SELECT group_id, count(*) AS share_partitions, sum(lag) AS lag, count_if(lag IS NULL) AS unknown,
  bool_or(lag_least OR lag IS NULL) AS at_least, sum(delayed) AS delayed
FROM {_NOW} GROUP BY group_id""",
)
PACE: Final = Question(
    "share_pace",
    "Does each group keep up, and when will it have caught up?",
    {
        **_GROUP,
        "arrived": "records produced, in windows where the lag is known at both ends",
        "finished": "records finished in the same windows",
        "arrived_per_s": "`arrived` per second: the sum of each share-partition's own rate",
        "finished_per_s": "`finished` per second, computed in the same way",
        "lag": "as in `share_lag`",
        "drain_s": "seconds until nothing is left at this pace; null if it does not gain on the producers",
    },
    """
WITH each AS (
  SELECT group_id, sum(arrived) AS arrived, sum(finished) AS finished, sum(seconds) AS seconds
  FROM share_windows WHERE arrived IS NOT NULL GROUP BY group_id, topic_id, partition),
whole AS (
  SELECT group_id, sum(arrived) AS arrived, sum(finished) AS finished, sum(arrived / seconds) AS arrived_per_s,
    sum(finished / seconds) AS finished_per_s
  FROM each GROUP BY group_id)
SELECT lags.group_id, arrived, finished, arrived_per_s, finished_per_s, lag,
  CASE WHEN lag = 0 THEN 0D WHEN finished_per_s > arrived_per_s THEN lag / (finished_per_s - arrived_per_s) END
    AS drain_s
FROM share_lag AS lags LEFT JOIN whole ON whole.group_id = lags.group_id""",
)
STUCK: Final = Question(
    "share_stuck",
    "Which groups are stuck, and since when?",
    {
        **_PARTITION,
        "kind": "`stalled`: the group has members, but finished nothing for five minutes; `abandoned`: it has none",
        "lag": "records that are not finished",
        "at_least": "true if the lag may be greater",
        "since": "the window in which it last finished something, or had nothing to do",
    },
    """
SELECT group_id, topic, partition, kind, lag, lag_least AS at_least,
  window - make_dt_interval(0, 0, 0, still_s) AS since
FROM share_standstills WHERE window = last_window""",
)
FAILED: Final = Question(
    "share_failed",
    "Which records failed, and why?",
    {
        **_PARTITION,
        "offset": "the record",
        "reason": "`delivery limit`, `rejected`, or `one delivery left`: it was released and may be given up next",
        "state": "its state: Archived; Archiving while its dead letter is written; Available where a delivery is left",
        "delivery_count": "how many times it was delivered",
        "first_seen": "when it was first released or given up, as far as is known",
        "last_seen": "when that happened last; 100 records of each share-partition, the newest, are listed",
        "times_released": "how many times it came back after a delivery: released, given back, or its lock expired",
    },
    """
SELECT group_id, topic, partition, offset, reason, state, delivery_count, first_seen, last_seen, times_released
FROM share_suspects""",
)
REDELIVERY: Final = Question(
    "share_redelivery",
    "How much is delivered more than once?",
    {
        **_TOPIC,
        "finished": "records whose deliveries were counted when they were finished",
        "redelivered": "of those, delivered more than once; a lower bound where a record took more than two deliveries",
        "ratio": "`redelivered` divided by `finished`",
        "released": "records that members released",
        "given_back": "records given back because their member's session ended",
        "timed_out": "records whose lock expired",
    },
    """
SELECT group_id, topic, sum(finished_known) AS finished, sum(redelivered_lb) AS redelivered,
  try_divide(sum(redelivered_lb), sum(finished_known)) AS ratio, sum(released) AS released,
  sum(given_back) AS given_back, sum(timed_out) AS timed_out
FROM share_windows GROUP BY group_id, topic""",
)
RELEASE_TO_FINAL: Final = Question(
    "share_release_to_final",
    "Where did released records take longest until they were finished?",
    {
        **_PARTITION,
        "window": "the worst window of the share-partition, by p99",
        "p50_ms": "half of the records that were finished in it took at most this many ms from their first release",
        "p95_ms": "95 of 100",
        "p99_ms": "99 of 100",
    },
    """
SELECT group_id, topic, partition, worst.window, worst.p50_ms, worst.p95_ms, worst.p99_ms FROM (
  SELECT group_id, topic, partition, max_by(struct(window, p50_ms, p95_ms, p99_ms), struct(p99_ms, window)) AS worst
  FROM share_replays WHERE p99_ms IS NOT NULL GROUP BY group_id, topic, partition)""",
)
REBALANCES: Final = Question(
    "share_rebalances",
    "When were partitions reassigned, and how long did that take?",
    {
        **_GROUP,
        "assignment_epoch": "epoch of the assignment that was computed",
        "computed_at": "when",
        "took_ms": "milliseconds until all members had reached it; null if they have not",
    },
    """
SELECT group_id, assignment_epoch, computed_at, convergence_ms AS took_ms FROM share_assignments""",
)
CHURN: Final = Question(
    "share_churn",
    "Which groups' members come and go?",
    {
        **_GROUP,
        "joins": "members that joined",
        "leaves": "members that are gone",
        "left": "of those, members that left on their own",
        "expired": "of those, members removed because no heartbeat came from them",
        "flapping": "joins that were at least the third by the same client id and host within five minutes",
        "members": "how many there are at the end",
        "state": "`Stable`, `Empty` or `Dead`",
    },
    """
SELECT group_id, sum(joins) AS joins, sum(leaves) AS leaves, sum(leaves_left) AS left, sum(leaves_expired) AS expired,
  sum(flapping) AS flapping, max_by(members, window) AS members, max_by(state, window) AS state
FROM share_group_windows GROUP BY group_id""",
)
SKEW: Final = Question(
    "share_skew",
    "Is the state spread evenly over its streams?",
    {
        "stream": "key of the stream",
        "entries": "records in it",
        "bytes": "their size",
        "keys": "share-partitions in it",
        "skew": "entries of the largest stream divided by the mean; 1 means perfectly even",
        "gini": "0 means perfectly even; near 1, nearly everything is in one stream",
    },
    """
SELECT stream, entries, bytes, keys, skew, gini FROM share_loads""",
)
FRESHNESS: Final = Question(
    "share_freshness",
    "How old is what these views show, and is anything missing?",
    {
        "kind": "`share_state` or `group`",
        "stream": "key of the stream",
        "entries": "entries in the period that these views cover",
        "newest": "when the newest one was written",
        "age_s": "seconds from then until these views were made; it grows for an idle stream, too",
        "lost": "entries that were lost before they were read",
        "quarantined": "entries that are not records",
        "unknown": "records of a later build",
    },
    """
SELECT kind, stream, entries, newest_ts AS newest, made_s - unix_micros(newest_ts) / 1000000 AS age_s, lost,
  quarantined, unknown
FROM share_streams""",
)

#: All questions; a view may read those before it.
QUESTIONS: Final = (
    LAG, PACE, STUCK, FAILED, REDELIVERY, RELEASE_TO_FINAL, REBALANCES, CHURN, SKEW, FRESHNESS,
)  # fmt: skip
