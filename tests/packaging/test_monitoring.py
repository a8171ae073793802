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


#: Alerts on the ingest itself may use its metrics; what groups do is known without it.
ON_THE_INGEST: Final = re.compile("ShareGroupHistory")


def board() -> Any:
    return json.loads((MONITORING / "dashboards" / "share-groups.json").read_text(encoding="utf-8"))


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
    for panel in board()["panels"]:
        found |= {f"{panel['title']} {target['refId']}": target["expr"] for target in panel["targets"]}
    return found


def remarks(expression: str) -> list[str]:
    """Return what an expression asks for that nothing exports."""
    known = {series: row.labels for row in listed() for series in row.series}
    found, labels = [], set(SCRAPED)
    for name, asked in selectors(expression):
        if OUTSIDE.match(name):
            labels |= {"persistentvolumeclaim"}
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
    for panel in board()["panels"]:
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
