"""The page of the Kafka listener: it lists what ApiVersions does, and each deviation of the specification."""

from __future__ import annotations

import re
from typing import Final

from kafka_listener.messages.apis import api
from kafka_listener.requests.table import HANDLERS
from shard_runtime.rpc.table import RPCS
from tests.packaging.test_tidy import ROOT
from tools.kafka_listener_page import DIFFERENCES, PAGE, Row, rows

_SPECIFICATION: Final = (ROOT / "docs/spec/kafka-listener.md").read_text(encoding="utf-8")
_SASL: Final = {"SaslHandshake", "SaslAuthenticate"}


def clauses() -> dict[str, str]:
    """Return the text of each rule, and of each of its clauses, by its id: KL-36, KL-35 (a)."""
    found, rule = {}, ""
    for line in _SPECIFICATION.splitlines():
        if head := re.match(r"- \*\*(KL-\d+)\*\*(.*)", line):
            rule = head[1]
            found[rule] = head[2]
        elif clause := re.match(r"  - (\([a-z]\))(.*)", line):
            found[f"{rule} {clause[1]}"] = clause[2]
    return found


def test_the_page_has_every_api_that_is_offered() -> None:
    found = {row.name: row for row in rows()}
    assert found.keys() == {row.api for row in HANDLERS.values()} | {"ApiVersions"} | _SASL
    assert found["Produce"] == Row(0, "Produce", 0, 13, ("ProduceStream",))
    page = PAGE.read_text(encoding="utf-8")
    for row in found.values():
        assert row.key == api(row.name).key
        assert page.count(f"\n| {row.key} | {row.name} | ") == 1


def test_each_request_but_the_listeners_own_becomes_an_rpc() -> None:
    names = {row.name for row in RPCS.values()}
    for row in rows():
        assert set(row.rpcs) <= names
        assert bool(row.rpcs) == (row.name not in _SASL | {"ApiVersions"}), row.name


def test_the_page_names_each_deviation_of_the_specification_and_no_rules() -> None:
    known = clauses()
    assert len(known) > 100
    deviations = {rule for rule, text in known.items() if "[deviation" in text}
    named = {each.rule for each in DIFFERENCES}
    assert sorted(deviations - named) == [], "add a Difference to tools/kafka_listener_page.py"
    assert sorted(named - known.keys()) == []
    page = PAGE.read_text(encoding="utf-8")
    assert [each.text for each in DIFFERENCES if each.text not in page] == []
    assert re.findall(r"\b[A-Z]{2}-\d+", page) == []


def test_a_difference_concerns_apis_that_are_offered() -> None:
    offered = {row.name for row in rows()}
    assert {name for each in DIFFERENCES for name in each.apis} <= offered
