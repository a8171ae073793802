"""`groups describe --verbose` names the transaction that a read_committed group waits for."""

from __future__ import annotations

import json

import pytest

from kip932.api.v1 import explain_record_pb2 as pb
from kip932.errors import UnknownServerError
from kip932.ids import RESOURCE_GROUP
from sharegroups.cli.groups.describe import HELD_BACK_CHECKED_MAX
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce
from tests.unit.sharegroups.cli.conftest import sharegroups

VERBOSE = ("groups", "describe", "--group", "g", "--verbose")


@pytest.fixture
def kept(fake: FakeCluster) -> FakeCluster:
    """Group `g` reads committed records. In t-0, but not in t-1, it waits for a transaction that has been open since
    offset 2."""
    fake.configs[RESOURCE_GROUP, "g"] = {"share.isolation.level": "read_committed"}
    for number in (0, 1):
        produce(fake, 5, "t", number)
        consumed(fake, "t", number, 2)
        fake.explained[fake.partition("t", number)] = pb.ExplainRecordResponse(last_stable_offset=5)
    open_at_2 = fake.explained[fake.partition("t", 0)]
    open_at_2.last_stable_offset, open_at_2.stable_kept_by, open_at_2.stable_kept_ms = 2, "orders 7", 45_000
    return fake


@pytest.mark.rule("CT-134")
def test_the_transaction_that_a_group_waits_for_is_named(kept: FakeCluster) -> None:
    result = sharegroups(*VERBOSE)
    assert (result.exit_code, result.stderr) == (
        0,
        "Note: group 'g', t-0: records from offset 2 on wait for a transaction, that of transactional id 'orders 7', "
        "open for 45.0 s. See: sharegroups transactions describe --transactional-id 'orders 7'\n",
    )
    (reported,) = json.loads(sharegroups(*VERBOSE, "--output", "json").stdout)
    assert reported["waits_for_transactions"] == [
        {"topic": "t", "partition": 0, "last_stable_offset": 2, "transactional_id": "orders 7", "open_ms": 45_000}
    ]


@pytest.mark.rule("CT-134")
def test_no_node_is_asked_where_nothing_can_wait(kept: FakeCluster) -> None:
    assert sharegroups(*VERBOSE[:-1]).stderr == ""
    assert "waits_for_transactions" not in sharegroups(*VERBOSE[:-1], "--output", "json").stdout
    kept.configs[RESOURCE_GROUP, "g"] = {"share.isolation.level": "read_uncommitted"}
    assert sharegroups(*VERBOSE).stderr == ""
    assert kept.questions == []


@pytest.mark.rule("CT-134")
def test_a_leader_that_does_not_answer_takes_only_the_hint_away(kept: FakeCluster) -> None:
    usual = sharegroups(*VERBOSE)
    kept.errors["explain_record"].extend([UnknownServerError.code] * 2)
    result = sharegroups(*VERBOSE)
    assert (result.exit_code, result.stdout, result.stderr) == (0, usual.stdout, "")


@pytest.mark.rule("CT-134")
def test_a_bounded_number_of_partitions_is_checked(kept: FakeCluster) -> None:
    count = HELD_BACK_CHECKED_MAX + 3
    kept.add_topic("wide", count)
    for number in range(count):
        produce(kept, 2, "wide", number)
        consumed(kept, "wide", number, 1)
        kept.explained[kept.partition("wide", number)] = pb.ExplainRecordResponse(last_stable_offset=2)
    assert sharegroups(*VERBOSE).exit_code == 0
    assert len(kept.questions) == HELD_BACK_CHECKED_MAX
