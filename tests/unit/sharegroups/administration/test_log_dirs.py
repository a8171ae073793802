"""describe_log_dirs of the admin client: whom it asks, what it makes of answers, and of nodes that give none."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.errors import (
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    KafkaError,
    KafkaStorageError,
    NetworkError,
    UnsupportedVersionError,
)
from kip932.ids import TopicPartition
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.admin_values import LogDirDescription, ReplicaInfo
from sharegroups.aio import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.unit.sharegroups.aio.hooked import HookedTransport

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
METHOD = "DescribeLogDirs"


class Answers(HookedTransport):
    """A transport that changes the answers to DescribeLogDirs, or raises instead, by address."""

    changes: dict[str, Any]

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        response = await super().call(address, method, request, timeout_s)
        change = self.changes.get(address) if method.name == METHOD else None
        if isinstance(change, Exception):
            raise change
        if change is not None:
            change(response)
        return response


def admin_of(fake: FakeCluster, **changes: Any) -> Admin:
    transport = Answers(fake)
    transport.changes = {f"{node}:9000": change for node, change in changes.items()}
    return Admin({"bootstrap.servers": fake.bootstrap}, transport=transport)


def dirs(answer: dict[str, LogDirDescription] | KafkaError) -> dict[str, LogDirDescription]:
    assert not isinstance(answer, KafkaError), answer
    return answer


@pytest.mark.rule("CM-209")
@on_fake_cluster(2, 2)
async def test_all_leaders_are_asked_and_each_answers_for_what_it_leads(fake: FakeCluster) -> None:
    fake.move_leader("t", 1, 1)
    fake.log("t").append(b"12345", 3)
    fake.store_memory = (600, 1_000)
    async with admin_of(fake) as admin:
        found = await admin.describe_log_dirs()
    held = ReplicaInfo(5, 0, False, 3, 1_000, False)
    assert {node: dirs(each)["store"].replica_infos for node, each in found.items()} == {
        0: {P0: held},
        1: {P1: ReplicaInfo(0, 0, False, 0, None, False)},
    }
    store = dirs(found[1])["store"]
    assert (store.total_bytes, store.usable_bytes, store.used_bytes, store.error) == (1_000, 400, 600, None)


@pytest.mark.rule("CM-209")
@on_fake_cluster(2, 2)
async def test_only_the_nodes_and_topics_that_are_named_are_asked_for(fake: FakeCluster) -> None:
    fake.add_topic("other", 1)
    async with admin_of(fake) as admin:
        found = await admin.describe_log_dirs([0], ["other", "no-such-topic"])
        assert set(dirs(found[0])["store"].replica_infos) == {TopicPartition("other", 0)}
        nothing = await admin.describe_log_dirs(topics=[])
        assert not any(dirs(each)["store"].replica_infos for each in nothing.values())
        (unknown,) = (await admin.describe_log_dirs([77])).values()
    assert isinstance(unknown, InvalidRequestError)
    assert unknown.message == "no node 77 is alive; the live nodes of the cluster are 0, 1"


@pytest.mark.rule("CM-209")
@on_fake_cluster(2, 2)
async def test_a_store_without_a_limit_has_none_and_one_that_cannot_be_read_its_error(fake: FakeCluster) -> None:
    def unread(response: Any) -> None:
        response.results[0].error_code = KafkaStorageError.code
        response.results[0].error_message = "it does not answer"
        response.results[0].used_bytes = -1

    async with admin_of(fake, node1=unread) as admin:
        found = await admin.describe_log_dirs()
    unlimited, failed = dirs(found[0])["store"], dirs(found[1])["store"]
    assert (unlimited.total_bytes, unlimited.usable_bytes, unlimited.used_bytes) == (None, None, 1 << 20)
    assert isinstance(failed.error, KafkaStorageError)
    assert failed.error.message == "it does not answer"
    assert failed.used_bytes is None


@pytest.mark.rule("CM-209")
@on_fake_cluster(2, 2)
async def test_a_node_that_does_not_answer_has_an_error_and_the_others_their_answers(fake: FakeCluster) -> None:
    gone = TransportError(TransportStatus.UNAVAILABLE, "node1:9000", "connection refused")
    old = TransportError(TransportStatus.UNIMPLEMENTED, "node1:9000", "no such method")
    for failure, kind in ((gone, NetworkError), (old, UnsupportedVersionError)):
        async with admin_of(fake, node1=failure) as admin:
            found = await admin.describe_log_dirs()
        assert dirs(found[0])
        assert isinstance(found[1], kind)
        assert "node1:9000" in found[1].message


@pytest.mark.rule("CM-209")
@on_fake_cluster(2, 2)
async def test_without_the_right_every_node_answers_with_the_refusal(fake: FakeCluster) -> None:
    fake.denied.add("DESCRIBE on cluster 'kafka-cluster'")
    async with admin_of(fake) as admin:
        found = await admin.describe_log_dirs()
    assert all(isinstance(each, ClusterAuthorizationFailedError) for each in found.values())


@pytest.mark.rule("CM-209")
@on_fake_cluster(2, 2)
async def test_arguments_of_a_wrong_kind_are_refused(fake: FakeCluster) -> None:
    wrong: Any
    async with admin_of(fake) as admin:
        for wrong in ({"topics": "orders"}, {"node_ids": "1"}, {"node_ids": [b"1"]}, {"topics": [1]}):
            with pytest.raises(ValueError, match="describe_log_dirs needs a list of"):
                await admin.describe_log_dirs(**wrong)
