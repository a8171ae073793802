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


LOST: Final = labelled(alertname="ShareGroupHistoryLost", **WARNED)
BEHIND: Final = labelled(alertname="ShareGroupHistoryBehind", **WARNED)
STALE: Final = labelled(alertname="ShareGroupHistoryStale", kind="share_state", **WARNED)
GONE: Final = labelled(alertname="ShareGroupHistoryGone", severity="warning", **SCRAPED)


class Case(NamedTuple):
    """Series, and the alerts that fire at the given minute."""

    series: Series
    minute: int
    fires: tuple[Labels, ...] = ()


def away(before: float, after: float) -> Values:
    """A counter of an ingest that was down for an hour."""
    return lambda at: before if at < 24 else after if at >= 84 else None


def from_minute(minute: int, before: float, after: float) -> Values:
    return lambda at: after if at >= minute else before


CASES: Final = {
    "all is well": Case(ingest(), 90),
    "entries were lost": Case(ingest(lost=from_minute(80, 0, 7)), 90, (LOST,)),
    "they were lost before the first scrape": Case(
        {**ingest(lost=lambda at: 7.0 if at >= 80 else None)}, 90, (LOST,)
    ),
    "they were lost yesterday, and the ingest was away": Case(ingest(lost=away(7, 7)), 90),
    "they were lost while it was away": Case(ingest(lost=away(7, 9)), 90, (LOST,)),
    "they were lost while it was away and was reset": Case(ingest(lost=away(7, 2)), 90, (LOST,)),
    "the ingest is behind": Case(ingest(behind=200_000.0), 90, (BEHIND,)),
    "it hangs": Case(ingest(trigger=lambda at: 60.0 * min(at, 70)), 90, (STALE,)),
    "it hung, and goes on": Case(ingest(trigger=lambda at: 60.0 * (at if at > 85 else 9)), 90),
    "it does not answer": Case(ingest(up=from_minute(70, 1, 0)), 90, (GONE,)),
}  # fmt: skip


@pytest.mark.rule("PM-38")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_alert_fires_where_it_should_and_only_there(tmp_path: Path, case: Case) -> None:
    assert_fires(tmp_path, RULES, case.series, case.minute, case.fires)


@pytest.mark.rule("PM-38")
def test_an_ingest_whose_pod_is_not_there_at_all_is_missed(tmp_path: Path) -> None:
    """None of its series is left except those scraped in the previous week."""
    ended = {key: [value if at < 60 else None for at, value in enumerate(values)] for key, values in ingest().items()}
    assert_fires(tmp_path, RULES, ended, 80, [labelled(alertname="ShareGroupHistoryGone", **WARNED)])


def test_an_ingest_that_something_else_scrapes_is_not_missed_and_missed_when_it_ends(tmp_path: Path) -> None:
    """Its job name differs from that of our PodMonitor."""
    scraped = {
        (name, labels - {("job", SCRAPED["job"])} | {("job", "by-hand")}): values
        for (name, labels), values in ingest().items()
    }
    assert_fires(tmp_path, RULES, scraped, 80, [])
    ended = {key: [value if at < 60 else None for at, value in enumerate(values)] for key, values in scraped.items()}
    assert_fires(tmp_path, RULES, ended, 80, [labelled(alertname="ShareGroupHistoryGone", **WARNED)])
