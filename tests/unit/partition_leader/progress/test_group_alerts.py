"""Each alert on groups and on the store's memory fires exactly when it should, as Prometheus itself evaluates it
(PL-956)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.promtool import Labels, Series, assert_each_fires, labelled

RULES: Final = Path(__file__).parents[4] / "deploy/kubernetes/components/monitoring/rules.yaml"
MINUTES: Final = 101
ONE: Final = {"namespace": "ns", "job": "ns/sharegroups", "pod": "leader-0"}
TWO: Final = ONE | {"pod": "leader-1"}
ROLES: Final = ("group-coordinator", "share-coordinator", "partition-leader")

Values = float | Callable[[int], float | None]


def made(name: str, values: Values, scraped: dict[str, str] = ONE, **labels: str) -> Series:
    """One series, scraped once a minute: a constant value, or a function of the minute."""
    each = [values(at) if callable(values) else values for at in range(MINUTES)]
    return {("sharegroups_" + name, labelled(**labels, **scraped)): each}


def group(scraped: dict[str, str] = ONE, name: str = "g", **values: Values) -> Series:
    """Series of group g and topic t of a leader, by the ends of their names."""
    found: Series = {}
    for end, each in values.items():
        found = {**found, **made(f"share_group_{end}", each, scraped, group=name, topic="t")}
    return found


def members(count: Values, scraped: dict[str, str] = ONE) -> Series:
    return made("share_group_members", count, scraped, group="g")


def archived(
    values: Values, scraped: dict[str, str] = ONE, cause: str = "delivery_limit", destination: str = "none"
) -> Series:
    of = {"group": "g", "topic": "t", "cause": cause, "destination": destination}
    return made("share_group_records_archived_total", values, scraped, **of)


def delays(values: Values) -> Series:
    return made("share_group_delays_total", values, group="g", cause="released")


def memory(used: Values, limit: Values | None = 1_000.0) -> Series:
    found = made("store_memory_used_bytes", used, node="store:6379")
    return found if limit is None else {**found, **made("store_memory_limit_bytes", limit, node="store:6379")}


def volume(available: float) -> Series:
    """What the kubelet shows of a volume of 1,000 bytes."""
    claim = labelled(namespace="ns", persistentvolumeclaim="data-store-0")
    values = {"available": available, "capacity": 1_000.0}
    return {(f"kubelet_volume_stats_{name}_bytes", claim): [value] * MINUTES for name, value in values.items()}


def moving(at: int) -> float:
    return 100.0 * at


def until(minute: int, values: Values) -> Values:
    return lambda at: None if at >= minute else values(at) if callable(values) else values


def since(minute: int, values: Values) -> Values:
    return lambda at: None if at < minute else values(at) if callable(values) else values


def from_minute(minute: int, before: float, after: float) -> Values:
    return lambda at: after if at >= minute else before


def of_group(alert: str, severity: str = "warning", **labels: str) -> Labels:
    return labelled(alertname=alert, namespace="ns", group="g", severity=severity, **labels)


STALLED: Final = of_group("ShareGroupStalled", "critical", topic="t")
ABANDONED: Final = of_group("ShareGroupAbandoned")
GROWS: Final = of_group("ShareGroupLagGrows", topic="t")
UNKNOWN: Final = of_group("ShareGroupLagUnknown", topic="t")
OLD: Final = of_group("ShareGroupRecordsOld", topic="t")
ARCHIVED: Final = of_group("ShareGroupRecordsArchived", topic="t")
DELAYED: Final = of_group("ShareGroupDelayed")
LEFT_OUT: Final = labelled(alertname="ShareGroupsLeftOut", namespace="ns", severity="warning")
MEMORY: Final = labelled(alertname="ShareGroupsStoreMemory", namespace="ns", node="store:6379", severity="critical")
FSYNC: Final = labelled(alertname="ShareGroupsStoreFsyncDelayed", namespace="ns", node="store:6379", severity="warning")
WAIT: Final = of_group("ShareGroupsDeadLettersWait")
VOLUME: Final = labelled(
    alertname="ShareGroupsVolumeFills", namespace="ns", persistentvolumeclaim="data-store-0", severity="warning"
)
DAMAGED: Final = labelled(alertname="ShareGroupsStoreDamaged", namespace="ns", kind="tp", severity="critical")
UNREADABLE: Final = labelled(alertname="ShareGroupsRecordsUnreadable", namespace="ns", severity="critical")
OF_SHARDS: Final = {"namespace": "ns", "service": "group_coordinator", "severity": "critical"}
QUARANTINE: Final = labelled(alertname="ShareGroupsStateInQuarantine", **OF_SHARDS)
FAILED: Final = labelled(alertname="ShareGroupsShardFailed", **OF_SHARDS)


class Case(NamedTuple):
    """Series, and the alerts that fire at the given minute."""

    series: Series
    fires: tuple[Labels, ...] = ()
    minute: int = 100


def of(
    lag: Values | None,
    finished: Values,
    delayed: float = 0.0,
    letters: float = 0.0,
    scraped: dict[str, str] = ONE,
) -> Series:
    """What a leader shows of group g; a lag of None is unknown."""
    known = {} if lag is None else group(scraped, lag=lag)

    def beside(value: float) -> Values:
        """The value while there is a counter of finished records."""
        return lambda at: None if callable(finished) and finished(at) is None else value

    rest = group(
        scraped, records_finished_total=finished, records_delayed=beside(delayed), records_in_flight=beside(0.0),
        dead_letters_waiting=beside(letters),
    )  # fmt: skip
    return {**known, **rest}


UP: Final[Series] = {
    ("up", labelled(**ONE, app_kubernetes_io_component=role)): [1.0] * MINUTES for role in ROLES
}  # fmt: skip
WELL: Final = {**UP, **members(2.0)}
#: The node of leader-0 ends at minute 60, and another one with other labels begins at minute 62 with counters from 0.
RESTARTED: Final = {
    **UP,
    **members(until(60, 2.0)), **members(since(62, 2.0), TWO),
    **of(until(60, 50.0), until(60, moving)),
    **of(since(62, 50.0), since(62, lambda at: 100.0 * (at - 62)), scraped=TWO),
    **archived(until(60, 9.0)), **archived(since(62, 0.0), TWO),
}  # fmt: skip
CASES: Final = {
    "nothing is shown": Case(UP),
    "a group that keeps up": Case({**WELL, **of(0.0, moving)}),
    "one with lag that gets on": Case({**WELL, **of(50.0, moving)}),
    "one that was done, and is idle": Case({**WELL, **of(0.0, 700.0)}),
    "a record that has just come behind it": Case({**WELL, **of(from_minute(60, 0, 1), 700.0)}, minute=64),
    "five minutes later": Case({**WELL, **of(from_minute(60, 0, 1), 700.0)}, (STALLED,), 66),
    "it finishes nothing": Case({**WELL, **of(5.0, 700.0)}, (STALLED,)),
    "it has never finished anything": Case({**WELL, **of(5.0, 0.0)}, (STALLED,)),
    "another leader finishes": Case({**WELL, **of(5.0, 700.0), **of(5.0, moving, scraped=TWO)}),
    "all of its lag waits for delays": Case({**WELL, **of(5.0, 700.0, 5.0)}),
    "a part of its lag waits for delays": Case({**WELL, **of(5.0, 700.0, 4.0)}, (STALLED,)),
    "the rest of it waits for dead letters": Case({**WELL, **of(5.0, 700.0, 3.0, 2.0)}),
    "all but one does": Case({**WELL, **of(5.0, 700.0, 2.0, 2.0)}, (STALLED,)),
    "its members are not known": Case({**UP, **of(5.0, 700.0)}),
    "its members are not known, and its records old": Case(
        {**UP, **of(5.0, 700.0), **group(oldest_unfinished_seconds=4_000.0)}, (OLD,)
    ),
    "the members have left": Case({**UP, **members(0.0), **of(5_000.0, 700.0)}, (ABANDONED,)),
    "they have left, and records are old": Case(
        {**UP, **members(0.0), **of(5_000.0, 700.0), **group(oldest_unfinished_seconds=4_000.0)}, (ABANDONED,)
    ),
    "they have left a moment ago": Case({**UP, **members(from_minute(90, 1, 0)), **of(5.0, moving)}),
    "they have left, and all is done": Case({**UP, **members(0.0), **of(0.0, 700.0)}),
    "its lag is unknown": Case({**WELL, **of(None, 700.0)}, (UNKNOWN,)),
    "its lag is unknown to one of two leaders": Case(
        {**WELL, **of(None, 7.0), **of(5.0, moving, scraped=TWO)}, (UNKNOWN,)
    ),
    "its lag grows": Case({**WELL, **of(moving, moving)}, (GROWS,)),
    "its lag is large, and shrinks": Case({**WELL, **of(lambda at: 99_000.0 - 100 * at, moving)}),
    "its lag grows, and is small": Case({**WELL, **of(lambda at: 1.0 * at, moving)}),
    "a large lag moves to another leader": Case(
        {**WELL, **of(until(60, 9_000.0), until(60, moving)), **of(since(60, 9_000.0), since(60, moving), scraped=TWO)}
    ),
    "a record is old": Case({**WELL, **of(50.0, moving), **group(oldest_unfinished_seconds=3_700.0)}, (OLD,)),
    "it is not so old": Case({**WELL, **of(50.0, moving), **group(oldest_unfinished_seconds=3_500.0)}),
    "a record is given up": Case({**WELL, **of(0.0, moving), **archived(from_minute(95, 3, 4))}, (ARCHIVED,)),
    "one is given up, and gets a dead letter": Case(
        {
            **WELL, **of(0.0, moving), **archived(3.0),
            **archived(from_minute(95, 3, 4), destination="dead_letter_queue"),
        },
        (ARCHIVED,),
    ),
    "one was before the first scrape": Case({**WELL, **of(0.0, moving), **archived(since(95, 1.0))}, (ARCHIVED,)),
    "one was an hour ago": Case({**WELL, **of(0.0, moving), **archived(from_minute(20, 3, 4))}),
    "one was rejected": Case({**WELL, **of(0.0, moving), **archived(from_minute(95, 3, 4), cause="rejected")}),
    "nothing was scraped for an hour": Case(
        {**WELL, **of(0.0, moving), **archived(lambda at: 4.0 if at < 30 or at > 92 else None)}
    ),
    "the counter restarts": Case({**WELL, **of(0.0, moving), **archived(from_minute(95, 4, 0))}),
    "it restarts, and one is given up": Case(
        {**WELL, **of(0.0, moving), **archived(lambda at: 4.0 if at < 94 else float(at >= 96))}, (ARCHIVED,)
    ),
    "more is delayed than finished": Case({**WELL, **of(9.0, 700.0, 9.0), **delays(moving)}, (DELAYED,)),
    "less is delayed than finished": Case({**WELL, **of(9.0, moving, 9.0), **delays(lambda at: 10.0 * at)}),
    "nothing is delayed any more": Case({**WELL, **of(0.0, 700.0), **delays(700.0)}),
    "the node is started again": Case(RESTARTED, minute=64),
    "and a while after that": Case(RESTARTED),
    "groups are left out": Case({**WELL, **made("share_group_rows_left_out", 3.0)}, (LEFT_OUT,)),
    "members of groups are left out": Case(
        {**WELL, **made("share_group_rows_left_out", 0.0), **made("share_group_members_left_out", 3.0)}, (LEFT_OUT,)
    ),
    "none are": Case({**WELL, **made("share_group_rows_left_out", 0.0), **made("share_group_members_left_out", 0.0)}),
    "the store is nearly full": Case({**WELL, **memory(950.0)}, (MEMORY,)),
    "it has room": Case({**WELL, **memory(850.0)}),
    "it has no limit": Case({**WELL, **memory(950.0, None)}),
    "its fsync is late": Case({**WELL, **made("store_fsync_delayed_total", moving, node="store:6379")}, (FSYNC,)),
    "it was late once": Case(
        {**WELL, **made("store_fsync_delayed_total", from_minute(50, 0, 4), node="store:6379")}
    ),
    "it was late before the node began": Case(
        {**WELL, **made("store_fsync_delayed_total", since(95, 40.0), node="store:6379")}
    ),
    "a volume is nearly full": Case({**WELL, **volume(140.0)}, (VOLUME,)),
    "a volume has room": Case({**WELL, **volume(160.0)}),
    "an entry was damaged before the first scrape": Case(
        {**WELL, **made("damaged_entries_total", since(95, 1.0), kind="tp")}, (DAMAGED,)
    ),
    "no entry is": Case({**WELL, **made("damaged_entries_total", 0.0, kind="tp")}),
    "records cannot be read": Case(
        {**WELL, **made("topic_log_unreadable_offsets_total", from_minute(95, 0, 2))}, (UNREADABLE,)
    ),
    "an entry waits for an operator": Case(
        {**WELL, **made("quarantined_entries", 1.0, service="group_coordinator")}, (QUARANTINE,)
    ),
    "none does": Case({**WELL, **made("quarantined_entries", 0.0, service="group_coordinator")}),
    "a shard is not served": Case(
        {**WELL, **made("shards", 1.0, service="group_coordinator", state="failed")}, (FAILED,)
    ),
    "all shards are": Case({**WELL, **made("shards", 4.0, service="group_coordinator", state="active")}),
    "dead letters wait": Case(
        {**WELL, **made("share_group_dead_letters_oldest_age_seconds", 400.0, group="g")}, (WAIT,)
    ),
    "they wait for a moment": Case({**WELL, **made("share_group_dead_letters_oldest_age_seconds", 40.0, group="g")}),
}  # fmt: skip


@pytest.mark.rule("PL-956")
def test_an_alert_fires_where_it_should_and_only_there(tmp_path: Path) -> None:
    cases = {name: (case.series, case.minute, case.fires) for name, case in CASES.items()}
    assert_each_fires(tmp_path, RULES, cases)
