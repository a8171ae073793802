"""Setting the offsets of a group: shown first, then exactly that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed
from tests.unit.sharegroups.cli.groups.test_reset_offsets import altered

from .browser import OwnConsole, text_of
from .conftest import Open, lines_of


@pytest.fixture
def world(fake: FakeCluster) -> FakeCluster:
    """Group `g` has finished 3 of 8 records of `orders-0`, none of `orders-1`."""
    consumed(fake, "orders", 0, 3)
    consumed(fake, "orders", 1, 0)
    return fake


@pytest.mark.rule("CT-165", "CT-169")
def test_what_was_shown_is_set(world: FakeCluster, browser: OwnConsole, audit: Path) -> None:
    shown = browser.send(browser.get("/reset?group=g"), "/reset/plan", target="to-offset", offset="5").text
    assert "orders-0 3 5 orders-1 0 5" in text_of(shown)
    assert altered(world) == []
    done = browser.send(shown, "/reset/set")
    assert "orders-0 5 set orders-1 5 set" in text_of(done.text)
    assert altered(world) == [{("orders", 0): 5, ("orders", 1): 5}]
    begin, end = lines_of(audit)
    assert begin["action"] == "Set 2 offsets of group g: orders-0 to 5, orders-1 to 5"
    assert end["outcome"] == "2 set, 0 refused"


@pytest.mark.rule("CT-169")
@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ({"target": "to-earliest", "topics": "orders:0"}, "orders-0 3 0 orders"),
        ({"target": "to-latest", "topics": "orders:1"}, "orders-1 0 8"),
        ({"target": "to-current"}, "orders-0 3 3"),
        ({"target": "to-datetime", "time": "36500d", "topics": "orders:0"}, "orders-0 3 0"),
    ],
)
def test_targets(world: FakeCluster, browser: OwnConsole, fields: dict[str, Any], row: str) -> None:
    shown = browser.send(browser.get("/reset?group=g"), "/reset/plan", **fields).text
    assert row.removesuffix(" orders") in text_of(shown)


@pytest.mark.rule("CT-169")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "Where to?"),
        ({"target": "to-offset"}, "To which offset?"),
        ({"target": "to-offset", "offset": "-1"}, "expected a whole number"),
        ({"target": "to-datetime", "time": "yesterday"}, "is not a time"),
        ({"target": "to-latest", "topics": "order"}, "Topic 'order' does not exist. Did you mean 'orders'?"),
        ({"target": "to-latest", "topics": "orders:9"}, "do not exist"),
    ],
)
def test_what_cannot_be_set_is_refused(
    world: FakeCluster, browser: OwnConsole, fields: dict[str, Any], said: str
) -> None:
    refused = browser.send(browser.get("/reset?group=g"), "/reset/plan", status=400, **fields)
    assert said in text_of(refused.text)


@pytest.mark.rule("CT-169")
def test_a_group_with_members_is_left_alone(world: FakeCluster, browser: OwnConsole, audit: Path) -> None:
    shown = browser.send(browser.get("/reset?group=g"), "/reset/plan", target="to-latest").text
    world.add_member("m", "g")
    assert "stop its members first" in text_of(browser.get("/reset?group=g"))
    refused = browser.send(browser.get("/reset?group=g"), "/reset/plan", status=400, target="to-latest")
    assert "is not empty" in text_of(refused.text)
    late = browser.send(shown, "/reset/set", status=409)
    assert "NON_EMPTY_GROUP" in text_of(late.text)
    assert lines_of(audit)[-1]["outcome"].startswith("failed: ")


@pytest.mark.rule("CT-169")
def test_a_form_that_is_not_as_it_was_sent(world: FakeCluster, browser: OwnConsole, audit: Path) -> None:
    shown = browser.send(browser.get("/reset?group=g"), "/reset/plan", target="to-latest").text
    refused = browser.send(shown, "/reset/set", status=400, plan="orders,0,x")
    assert "the offset is 'x'" in text_of(refused.text)
    many = "\n".join(f"orders,{number},0" for number in range(5_001))
    assert "At most 5000" in text_of(browser.send(shown, "/reset/set", status=400, plan=many).text)
    assert not audit.read_text()


@pytest.mark.rule("CT-163")
def test_read_only_shows_a_plan_without_a_button(world: FakeCluster, opened: Open) -> None:
    browser = opened(read_only=True)
    shown = browser.send(browser.get("/reset?group=g"), "/reset/plan", target="to-latest").text
    assert "so it cannot be done here" in shown
    assert "/reset/set" not in shown
