"""The page of all groups."""

from __future__ import annotations

import pytest

from tests.support.fake_cluster.cluster import FakeCluster

from .browser import OwnConsole, text_of


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
