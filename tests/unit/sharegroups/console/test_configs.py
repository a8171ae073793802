"""Configs: shown, and changed after the change was shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kip932.ids import RESOURCE_GROUP, RESOURCE_TOPIC
from tests.support.fake_cluster.cluster import FakeCluster

from .browser import OwnConsole, text_of
from .conftest import Open, lines_of

PAGE = "/configs?topic=orders&name=retention.ms"


@pytest.mark.rule("CT-165", "CT-169")
def test_a_change_is_checked_shown_and_made(browser: OwnConsole, fake: FakeCluster, audit: Path) -> None:
    shown = browser.send(browser.get(PAGE), "/configs/change", value="60000").text
    assert "The nodes accept this change; it is not made yet." in text_of(shown)
    assert "retention.ms" not in fake.configs.get((RESOURCE_TOPIC, "orders"), {})
    done = browser.send(shown, "/configs/change")
    assert "retention.ms was changed." in text_of(done.text)
    assert fake.configs[RESOURCE_TOPIC, "orders"]["retention.ms"] == "60000"
    assert lines_of(audit)[0]["action"].startswith("Change config retention.ms of topic orders from ")
    assert lines_of(audit)[0]["action"].endswith("to '60000'")
    assert lines_of(audit)[1]["outcome"] == "done"
    clear = browser.send(browser.get(PAGE), "/configs/change", clear="yes", value="").text
    assert "removed, so that the next source decides" in clear
    assert "retention.ms was removed." in browser.send(clear, "/configs/change").text
    assert "retention.ms" not in fake.configs[RESOURCE_TOPIC, "orders"]


@pytest.mark.rule("CT-169")
def test_a_value_that_changed_meanwhile_is_not_overwritten(browser: OwnConsole, fake: FakeCluster, audit: Path) -> None:
    shown = browser.send(browser.get(PAGE), "/configs/change", value="60000").text
    fake.configs[RESOURCE_TOPIC, "orders"] = {"retention.ms": "5"}
    refused = browser.send(shown, "/configs/change", status=409)
    assert "retention.ms was changed meanwhile, to '5'" in text_of(refused.text)
    assert fake.configs[RESOURCE_TOPIC, "orders"]["retention.ms"] == "5"
    assert not audit.read_text()


@pytest.mark.rule("CT-169")
def test_what_cannot_be_changed_is_refused(browser: OwnConsole, fake: FakeCluster, audit: Path) -> None:
    page = browser.get(PAGE)
    assert browser.send(page, "/configs/change", status=400, value="x" * 10_001)
    secret = page.partition('name="csrf" value="')[2].partition('"')[0]
    for address, said in {
        "/configs/change?topic=orders&name=retention.m": "is not a config of a topic. Did you mean 'retention.ms'?",
        "/configs/change?node=0&name=log.level": "in their settings files",
        "/configs/change?topic=orders": "does not say which name",
    }.items():
        refused = browser.post(address, csrf=secret, value="1")
        assert refused.status_code == 400
        assert said in text_of(refused.text)
    assert not audit.read_text()


@pytest.mark.rule("CT-169")
def test_a_group_and_a_node_are_shown(browser: OwnConsole, fake: FakeCluster) -> None:
    assert "errors.deadletterqueue.topic.name" in browser.get("/configs?group=g")
    page = browser.get("/configs?node=0")
    assert "/configs?" not in page.partition("<h1>")[2]
    assert fake.configs[RESOURCE_GROUP, "g"]


@pytest.mark.rule("CT-163")
def test_read_only_has_no_forms(opened: Open) -> None:
    page = opened(read_only=True).get(PAGE)
    assert "<form" not in page.partition("<h1>")[2]
