"""Finds the original record of a dead letter, or the reason why it cannot be found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import bare, copy_of, store
from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import DLQ, T0


def shown(offset: int, *words: str) -> Any:
    result = sharegroups("dlq", "show", "--topic", f"{DLQ}:0", "--offset", str(offset), "--output", "json", *words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.rule("CT-124")
@pytest.mark.parametrize(
    ("topic", "partition", "offset", "said"),
    [
        ("nowhere", 0, 0, "nowhere has no partition 0, or there is no such topic any more"),
        ("orders", 7, 0, "orders has no partition 7, or there is no such topic any more"),
        ("orders", 0, 0, "orders-0 does not have offset 0 any more"),
        ("orders", 0, 2, "orders-0 has no record at offset 2"),
        ("orders", 0, 4, "the batch with offsets 3 to 4 cannot be read"),
        ("orders", 1, 0, "orders-1 has another record at offset 0, newer than the letter: the topic was created again"),
    ],
)
def test_why_an_origin_is_not_shown(queue: FakeCluster, topic: str, partition: int, offset: int, said: str) -> None:
    log = queue.log("orders")
    store(queue, "orders", copy_of(0), copy_of(0))
    log.append(b"", 1, is_control=True)
    log.append(b"\xff", 2)
    log.delete_before(1)
    store(queue, "orders", copy_of(0), partition=1, at_ms=T0 + 60_000)
    store(queue, DLQ, bare(offset, topic, partition), at_ms=T0)
    found = shown(0)
    assert found["origin_record"] is None
    assert said in found["origin_missing"]


@pytest.mark.rule("CT-125")
def test_clocks_of_two_nodes_may_differ_by_less_than_a_minute(queue: FakeCluster) -> None:
    store(queue, "orders", (None, b"mine", [], 1), at_ms=T0 + 59_999)
    store(queue, DLQ, bare(0), at_ms=T0)
    assert shown(0)["origin_record"]["value"] == "mine"
