"""Dashboards and rules use only names that are exported (PM-38)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from share_metrics.gauges.gauges import Gauges
from share_metrics.ingest.job import Freshness

MONITORING: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "components" / "monitoring"
NAME: Final = re.compile(r"\bshare_group_\w+")
#: Metrics that the nodes serve: tests/integration/share_node/test_scrapes.py checks them at a node.
OF_NODES: Final = frozenset({"share_group_delayed_records", "share_group_delayed_total"})


def expressions() -> dict[str, str]:
    rules = yaml.safe_load((MONITORING / "history-rules.yaml").read_text())
    found = {rule["alert"]: rule["expr"] for group in rules["spec"]["groups"] for rule in group["rules"]}
    board = json.loads((MONITORING / "dashboards" / "share-groups.json").read_text())
    found |= {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }
    return found


@pytest.mark.rule("PM-38")
def test_every_expression_uses_an_exported_name() -> None:
    families = [*Gauges().collect(), *Freshness().collect()]
    exported = OF_NODES | {f"{one.name}_total" if one.type == "counter" else one.name for one in families}
    used = {name: set(NAME.findall(words)) for name, words in expressions().items()}
    assert all(used.values())
    assert {name: names - exported for name, names in used.items() if names - exported} == {}


@pytest.mark.rule("PM-38")
def test_there_is_a_rule_for_what_calls_for_an_operator() -> None:
    alerts = {"ShareGroupStalled", "ShareGroupLagGrows", "ShareGroupPoison", "ShareGroupHistoryBehind"}
    alerts |= {"ShareGroupHistoryStale", "ShareGroupHistoryGone"}
    assert alerts <= set(expressions())


@pytest.mark.rule("PM-38")
def test_panels_do_not_lie_on_each_other() -> None:
    board = json.loads((MONITORING / "dashboards" / "share-groups.json").read_text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
