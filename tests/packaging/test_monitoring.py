"""Dashboards and rules use only metrics and labels that are exported (PM-38)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.packaging.metrics_listed import OUTSIDE, grouped, listed, selectors

MONITORING: Final = Path(__file__).parents[2] / "deploy" / "kubernetes" / "components" / "monitoring"
RULES: Final = ("rules.yaml", "history-rules.yaml")
#: Labels that Prometheus adds to what it scrapes, and that of the buckets of histograms.
SCRAPED: Final = frozenset({"namespace", "job", "instance", "pod", "le"})
#: Labels of what others export.
OF_OTHERS: Final = frozenset({"persistentvolumeclaim", "cronjob"})


#: Alerts on the ingest itself may use its metrics; what groups do is known without it.
ON_THE_INGEST: Final = re.compile("ShareGroupHistory")


def board() -> Any:
    return json.loads((MONITORING / "dashboards" / "share-groups.json").read_text(encoding="utf-8"))


def panels() -> list[dict[str, Any]]:
    """Return the panels that draw something, without the headings between them."""
    return [panel for panel in board()["panels"] if panel["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    groups = [
        group
        for name in RULES
        for group in yaml.safe_load((MONITORING / name).read_text(encoding="utf-8"))["spec"]["groups"]
    ]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> dict[str, str]:
    """Return each expression of the alerts and of the board, by where it is."""
    found = {f"{number} {rule['alert']}": rule["expr"] for number, rule in enumerate(alerts())}
    for panel in panels():
        found |= {f"{panel['title']} {target['refId']}": target["expr"] for target in panel["targets"]}
    return found


def remarks(expression: str) -> list[str]:
    """Return what an expression asks for that nothing exports."""
    known = {series: row.labels for row in listed() for series in row.series}
    found, labels = [], set(SCRAPED)
    for name, asked in selectors(expression):
        if OUTSIDE.match(name):
            labels |= OF_OTHERS
        elif name not in known:
            found.append(f"no metric {name}")
        else:
            labels |= known[name]
            found += [f"{name} has no label {label}" for label in sorted(asked - known[name] - SCRAPED)]
    return found + [f"no metric here has the label {label}" for label in sorted(grouped(expression) - labels)]


@pytest.mark.rule("PM-38")
def test_every_expression_uses_metrics_and_labels_that_are_exported() -> None:
    found = {place: remarks(expression) for place, expression in expressions().items()}
    assert len(found) >= 40, "the alerts and the panels"
    assert {place: wrong for place, wrong in found.items() if wrong} == {}


def test_the_metrics_and_labels_of_an_expression() -> None:
    words = 'histogram_quantile(0.99, sum by (namespace, le) (rate(a_bucket{x="y"}[5m]))) > 0.5 and on (pod) b == 0'
    assert set(selectors(words)) == {("a_bucket", frozenset({"x"})), ("b", frozenset())}
    assert grouped(words) == {"namespace", "le", "pod"}


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ('sum by (namespace) (sharegroups_shards{state="failed"}) > 0', []),
        ("sum by (le) (rate(sharegroups_batch_flush_time_seconds_bucket[5m]))", []),
        ("num_partitions > 0", ["no metric num_partitions"]),
        ("rate(sharegroups_unknown_entries[5m])", ["no metric sharegroups_unknown_entries"]),
        ("sharegroups_batch_flush_time_seconds > 1", ["no metric sharegroups_batch_flush_time_seconds"]),
        ('sharegroups_shards{role="a"} > 0', ["sharegroups_shards has no label role"]),
        ("sum by (group) (sharegroups_shards) > 0", ["no metric here has the label group"]),
        ("sharegroups_shards > on (topic) group_left () up", ["no metric here has the label topic"]),
    ],
)
def test_what_nothing_exports_is_found(expression: str, said: list[str]) -> None:
    assert remarks(expression) == said


@pytest.mark.rule("PM-38")
def test_the_variables_of_the_board_and_the_words_of_panels_and_alerts_use_labels_that_there_are() -> None:
    known = {series: row.labels for row in listed() for series in row.series}
    asked = [one["query"] for one in board()["templating"]["list"] if one["type"] == "query"]
    pairs = [match.groups() for match in re.finditer(r"label_values\((\w+), (\w+)\)", " ".join(asked))]
    assert len(pairs) == len(asked) > 0
    assert [(name, label) for name, label in pairs if label not in known.get(name, ())] == []
    for panel in panels():
        for target in panel["targets"]:
            words = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target.get("legendFormat", "")))
            assert words <= grouped(target["expr"]), panel["title"]
    for rule in alerts():
        words = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        kept = grouped(rule["expr"]) | ({"pod", "persistentvolumeclaim"} if "by (" not in rule["expr"] else set())
        assert words <= kept, rule["alert"]


@pytest.mark.rule("PM-38")
def test_there_is_a_rule_for_what_calls_for_an_operator() -> None:
    wanted = {"ShareGroupStalled", "ShareGroupAbandoned", "ShareGroupLagGrows", "ShareGroupRecordsArchived"}
    wanted |= {"ShareGroupHistoryBehind", "ShareGroupHistoryStale", "ShareGroupHistoryGone"}
    assert wanted <= {rule["alert"] for rule in alerts()}


@pytest.mark.rule("PL-956")
def test_what_groups_do_raises_alerts_without_the_ingest() -> None:
    needs = {rule["alert"] for rule in alerts() if "sharegroups_ingest_" in rule["expr"]}
    assert {name for name in needs if not ON_THE_INGEST.match(name)} == set()


def first_commands() -> list[tuple[str, str, str]]:
    """Return the rows of the page on alerts, one for each alert: its name, its first command, what that shows."""
    page = (MONITORING.parents[3] / "docs" / "howto" / "alerts.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| ShareGroup")]
    assert all(re.fullmatch(r" `[^`]+` ", command) for _, command, _ in rows)
    return [(name.strip(), command.strip(" `"), shows) for names, command, shows in rows for name in names.split(",")]


def test_every_alert_has_a_first_command() -> None:
    assert sorted(name for name, _, _ in first_commands()) == sorted({rule["alert"] for rule in alerts()})


@pytest.mark.rule("PM-38")
def test_panels_do_not_lie_on_each_other() -> None:
    panels = board()["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in panels}) == len(places)


#: Ranges that are long enough for a rate: several scrapes, and several rounds in which figures are computed.
RANGE: Final = re.compile(r"\[(?:\$__rate_interval|(?:[5-9]|[1-9]\d)m|\d+[hd]|30m:1m)\]$")


@pytest.mark.rule("CM-228")
def test_no_rate_or_increase_is_over_a_range_as_short_as_the_time_between_two_samples() -> None:
    ranges = {place: re.findall(r"\[[^\]]*\]", expression) for place, expression in expressions().items()}
    assert sum(map(len, ranges.values())) > 20
    assert {place: each for place, each in ranges.items() if not all(map(RANGE.match, each))} == {}
    of_history = [panel for panel in panels() if "sharegroups_ingest_" in str(panel["targets"])]
    assert len(of_history) == 8
    assert [panel["title"] for panel in of_history if panel.get("interval") != "2m"] == [], "it changes once a minute"


@pytest.mark.rule("CM-228")
def test_the_board_shows_what_each_part_of_a_cluster_does() -> None:
    shown = {name for panel in panels() for target in panel["targets"] for name, _ in selectors(target["expr"])}
    assert shown >= {
        "process_resident_memory_bytes",
        "sharegroups_batch_flush_time_seconds_bucket",
        "sharegroups_partitions_led",
        "sharegroups_rpc_in_flight_bytes",
        "sharegroups_share_group_dead_letters_waiting",
        "sharegroups_share_group_dead_letters_written_total",
        "sharegroups_share_group_records_in_flight",
        "sharegroups_store_memory_used_bytes",
        "sharegroups_store_replicas_connected",
    }
    widths = {"sharegroups_ingest_share_group_in_flight_width", "sharegroups_share_partition_in_flight_messages"}
    assert shown & widths == set(), "the width of a window is not what members hold"


@pytest.mark.rule("CM-228")
def test_titles_and_headings_of_the_board_are_of_their_own() -> None:
    titles = [panel["title"] for panel in board()["panels"]]
    assert len(set(titles)) == len(titles)
    assert [panel["title"] for panel in board()["panels"] if panel["type"] == "row"] == [
        "Groups", "Nodes", "Store", "History, of the metrics pipeline",
    ]  # fmt: skip
