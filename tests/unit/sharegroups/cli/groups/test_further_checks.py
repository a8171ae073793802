"""The further checks that `groups explain` suggests: for finished records, and for a topic the group never used."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1 import explain_record_pb2 as pb
from kip932.ids import RESOURCE_GROUP
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups

Record = pb.ExplainRecordResponse.Record
LINE = "a line records_archived of t-0 in its leader's log"


def _noted(fake: FakeCluster, *words: str, place: str = "t:0", **record: Any) -> list[str]:
    """Explain a record; return the notes about it from standard error."""
    topic, _, number = place.partition(":")
    fake.groups["g"] = None
    fake.explained[fake.partition(topic, int(number))] = pb.ExplainRecordResponse(
        start_offset=12, high_watermark=52, records=[Record(first_offset=3, last_offset=3, explanation="x", **record)]
    )
    result = sharegroups("groups", "explain", "--group", "g", "--topic", place, "--offset", "3", *words)
    assert result.exit_code == 0, result.output
    return result.stderr.splitlines()


@pytest.mark.rule("CT-110")
@pytest.mark.parametrize("state", [pb.RECORD_STATE_FINISHED, pb.RECORD_STATE_ARCHIVED])
def test_of_a_record_that_may_have_been_given_up(fake: FakeCluster, state: Any) -> None:
    (note,) = _noted(fake, state=state)
    assert LINE in note
    assert "Group g has no dead-letter topic" in note
    assert "dlq list" not in note
    fake.configs[RESOURCE_GROUP, "g"] = {"errors.deadletterqueue.topic.name": "dlq"}
    (note,) = _noted(fake, state=state)
    assert LINE in note
    assert "has a dead letter: sharegroups dlq list --group g --origin t:0;" in note
    assert _noted(fake, "--output", "json", state=state) == []


def test_of_others_nothing(fake: FakeCluster) -> None:
    assert _noted(fake, state=pb.RECORD_STATE_AVAILABLE, obstacle=pb.DELIVERY_OBSTACLE_NOT_FETCHED) == []


@pytest.mark.rule("CT-110")
def test_of_a_topic_that_the_group_never_used(fake: FakeCluster) -> None:
    fake.add_topic("order", 1)
    fake.add_topic("orders", 1)
    begun = {"state": pb.RECORD_STATE_AVAILABLE, "obstacle": pb.DELIVERY_OBSTACLE_NO_STATE}
    assert _noted(fake, place="order:0", **begun) == [], "it has used none"
    for topic in ("orders", "t"):
        fake.initialised.add(("g", fake.topics[topic][0]))
    assert _noted(fake, place="order:0", **begun) == [
        "Note: Group g never used order. Did you mean 'orders'? It has used: orders, t."
    ]
    assert _noted(fake, place="orders:0", **begun) == [], "another of its partitions has begun"


@pytest.mark.rule("CT-110")
def test_at_most_ten_topics_that_the_group_has_used_are_named(fake: FakeCluster) -> None:
    fake.add_topic("order", 1)
    for number in range(12):
        name = f"used-{number:02}"
        fake.add_topic(name, 1)
        fake.initialised.add(("g", fake.topics[name][0]))
    (note,) = _noted(fake, place="order:0", state=pb.RECORD_STATE_AVAILABLE, obstacle=pb.DELIVERY_OBSTACLE_NO_STATE)
    named = ", ".join(f"used-{number:02}" for number in range(10))
    assert note == f"Note: Group g never used order. It has used: {named} and 2 more."
