"""`sharegroups dlq list`: its whole output, and the number of dead letters per kind."""

from __future__ import annotations

import json

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import TOO_OFTEN, copy_of, store
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

from .conftest import DLQ, T0


@pytest.mark.rule("CT-120", "CT-123")
def test_the_transcript(letters: FakeCluster) -> None:
    check(
        "dlq-list",
        [
            f"dlq list --topic {DLQ}",
            f"dlq list --topic {DLQ}:1 --limit 1 --output json",
            "dlq list --group h",
            f"dlq list --topic {DLQ} --summary",
            "dlq list --group g --summary --output json",
            f"dlq list --topic {DLQ} --origin orders:3",
            f"dlq list --topic {DLQ} --origin ordres",
            f"dlq list --topic {DLQ} --cause threshld --summary",
            f"dlq list --topic {DLQ} --reason refusederror --summary",
            f"dlq list --topic {DLQ} --reason refused-error",
            "dlq list --topic orders",
            "dlq list --topic dlq.order",
            f"dlq list --topic {DLQ}:2",
            "dlq list --group gg",
            "dlq list",
            f"dlq list --topic {DLQ} --since yesterday",
            f"dlq list --topic {DLQ} --since 2h --until 3h",
        ],
    )


@pytest.mark.rule("CT-123", "CT-143")
def test_a_summary_groups_by_what_members_said(queue: FakeCluster) -> None:
    for number, reason in enumerate((b"db down\n at 1", b"db down\n at 2", None, b"no address", b"db down")):
        store(queue, DLQ, copy_of(number, reason=reason), copy_of(number, group="h", reason=reason), at_ms=T0)
    result = sharegroups("dlq", "list", "--topic", DLQ, "--summary", "--group", "g", "--output", "json")
    found = [(row["reason"], row["letters"]) for row in json.loads(result.stdout)]
    assert found == [("db down", 3), (None, 1), ("no address", 1)]


@pytest.mark.rule("CT-123")
def test_a_summary_is_bounded(queue: FakeCluster) -> None:
    for base in range(0, 1_200, 100):
        store(queue, DLQ, *(copy_of(0, group=f"g{base + number}") for number in range(100)), at_ms=T0)
    result = sharegroups("dlq", "list", "--topic", DLQ, "--summary", "--output", "json")
    rows = json.loads(result.stdout)
    assert (len(rows), rows[-1]["group"], rows[-1]["letters"]) == (1_001, "(others)", 200)
    assert rows[0] == {
        "group": "g0", "origin_topic": "orders", "cause": TOO_OFTEN.decode(), "reason": None,
        "letters": 1, "sent_back": 0, "not_known_whether_sent_back": 0, "duplicates": 0,
        "first_stored_ms": T0, "last_stored_ms": T0,
    }  # fmt: skip
