"""The page of what waits, and why."""

from __future__ import annotations

import pytest

from kip932.errors import UnsupportedVersionError
from sharegroups.admin import Admin
from sharegroups.share_progress import ProgressPage
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed

from .browser import OwnConsole, text_of


@pytest.mark.rule("CT-154", "CT-155", "CT-168")
def test_the_worst_is_first_with_why(fake: FakeCluster, browser: OwnConsole) -> None:
    consumed(fake, "orders", 0, 3)
    fake.log("orders", 1).states["h"] |= dict.fromkeys(range(7), ("acknowledged", "", 1))
    text = text_of(browser.get("/"))
    assert "g orders no member 5" in text
    assert text.index("g orders") < text.index("h orders")
    assert "h orders" not in text_of(browser.get("/?find=g"))


@pytest.mark.rule("CT-168")
def test_ten_thousand_groups_are_paged_and_found(fake: FakeCluster, browser: OwnConsole) -> None:
    for number in range(10_000):
        fake.groups[f"team-{number:04}"] = None
    text = text_of(browser.get("/"))
    assert "1 to 50 of 10,002" in text
    assert "team-0047" in text
    assert "team-0048" not in text
    last = text_of(browser.get("/?page=200"))
    assert "10,001 to 10,002 of 10,002" in last
    assert "team-9999" in last
    assert "team-0777" in text_of(browser.get("/?find=0777"))
    assert "There is no such group here" in text_of(browser.get("/?find=nothing"))


@pytest.mark.rule("CT-168")
def test_what_is_missing_is_said(browser: OwnConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "list_share_progress", lambda *_, **__: ProgressPage((), 7, ("node9:1",)))
    text = text_of(browser.get("/"))
    assert "Node node9:1 did not answer" in text
    assert "7 more rows, with less lag, are not here" in text

    def older(*_: object, **__: object) -> ProgressPage:
        raise UnsupportedVersionError("ListShareProgress")

    monkeypatch.setattr(Admin, "list_share_progress", older)
    text = text_of(browser.get("/"))
    assert "These nodes are of an older version" in text
    assert "g -" in text
