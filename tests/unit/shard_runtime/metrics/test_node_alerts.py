"""Each alert on nodes fires exactly when it should, as Prometheus itself evaluates it (CM-227)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml

from tests.support.promtool import Labels, Series, assert_each_fires, labelled

RULES: Final = Path(__file__).parents[4] / "deploy/kubernetes/components/monitoring/rules.yaml"
NODES: Final = "sharegroups-nodes"
MINUTES: Final = 101
POD: Final = {"namespace": "ns", "job": "ns/sharegroups", "pod": "leader-0", "instance": "10.0.0.1:9464"}
OTHER: Final = POD | {"pod": "leader-1", "instance": "10.0.0.2:9464"}
DAY_S: Final = 86_400.0

Values = float | Callable[[int], float | None]


def made(name: str, values: Values, scraped: dict[str, str] = POD, **labels: str) -> Series:
    """One series, scraped once a minute: a constant value, or a function of the minute."""
    each = [values(at) if callable(values) else values for at in range(MINUTES)]
    return {(name, labelled(**labels, **scraped)): each}


#: Of a leader that does nothing unusual.
WELL: Final[Series] = {
    **made("process_resident_memory_bytes", 300.0),
    **made("sharegroups_memory_limit_bytes", 1_000.0),
    **made("sharegroups_rpc_in_flight_bytes", 10.0),
    **made("sharegroups_rpc_unfinished_bytes", 10.0),
    **made("sharegroups_rpc_in_flight_limit_bytes", 100.0),
    **made("sharegroups_rpc_throttled_calls_total", 7.0),
    **made("sharegroups_rpc_connections_cut_total", 7.0),
    **made("sharegroups_share_coordinator_fenced_requests_total", 7.0),
    **made("sharegroups_partitions_with_late_transactions", 0.0),
    **made("sharegroups_certificate_expiry_timestamp_seconds", 60 * DAY_S),
    **made("sharegroups_certificate_reload_failures_total", 2.0),
    **made("sharegroups_credentials_reload_failures_total", 2.0, what="tokens"),
    **made("sharegroups_partitions_led", 5.0),
    **made("sharegroups_share_group_rows_left_out", 0.0),
    **made("sharegroups_progress_rounds_total", lambda at: 6.0 * at),
}


def fires(alert: str, severity: str = "warning", pod: str = "leader-0") -> Labels:
    return labelled(alertname=alert, namespace="ns", severity=severity, **({"pod": pod} if pod else {}))


MEMORY: Final = fires("ShareGroupsNodeMemory")
CALLS: Final = fires("ShareGroupsCallMemory")
THROTTLED: Final = fires("ShareGroupsCallsThrottled")
CUT: Final = fires("ShareGroupsConnectionsCut")
FENCED: Final = fires("ShareGroupsWritesFenced", pod="")
LATE: Final = fires("ShareGroupsTransactionsLate", pod="")
ENDS: Final = fires("ShareGroupsCertificateEnds", "critical")
SECRETS: Final = fires("ShareGroupsSecretsUnusable")
ABSENT: Final = fires("ShareGroupsFiguresAbsent")


class Case(NamedTuple):
    """What differs from WELL, and the alerts that fire at the end."""

    series: Series
    fires: tuple[Labels, ...] = ()


def growing(at: int) -> float:
    return 10.0 * at


def once(minute: int) -> Values:
    """A counter that has grown by 3 in this minute."""
    return lambda at: 7.0 if at < minute else 10.0


def since(minute: int, value: float) -> Values:
    return lambda at: value if at >= minute else 0.0


def until(minute: int, value: float) -> Values:
    return lambda at: value if at < minute else None


CASES: Final = {
    "all is well": Case({}),
    "nothing is served": Case({key: [None] * MINUTES for key in WELL}),
    "memory nears its limit": Case(made("process_resident_memory_bytes", 950.0), (MEMORY,)),
    "it did for a moment": Case(made("process_resident_memory_bytes", lambda at: 950.0 if at == 98 else 300.0)),
    "another process has much memory": Case(
        made("process_resident_memory_bytes", 950.0, {"namespace": "ns", "pod": "another", "instance": "x:1"})
    ),
    "calls take what there is for them": Case(made("sharegroups_rpc_in_flight_bytes", 85.0), (CALLS,)),
    "halves of messages do": Case(made("sharegroups_rpc_unfinished_bytes", 85.0), (CALLS,)),
    "calls are throttled": Case(made("sharegroups_rpc_throttled_calls_total", growing), (THROTTLED,)),
    "some were": Case(made("sharegroups_rpc_throttled_calls_total", once(92))),
    "connections are cut": Case(made("sharegroups_rpc_connections_cut_total", growing), (CUT,)),
    "one is cut each five minutes": Case(
        made("sharegroups_rpc_connections_cut_total", lambda at: float(at // 5)), (CUT,)
    ),
    "one was cut": Case(made("sharegroups_rpc_connections_cut_total", once(92))),
    "requests are fenced": Case(made("sharegroups_share_coordinator_fenced_requests_total", growing), (FENCED,)),
    "some were, at a fail-over": Case(made("sharegroups_share_coordinator_fenced_requests_total", once(92))),
    "a transaction is late": Case(made("sharegroups_partitions_with_late_transactions", 1.0), (LATE,)),
    "one has been late for three minutes": Case(made("sharegroups_partitions_with_late_transactions", since(97, 1.0))),
    "a certificate ends soon": Case(made("sharegroups_certificate_expiry_timestamp_seconds", 6 * DAY_S), (ENDS,)),
    "it has ended": Case(made("sharegroups_certificate_expiry_timestamp_seconds", 60.0), (ENDS,)),
    "it ends in eight days": Case(made("sharegroups_certificate_expiry_timestamp_seconds", 8 * DAY_S)),
    "a new certificate cannot be used": Case(
        made("sharegroups_certificate_reload_failures_total", once(92)), (SECRETS,)
    ),
    "new tokens cannot": Case(
        made("sharegroups_credentials_reload_failures_total", once(92), what="tokens"), (SECRETS,)
    ),
    "some could not, two hours ago": Case(
        made("sharegroups_credentials_reload_failures_total", once(20), what="tokens")
    ),
    "a leader shows no figures": Case(made("sharegroups_share_group_rows_left_out", until(50, 0.0)), (ABSENT,)),
    "it computes them no longer": Case(
        made("sharegroups_progress_rounds_total", lambda at: 6.0 * min(at, 60)), (ABSENT,)
    ),
    "it has computed none for ten minutes": Case(
        made("sharegroups_progress_rounds_total", lambda at: 6.0 * min(at, 90))
    ),
    "it has begun five minutes ago": Case(
        {
            **made("sharegroups_share_group_rows_left_out", until(0, 0.0)),
            **made("sharegroups_partitions_led", lambda at: 5.0 if at >= 95 else None),
        }
    ),
    "another leader shows some": Case(
        {
            **made("sharegroups_share_group_rows_left_out", until(50, 0.0)),
            **made("sharegroups_share_group_rows_left_out", 0.0, OTHER),
        },
        (ABSENT,),
    ),
}  # fmt: skip


@pytest.mark.rule("CM-227")
def test_an_alert_fires_where_it_should_and_only_there(tmp_path: Path) -> None:
    cases = {name: ({**WELL, **case.series}, MINUTES - 1, case.fires) for name, case in CASES.items()}
    assert_each_fires(tmp_path, RULES, cases, only=NODES)


def test_each_alert_on_nodes_fires_in_a_case() -> None:
    fired = {name for case in CASES.values() for labels in case.fires for key, name in labels if key == "alertname"}
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["spec"]["groups"]
    assert [fired] == [{rule["alert"] for rule in group["rules"]} for group in groups if group["name"] == NODES]
