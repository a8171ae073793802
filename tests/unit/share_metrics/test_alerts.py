"""Each alert of the history fires exactly when it should, as Prometheus itself evaluates it (PM-38)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.promtool import SCRAPED, Labels, Series, assert_fires, labelled

RULES: Final = Path(__file__).parents[3] / "deploy/kubernetes/components/monitoring/history-rules.yaml"
MINUTES: Final = 91
WARNED: Final = {"namespace": "ns", "severity": "warning"}
STREAM: Final = {"stream": "{sgs:0}:log"}

Values = float | Callable[[int], float | None]


def made(name: str, values: Values, **labels: str) -> Series:
    """One series, scraped once a minute: a constant value, or a function of the minute."""
    each: Sequence[float | None] = [values(at) if callable(values) else values for at in range(MINUTES)]
    return {(name, labelled(**labels, **SCRAPED)): each}


def partition(lag: Values | None, finished: Values, index: int = 0) -> Series:
    """Gauges of one share-partition of group g; a lag of None is unknown."""
    of = {"group": "g", "topic": "t", "partition": str(index)}
    unknown = made("sharegroups_ingest_share_group_lag_unknown", float(lag is None), group="g", topic="t")
    return {
        **made("sharegroups_ingest_share_group_finished_offset", finished, **of),
        **unknown,
        **({} if lag is None else made("sharegroups_ingest_share_group_lag", lag, **of)),
    }


def members(count: Values) -> Series:
    return made("sharegroups_ingest_share_group_members", count, group="g")


def ingest(
    behind: Values = 0.0, lost: Values = 0.0, trigger: Values = lambda at: 60.0 * at, up: Values = 1.0
) -> Series:
    """An ingest's own metrics; the defaults are those of a healthy one."""
    scraped = {("up", frozenset(SCRAPED.items())): [up(at) if callable(up) else up for at in range(MINUTES)]}
    return {
        **scraped,
        **made("sharegroups_ingest_entries_behind", behind, **STREAM),
        **made("sharegroups_ingest_lost_entries_total", lost, **STREAM),
        **made("sharegroups_ingest_last_trigger_timestamp_seconds", trigger, kind="share_state"),
    }


def moving(at: int) -> float:
    return 1_000.0 * at


def of_group(alert: str, severity: str = "warning", **labels: str) -> Labels:
    return labelled(alertname=alert, namespace="ns", group="g", severity=severity, **labels)


#: A leader's gauge that the rules compare with the ingest's lag.
DELAYED: Final = "sharegroups_share_group_delayed_records"
STALLED: Final = of_group("ShareGroupStalled", "critical", topic="t")
ABANDONED: Final = of_group("ShareGroupAbandoned")
GROWS: Final = of_group("ShareGroupLagGrows", topic="t")
UNKNOWN: Final = of_group("ShareGroupLagUnknown", topic="t")
POISON: Final = of_group("ShareGroupPoison", topic="t")
LOST: Final = labelled(alertname="ShareGroupHistoryLost", **WARNED)
BEHIND: Final = labelled(alertname="ShareGroupHistoryBehind", **WARNED)
STALE: Final = labelled(alertname="ShareGroupHistoryStale", kind="share_state", **WARNED)
GONE: Final = labelled(alertname="ShareGroupHistoryGone", severity="warning", **SCRAPED)


class Case(NamedTuple):
    """Series, and the alerts that fire at the given minute."""

    series: Series
    minute: int
    fires: tuple[Labels, ...] = ()


def poison(values: Values, **scraped: str) -> Series:
    series = made("sharegroups_ingest_share_group_poison_sightings_total", values, group="g", topic="t", partition="0")
    return {(name, labelled(**dict(labels) | scraped)): each for (name, labels), each in series.items()}


def away(before: float, after: float) -> Values:
    """A counter of an ingest that was down for an hour."""
    return lambda at: before if at < 24 else after if at >= 84 else None


def of_two_pods(before: float, after: float) -> Series:
    """A counter that is continued by a second pod."""
    later = poison(lambda at: after if at >= 84 else None, pod="pipeline-1")
    return {**poison(lambda at: before if at < 84 else None), **later}


def of_three_pods(after: float) -> Series:
    """The second pod's counter restarts at 0, and after a pause the third pod continues."""
    return {
        **poison(lambda at: 100.0 if at < 10 else None),
        **poison(lambda at: 0.0 if 12 <= at < 50 else None, pod="pipeline-1"),
        **poison(lambda at: after if at >= 84 else None, pod="pipeline-2"),
    }


def from_minute(minute: int, before: float, after: float) -> Values:
    return lambda at: after if at >= minute else before


WELL: Final = {**ingest(), **members(2.0)}
CASES: Final = {
    "a group that keeps up": Case({**WELL, **partition(0.0, moving)}, 90),
    "one with lag that gets on": Case({**WELL, **partition(50.0, moving)}, 90),
    "one that was done, and is idle": Case({**WELL, **partition(0.0, 700.0)}, 90),
    "a record that has just come behind it": Case({**WELL, **partition(from_minute(60, 0, 1), 700.0)}, 64),
    "five minutes later": Case({**WELL, **partition(from_minute(60, 0, 1), 700.0)}, 66, (STALLED,)),
    "one partition of three": Case(
        {**WELL, **partition(5.0, 700.0), **partition(5.0, moving, 1), **partition(0.0, moving, 2)}, 90, (STALLED,)
    ),
    "all of its lag waits for delays": Case(
        {**WELL, **partition(5.0, 700.0), **made(DELAYED, 5.0, group="g")}, 90
    ),
    "a part of its lag waits for delays": Case(
        {**WELL, **partition(5.0, 700.0), **made(DELAYED, 4.0, group="g")}, 90, (STALLED,)
    ),
    "the members have left": Case({**ingest(), **members(0.0), **partition(5_000.0, 700.0)}, 90, (ABANDONED,)),
    "they have left a moment ago": Case({**ingest(), **members(from_minute(80, 1, 0)), **partition(5.0, moving)}, 90),
    "they have left, and all is done": Case({**ingest(), **members(0.0), **partition(0.0, 700.0)}, 90),
    "its lag is unknown": Case({**WELL, **partition(None, 700.0)}, 90, (UNKNOWN,)),
    "its lag grows": Case({**WELL, **partition(lambda at: 100.0 * at, moving)}, 90, (GROWS,)),
    "its lag is large, and shrinks": Case({**WELL, **partition(lambda at: 99_000.0 - 100 * at, moving)}, 90),
    "its lag grows, and is small": Case({**WELL, **partition(lambda at: 1.0 * at, moving)}, 90),
    "a record reaches the limit": Case(
        {**WELL, **partition(0.0, moving), **poison(from_minute(85, 3, 4))}, 90, (POISON,)
    ),
    "one did before the first scrape": Case(
        {**WELL, **partition(0.0, moving), **poison(lambda at: 1.0 if at >= 85 else None)}, 90, (POISON,)
    ),
    "one did an hour ago": Case({**WELL, **partition(0.0, moving), **poison(from_minute(20, 3, 4))}, 90),
    "nothing failed while the ingest was away": Case({**WELL, **partition(0.0, moving), **poison(away(4, 4))}, 90),
    "one did while it was away": Case({**WELL, **partition(0.0, moving), **poison(away(4, 5))}, 90, (POISON,)),
    "another pod goes on": Case({**WELL, **partition(0.0, moving), **of_two_pods(4, 4)}, 90),
    "one failed before it did": Case({**WELL, **partition(0.0, moving), **of_two_pods(4, 5)}, 90, (POISON,)),
    "a counter is reset": Case({**WELL, **partition(0.0, moving), **poison(from_minute(85, 4, 0))}, 90),
    "it is reset, and one failed": Case(
        {**WELL, **partition(0.0, moving), **poison(lambda at: 4.0 if at < 84 else float(at >= 86))}, 90, (POISON,)
    ),
    "it is reset while the ingest is away, and three failed": Case(
        {**WELL, **partition(0.0, moving), **poison(away(100, 3))}, 90, (POISON,)
    ),
    "it is reset while the ingest is away, and none failed": Case(
        {**WELL, **partition(0.0, moving), **poison(away(100, 0))}, 90
    ),
    "it was reset in a pod before this one": Case(
        {**WELL, **partition(0.0, moving), **of_three_pods(3)}, 90, (POISON,)
    ),
    "it did, and none failed": Case({**WELL, **partition(0.0, moving), **of_three_pods(0)}, 90),
    "entries were lost": Case({**members(2.0), **ingest(lost=from_minute(80, 0, 7))}, 90, (LOST,)),
    "they were lost before the first scrape": Case(
        {**members(2.0), **ingest(lost=lambda at: 7.0 if at >= 80 else None)}, 90, (LOST,)
    ),
    "they were lost yesterday, and the ingest was away": Case({**members(2.0), **ingest(lost=away(7, 7))}, 90),
    "they were lost while it was away": Case({**members(2.0), **ingest(lost=away(7, 9))}, 90, (LOST,)),
    "they were lost while it was away and was reset": Case({**members(2.0), **ingest(lost=away(7, 2))}, 90, (LOST,)),
    "the ingest is behind": Case({**members(2.0), **ingest(behind=200_000.0)}, 90, (BEHIND,)),
    "it hangs": Case({**members(2.0), **ingest(trigger=lambda at: 60.0 * min(at, 70))}, 90, (STALE,)),
    "it hung, and goes on": Case({**members(2.0), **ingest(trigger=lambda at: 60.0 * (at if at > 85 else 9))}, 90),
    "it does not answer": Case({**members(2.0), **ingest(up=from_minute(70, 1, 0))}, 90, (GONE,)),
}  # fmt: skip


@pytest.mark.rule("PM-38")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_alert_fires_where_it_should_and_only_there(tmp_path: Path, case: Case) -> None:
    assert_fires(tmp_path, RULES, case.series, case.minute, case.fires)


@pytest.mark.rule("PM-38")
def test_an_ingest_whose_pod_is_not_there_at_all_is_missed(tmp_path: Path) -> None:
    """None of its series is left except those scraped in the previous week."""
    ended = {
        key: [value if at < 60 else None for at, value in enumerate(values)]
        for key, values in {**ingest(), **members(1.0)}.items()
    }
    assert_fires(tmp_path, RULES, ended, 80, [labelled(alertname="ShareGroupHistoryGone", **WARNED)])


def test_an_ingest_that_something_else_scrapes_is_not_missed_and_missed_when_it_ends(tmp_path: Path) -> None:
    """Its job name differs from that of our PodMonitor."""
    scraped = {
        (name, labels - {("job", SCRAPED["job"])} | {("job", "by-hand")}): values
        for (name, labels), values in {**ingest(), **members(1.0)}.items()
    }
    assert_fires(tmp_path, RULES, scraped, 80, [])
    ended = {key: [value if at < 60 else None for at, value in enumerate(values)] for key, values in scraped.items()}
    assert_fires(tmp_path, RULES, ended, 80, [labelled(alertname="ShareGroupHistoryGone", **WARNED)])
