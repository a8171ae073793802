"""S-120 … S-124: which records go to the dead-letter queue, and what a dead letter contains."""

from __future__ import annotations

import time
import urllib.request
from collections import defaultdict

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.dead_letters.queues import (
    ACCEPT,
    COPY_CONFIG,
    REJECT,
    RELEASE,
    TOPIC_CONFIG,
    Queues,
    said,
    topic_id_of,
)
from tests.support.node import BOUND_S

CLIENT = "Offset rejected by client."
LIMIT = "Offset delivery count exceeded the threshold."


@pytest.mark.scenario("S-120")
@pytest.mark.rule("T9", "PL-901", "PL-904", "PL-909", "PL-914")
def test_rejected_records_go_to_the_queue_headers_only(queues: Queues, metrics_port: int) -> None:
    before_ms = time.time() * 1000
    queues.produce(5)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 5)
        found = queues.until_letters(5)
    assert [letter.value for letter in found] == [None] * 5
    assert [letter.key for letter in found] == [
        f"{queues.group}:{queues.topic}:0:{offset}".encode() for offset in range(5)
    ]
    assert [said(letter) for letter in found] == [
        {
            "topic": queues.topic,
            "partition": "0",
            "offset": str(offset),
            "group": queues.group,
            "delivery.count": "1",
            "message": CLIENT,
            "topic.id": topic_id_of(queues),
        }
        for offset in range(5)
    ]
    assert all(len(letter.headers) == 7 for letter in found)
    assert all(before_ms - 1_000 <= letter.timestamp_ms <= time.time() * 1000 + 1_000 for letter in found)
    queues.until_start(5)
    counted = scraped(metrics_port, queues.group)
    assert counted["sharegroups_share_group_dead_letters_written_total"] == 5
    assert 1 <= counted["sharegroups_share_group_dead_letter_produce_requests_total"] <= 5
    assert counted["sharegroups_share_group_dead_letter_failed_produce_requests_total"] == 0


def scraped(port: int, group: str) -> dict[str, float]:
    """Return the values of a group's dead-letter counters, by metric; 0 for those that do not exist yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND_S) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found: dict[str, float] = defaultdict(float)
    for family in families:
        for sample in family.samples:
            if sample.labels.get("group") == group:
                found[sample.name] += sample.value
    return found


@pytest.mark.scenario("S-121")
@pytest.mark.rule("PL-911")
def test_a_copy_keeps_key_value_headers_and_time_and_drops_forged_headers(queues: Queues) -> None:
    queues.configure(**{COPY_CONFIG: "true"})
    queues.produce(5)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 5)
        found = queues.until_letters(5)
    assert [(letter.key, letter.value) for letter in found] == [
        (f"k{number}".encode(), f"v{number}".encode()) for number in range(5)
    ]
    assert [letter.headers[:-7] for letter in found] == [(("trace", str(number).encode()),) for number in range(5)]
    assert [letter.timestamp_ms for letter in found] == [1_600_000_000_000 + number for number in range(5)]
    assert [said(letter)["topic"] for letter in found] == [queues.topic] * 5


@pytest.mark.scenario("S-122")
@pytest.mark.rule("T7", "PL-905")
def test_what_exceeds_the_delivery_limit_reaches_the_queue(queues: Queues) -> None:
    queues.configure(**{"share.delivery.count.limit": "2"})
    queues.produce(5)
    with queues.consumer() as consumer:
        seen = queues.settle(consumer, RELEASE, 10)
        found = queues.until_letters(5)
        assert len(consumer.poll(timeout=0.3)) == 0
    assert sorted(message.offset() for message in seen) == sorted([*range(5), *range(5)])
    assert sorted(int(said(letter)["offset"]) for letter in found) == list(range(5))
    assert {(said(letter)["delivery.count"], said(letter)["message"]) for letter in found} == {("2", LIMIT)}
    queues.until_start(5)


@pytest.mark.scenario("S-123")
def test_mixed_acknowledgement_types(queues: Queues) -> None:
    queues.configure(**{"share.delivery.count.limit": "2", COPY_CONFIG: "true"})
    queues.produce(6)
    kinds = (REJECT, RELEASE, ACCEPT)
    with queues.consumer() as consumer:
        queues.work(consumer, lambda message: kinds[message.offset() % 3], lambda: len(queues.letters()) >= 4)
        queues.until_start(6)
        found = queues.letters()
    assert sorted(int(said(letter)["offset"]) for letter in found) == [0, 1, 3, 4]
    assert {letter.value for letter in found} == {b"v0", b"v1", b"v3", b"v4"}
    assert {said(letter)["offset"]: said(letter)["message"] for letter in found} == {
        "0": CLIENT, "3": CLIENT, "1": LIMIT, "4": LIMIT,
    }  # fmt: skip


@pytest.mark.scenario("S-124")
@pytest.mark.rule("PL-901")
def test_switching_the_queue_off_at_run_time(queues: Queues) -> None:
    queues.produce(5)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 5)
        queues.until_letters(5)
        queues.configure(**{TOPIC_CONFIG: ""})
        queues.produce(5, 5)
        queues.settle(consumer, REJECT, 5)
        queues.until_start(10)
        assert [len(consumer.poll(timeout=0.2)) for _ in range(3)] == [0, 0, 0]
    assert len(queues.letters()) == 5
