"""The page of what fills the memory."""

from __future__ import annotations

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import store

from .browser import OwnConsole, text_of


@pytest.mark.rule("CT-167")
def test_the_largest_topics_come_first_with_what_the_store_has_left(browser: OwnConsole, fake: FakeCluster) -> None:
    fake.add_topic("<b>big", 2)
    store(fake, "<b>big", *((None, b"x" * 5_000, (), 1) for _ in range(3)))
    fake.store_memory = (600 << 20, 1 << 30)
    page = browser.get("/memory")
    text = text_of(page)
    assert "store 600 MiB 1.0 GiB 424 MiB (58% used)" in text
    assert text.index("<b>big 2 3 15 KiB ") < text.index(" orders 2 ")
    assert "<b>big" not in page
    assert "Topics by size" in page
    assert "orders" not in text_of(browser.get("/memory?find=BIG"))


@pytest.mark.rule("CT-167")
def test_many_topics_are_paged(browser: OwnConsole, fake: FakeCluster) -> None:
    for number in range(60):
        fake.add_topic(f"t-{number:02}")
    assert "1 to 50 of 6" in text_of(browser.get("/memory"))
    assert "51 to 6" in text_of(browser.get("/memory?page=1"))


@pytest.mark.rule("CT-167")
def test_a_store_without_a_limit_says_so(browser: OwnConsole, fake: FakeCluster) -> None:
    fake.store_memory = (600 << 20, 0)
    assert "store 600 MiB none what the machine has" in text_of(browser.get("/memory"))
    fake.topics.clear()
    assert "No topic has records here" in text_of(browser.get("/memory"))
