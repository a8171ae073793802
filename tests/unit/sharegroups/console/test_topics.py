"""The pages of topics, records and nodes."""

from __future__ import annotations

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import store

from .browser import OwnConsole, text_of


@pytest.mark.rule("CT-167")
def test_topics_and_two_thousand_partitions_are_paged(fake: FakeCluster, browser: OwnConsole) -> None:
    fake.add_topic("wide", 2_000)
    for number in range(60):
        fake.add_topic(f"t-{number:02}")
    assert "1 to 50 of 63" in text_of(browser.get("/topics"))
    assert "wide 2,000 0 configs" in text_of(browser.get("/topics?find=WID"))
    text = text_of(browser.get("/topic?topic=wide&page=19"))
    assert "1,901 to 2,000 of 2,000" in text
    assert "1999 node 0 0 0 0" in text


@pytest.mark.rule("CT-167")
def test_records_from_an_offset_on(browser: OwnConsole, fake: FakeCluster) -> None:
    fake.add_topic("many")
    store(fake, "many", *((None, b"v%d" % number, (), 1) for number in range(60)))
    first = browser.get("/records?topic=many")
    assert "v24" in text_of(first)
    assert "v25" not in text_of(first)
    assert "/records?topic=many&amp;partition=0&amp;offset=25" in first
    newest = text_of(browser.get("/records?topic=many&newest=1"))
    assert "v35" in newest
    assert "v59" in newest
    assert "Later" not in newest
    middle = browser.get("/records?topic=many&offset=30")
    assert "/records?topic=many&amp;partition=0&amp;offset=5" in middle
    outside = text_of(browser.get("/records?topic=many&offset=60", status=404))
    assert "many-0 has no offset 60; it has 0 to 59" in outside


@pytest.mark.rule("CT-167")
def test_a_record_in_full(browser: OwnConsole, fake: FakeCluster) -> None:
    fake.add_topic("one")
    store(fake, "one", (b"\xff\x01", b"<b>\x1b[31m\n" + b"x" * 300_000, [("h", None)], 1))
    page = browser.get("/record?topic=one&offset=0")
    text = text_of(page)
    assert "Key bytes, not UTF-8, 2 bytes ff01" in text
    assert "300,009 bytes, cut" in text
    assert "Header h null null" in text
    assert r"&lt;b&gt;\x1b[31m" in page
    assert len(page) < 300_000


@pytest.mark.rule("CT-167")
def test_what_is_not_there_is_named(browser: OwnConsole) -> None:
    assert "Topic order not found. Did you mean 'orders'?" in text_of(browser.get("/topic?topic=order", status=404))
    assert "not found" in text_of(browser.get("/records?topic=order", status=404))
    assert "does not exist" in text_of(browser.get("/records?topic=orders&partition=7", status=404))


@pytest.mark.rule("CT-168", "KL-121")
def test_nodes_with_what_they_lead(browser: OwnConsole, fake: FakeCluster) -> None:
    page = browser.get("/nodes")
    assert '<form method="get" action="/topic">' in page, "who leads a partition: two steps from here"
    assert '<a href="/nodes">node 0</a>' in browser.get("/topic?topic=orders")
    text = text_of(page)
    assert "0 node0:9000 -" in text
    fake.kafka_addresses[0] = "kafka.example:9092"
    assert "0 node0:9000 kafka.example:9092" in text_of(browser.get("/nodes"))
    fake.leaders[fake.partition("orders", 1)] = (9, 1)
    assert "1 partitions have no live leader: orders-1" in text_of(browser.get("/nodes"))
