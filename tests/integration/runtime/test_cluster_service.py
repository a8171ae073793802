"""ClusterService over the in-memory transport, on a cluster of one process."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kip932 import errors
from kip932.api.v1.acl_pb2 import AclBinding
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from kip932.rpc.transport import TransportError, TransportStatus
from shard_runtime.cluster import config_admin, lookups, topic_admin
from shard_runtime.config.kafka_configs import GROUP_DELIVERY_COUNT_LIMIT, RETENTION_MS
from shard_runtime.rpc.bounds import Turns
from tests.integration.runtime.cluster_wire import Wire

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("CM-21")
async def test_a_topic_is_created_described_grown_and_deleted(wire: Wire) -> None:
    created = await wire.create("orders", 2, retention_ms="1000")
    assert (created.error_code, created.num_partitions, len(created.topic_id)) == (0, 2, 16)
    assert wire.process.node.configs.topic("orders", RETENTION_MS) == 1_000
    grown = await wire.call("CreatePartitions", topics=[{"name": "orders", "count": 3}])
    assert grown.results[0].error_code == 0
    metadata = await wire.call("Metadata", topics={"values": [{"name": "orders"}]})
    assert [len(topic.partitions) for topic in metadata.topics] == [3]
    deleted = await wire.call("DeleteTopics", topics=[{"topic_id": created.topic_id}])
    assert (deleted.responses[0].error_code, deleted.responses[0].name) == (0, "orders")
    again = await wire.create("orders")
    assert again.topic_id != created.topic_id


@pytest.mark.rule("CM-21")
@pytest.mark.parametrize(
    ("name", "partitions", "error"),
    [
        ("", 1, errors.InvalidTopicError),
        (".", 1, errors.InvalidTopicError),
        ("__internal", 1, errors.InvalidTopicError),
        ("a b", 1, errors.InvalidTopicError),
        ("x" * 250, 1, errors.InvalidTopicError),
        ("t", 0, errors.InvalidPartitionsError),
        ("t", 10_001, errors.InvalidPartitionsError),
        ("taken", 1, errors.TopicAlreadyExistsError),
    ],
)
async def test_topics_that_cannot_be_created(
    wire: Wire, name: str, partitions: int, error: type[errors.KafkaError]
) -> None:
    await wire.create("taken")
    assert (await wire.create(name, partitions)).error_code == error.code


@pytest.mark.rule("CM-21", "CM-23")
async def test_each_topic_of_a_request_has_its_own_result_and_a_check_creates_nothing(wire: Wire) -> None:
    topics = [
        {"name": "a", "num_partitions": -1},
        {"name": "b", "num_partitions": 0},
        {"name": "twice"},
        {"name": "twice"},
    ]
    answer = await wire.call("CreateTopics", topics=topics, validate_only=True)
    assert [topic.error_code for topic in answer.topics] == [0, 37, 42, 42]
    assert answer.topics[0].num_partitions == 1
    assert dict(wire.process.node.metadata.image.topics) == {}
    assert (await wire.create("c", 1, retention_ms="soon")).error_code == errors.InvalidConfigError.code
    assert (await wire.create("c", 1, no_such="1")).error_code == errors.InvalidConfigError.code


@pytest.mark.rule("CM-89")
async def test_the_partitions_of_a_cluster_are_bounded_and_the_error_names_the_bound(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert topic_admin.CLUSTER_PARTITIONS_MAX == 20_000
    monkeypatch.setattr(topic_admin, "CLUSTER_PARTITIONS_MAX", 10)
    assert (await wire.create("a", 6)).error_code == 0
    refused = await wire.create("b", 5)
    assert refused.error_code == errors.InvalidPartitionsError.code
    assert "more than the 10 that a cluster may have; ask for at most 4" in refused.error_message
    assert (await wire.create("b", 2)).error_code == 0
    topics = [{"name": "a", "count": 8}, {"name": "b", "count": 3}]
    answer = await wire.call("CreatePartitions", topics=topics)  # each one alone would fit
    assert [result.error_code for result in answer.results] == [0, errors.InvalidPartitionsError.code]
    assert "ask for at most 2" in answer.results[1].error_message
    found = {name: topic.partitions for name, topic in wire.process.node.metadata.image.topics.items()}
    assert found == {"a": 8, "b": 2}


@pytest.mark.rule("CM-89")
async def test_topics_of_one_request_count_together_and_a_cluster_that_has_more_keeps_them(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await wire.create("before", 5)).error_code == 0
    monkeypatch.setattr(topic_admin, "CLUSTER_PARTITIONS_MAX", 10)
    topics = [{"name": "a", "num_partitions": 4}, {"name": "b", "num_partitions": 2}]
    answer = await wire.call("CreateTopics", topics=topics)  # each one alone would fit
    assert [topic.error_code for topic in answer.topics] == [0, errors.InvalidPartitionsError.code]
    assert "ask for at most 1" in answer.topics[1].error_message
    monkeypatch.setattr(topic_admin, "CLUSTER_PARTITIONS_MAX", 3)  # as if an older build had allowed more
    assert (await wire.create("c", 1)).error_code == errors.InvalidPartitionsError.code
    grown = await wire.call("CreatePartitions", topics=[{"name": "before", "count": 6}])
    assert grown.results[0].error_code == errors.InvalidPartitionsError.code
    metadata = await wire.call("Metadata")
    assert {topic.name: len(topic.partitions) for topic in metadata.topics} == {"before": 5, "a": 4}


class CountedTurns(Turns):
    """Records how many entries were counted, and how many are counted before other tasks get a turn."""

    every: ClassVar[list[int]] = []
    steps = 0

    def __init__(self, every: int) -> None:
        super().__init__(every)
        CountedTurns.every.append(every)
        CountedTurns.steps = 0

    async def step(self, cost: int = 1) -> None:
        CountedTurns.steps += cost
        await super().step(cost)


@pytest.mark.rule("CM-94", "CM-98")
async def test_lookups_and_configs_give_other_tasks_a_turn_at_every_entry_they_count(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lookups, config_admin):
        monkeypatch.setattr(module, "Turns", CountedTurns)
    await wire.create("wide", 30)
    names = [f"n{number}" for number in range(50)]
    groups = [{"resource_type": RESOURCE_GROUP, "resource_name": name} for name in names]
    counted = []
    for method, arguments in (
        ("FindCoordinator", {"coordinator_keys": names}),
        ("Metadata", {}),
        ("Metadata", {"topics": {"values": [{"name": name} for name in names]}}),
        ("DescribeConfigs", {"resources": groups}),
    ):
        await wire.call(method, **arguments)
        counted.append(CountedTurns.steps)
    assert counted == [50, 31, 50, 50]
    assert max(CountedTurns.every) <= 1_000


@pytest.mark.rule("CM-94")
@pytest.mark.parametrize("method", ["CreateTopics", "DeleteTopics", "CreatePartitions"])
async def test_a_request_changes_a_thousand_topics_at_most(wire: Wire, method: str) -> None:
    topics = [{"name": f"t{number}"} for number in range(1_001)]
    with pytest.raises(TransportError, match="1001 topics; at most 1000 are changed by one request") as refused:
        await wire.call(method, topics=topics)
    assert refused.value.status is TransportStatus.INVALID_ARGUMENT


@pytest.mark.rule("CM-21")
async def test_partitions_only_grow_and_unknown_topics_are_named(wire: Wire) -> None:
    await wire.create("t", 2)
    topics = [{"name": "t", "count": 2}, {"name": "gone", "count": 2}, {"name": "t2", "count": 1}]
    answer = await wire.call("CreatePartitions", topics=topics)
    assert [result.error_code for result in answer.results] == [37, 3, 3]
    answer = await wire.call("DeleteTopics", topics=[{"name": "gone"}, {"topic_id": bytes(range(16))}])
    assert [result.error_code for result in answer.responses] == [3, 100]
    with pytest.raises(TransportError) as caught:
        await wire.call("DeleteTopics", topics=[{"topic_id": b"short"}])
    assert caught.value.status is TransportStatus.INVALID_ARGUMENT


@pytest.mark.rule("GC-136", "GC-138", "GC-145", "GC-146", "PL-1002")
async def test_group_configs_are_set_and_go_back(wire: Wire) -> None:
    key = "share.delivery.count.limit"
    assert (await wire.alter(RESOURCE_GROUP, "g", (key, 0, "3"))).error_code == 0
    assert wire.process.node.configs.group("g", GROUP_DELIVERY_COUNT_LIMIT) == 3
    assert (await wire.alter(RESOURCE_GROUP, "g", (key, 0, "4"), check=True)).error_code == 0
    assert wire.process.node.configs.group("g", GROUP_DELIVERY_COUNT_LIMIT) == 3
    refused = await wire.alter(RESOURCE_GROUP, "g", (key, 0, "4"), ("share.isolation.level", 0, "x"))
    assert refused.error_code == errors.InvalidConfigError.code
    assert wire.process.node.configs.group("g", GROUP_DELIVERY_COUNT_LIMIT) == 3
    assert (await wire.alter(RESOURCE_GROUP, "g", (key, 1, None))).error_code == 0
    assert (RESOURCE_GROUP, "g") not in wire.process.node.metadata.image.configs


@pytest.mark.rule("GC-136")
@pytest.mark.parametrize(
    ("resource", "change", "code", "says"),
    [
        ((RESOURCE_GROUP, ""), ("share.delivery.count.limit", 0, "3"), 42, "Default group resources are not allowed."),
        ((RESOURCE_GROUP, "g"), ("nope", 0, "3"), 40, "Unknown group config name: nope"),
        (
            (RESOURCE_GROUP, "g"),
            ("share.delivery.count.limit", 0, None),
            42,
            "Null value not supported for group configs: share.delivery.count.limit",
        ),
        ((RESOURCE_GROUP, "g"), ("share.delivery.count.limit", 2, "3"), 40, "is not a list"),
        ((RESOURCE_GROUP, "g"), ("share.delivery.count.limit", 9, "3"), 42, "operation 9"),
        ((RESOURCE_TOPIC, "none"), ("retention.ms", 0, "3"), 3, "does not exist"),
        ((RESOURCE_BROKER, "7"), ("group.share.assignment.interval.ms", 0, "3"), 42, "Unexpected broker id"),
        ((RESOURCE_BROKER, ""), ("group.share.max.size", 0, "3"), 42, "need a restart"),
        ((1, "x"), ("a", 0, "b"), 42, "resource type 1"),
    ],
)
async def test_changes_of_configs_that_are_refused(
    wire: Wire, resource: tuple[int, str], change: tuple[str, int, str | None], code: int, says: str
) -> None:
    result = await wire.alter(*resource, change)
    assert result.error_code == code
    assert says in result.error_message


@pytest.mark.rule("GC-136")
async def test_null_values_are_named_before_unknown_configs_and_deleting_an_unknown_one_does_nothing(
    wire: Wire,
) -> None:
    key = "share.delivery.count.limit"
    refused = await wire.alter(RESOURCE_GROUP, "g", ("nope", 0, "1"), (key, 0, None), ("other", 2, None))
    assert (refused.error_code, refused.error_message) == (
        42, f"Null value not supported for group configs: {key},other",
    )  # fmt: skip
    assert (await wire.alter(RESOURCE_GROUP, "g", ("nope", 1, None), (key, 0, "3"))).error_code == 0
    assert wire.process.node.configs.group("g", GROUP_DELIVERY_COUNT_LIMIT) == 3


@pytest.mark.rule("GC-135")
async def test_group_configs_show_where_they_come_from(wire: Wire) -> None:
    await wire.alter(RESOURCE_GROUP, "g", ("share.assignment.interval.ms", 0, "2000"))
    await wire.alter(RESOURCE_BROKER, "", ("group.share.assignment.interval.ms", 0, "1500"))
    result = await wire.describe(RESOURCE_GROUP, "g", include_synonyms=True, include_documentation=True)
    found = {config.name: config for config in result.configs}
    assert len(found) == 22
    config = found["share.assignment.interval.ms"]
    assert (config.value, config.config_source, config.read_only, config.config_type) == ("2000", 8, False, 3)
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        ("share.assignment.interval.ms", "2000", 8),
        ("group.share.assignment.interval.ms", "1500", 3),
        ("group.share.assignment.interval.ms", "1000", 5),
    ]
    assert config.documentation
    assert (found["share.auto.offset.reset"].value, found["share.auto.offset.reset"].config_source) == ("latest", 5)
    assert (await wire.describe(RESOURCE_GROUP, "")).error_message == "Group name must not be empty"


@pytest.mark.rule("CM-23")
async def test_topic_and_broker_configs_are_described(wire: Wire) -> None:
    await wire.create("t", 1, max_message_bytes="2000")
    found = {config.name: config for config in (await wire.describe(RESOURCE_TOPIC, "t")).configs}
    assert sorted(found) == [
        "errors.deadletterqueue.group.enable",
        "max.message.bytes",
        "retention.bytes",
        "retention.ms",
        "sharegroups.retention",
    ]
    assert (found["max.message.bytes"].value, found["max.message.bytes"].config_source) == ("2000", 1)
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("604800000", 5)
    broker = {config.name: config for config in (await wire.describe(RESOURCE_BROKER, "1")).configs}
    shards = broker["offsets.topic.num.partitions"]
    assert (shards.value, shards.config_source, shards.read_only) == ("10", 4, True)
    assert broker["group.share.assignment.interval.ms"].read_only is False
    one = await wire.call(
        "DescribeConfigs",
        resources=[
            {"resource_type": RESOURCE_TOPIC, "resource_name": "t", "configuration_keys": {"values": ["retention.ms"]}}
        ],
    )
    assert [config.name for config in one.results[0].configs] == ["retention.ms"]


@pytest.mark.rule("CM-43a")
async def test_producer_ids_are_random_and_a_transactional_id_gets_an_epoch(wire: Wire) -> None:
    ids = [(await wire.call("InitProducerId", producer_id=-1, producer_epoch=-1)).producer_id for _ in range(8)]
    assert len(set(ids)) == 8
    assert all(0 <= producer_id < 2**63 for producer_id in ids)
    assert max(ids) >= 2**55, "63 bits by chance; eight of 55 at most come once in 10^19 times"
    refused = await wire.call("InitProducerId", transactional_id="")
    assert (refused.error_code, refused.producer_id) == (errors.InvalidRequestError.code, -1)


#: Denies everything on all topics to everyone.
DENIAL: dict[str, Any] = {
    "resource_type": 2, "resource_name": "*", "resource_pattern_type": 3, "principal": "User:*", "host": "*",
    "operation": 2, "permission_type": 2,
}  # fmt: skip


@pytest.mark.rule("CM-61")
async def test_access_control_entries_are_added_listed_and_removed(wire: Wire) -> None:
    wanted = {"resource_type": 2, "resource_pattern_type": 1, "operation": 1, "permission_type": 1}
    added = await wire.call("CreateAcls", creations=[DENIAL, DENIAL | {"host": "nowhere"}])
    assert [result.error_code for result in added.results] == [0, errors.InvalidRequestError.code]
    assert (await wire.call("DescribeAcls", filter=wanted)).acls == [AclBinding(**DENIAL)]
    (removed,) = (await wire.call("DeleteAcls", filters=[wanted])).filter_results
    assert removed.matching_acls == [AclBinding(**DENIAL)]
    assert not (await wire.call("DescribeAcls", filter=wanted)).acls


@pytest.mark.rule("CM-61")
async def test_entries_can_be_made_before_access_control_is_turned_on_and_decide_nothing_until_then(wire: Wire) -> None:
    await wire.call("CreateAcls", creations=[DENIAL])
    assert (await wire.create("t")).error_code == 0
    assert [topic.name for topic in (await wire.call("Metadata")).topics] == ["t"]


@pytest.mark.rule("CM-91")
async def test_what_is_named_twice_is_answered_once_or_refused(wire: Wire) -> None:
    created = await wire.create("t", 2)
    twice = [{"name": "t"}, {"topic_id": created.topic_id}, {"name": "gone"}, {"name": "gone"}]
    metadata = await wire.call("Metadata", topics={"values": twice})
    assert [topic.name for topic in metadata.topics] == ["t", "gone"]
    described = await wire.call(
        "DescribeConfigs", resources=[{"resource_type": RESOURCE_TOPIC, "resource_name": "t"}] * 2
    )
    assert [result.error_code for result in described.results] == [0, errors.InvalidRequestError.code]
    for method, arguments in (
        ("FindCoordinator", {"coordinator_keys": ["k" * 291]}),
        ("CreateTopics", {"topics": [{"name": "t", "configs": [{"name": "n"}] * 10_001}]}),
        ("DescribeConfigs", {"resources": [{"configuration_keys": {"values": ["k"] * 10_001}}]}),
        ("IncrementalAlterConfigs", {"resources": [{"configs": [{"name": "n"}] * 10_001}]}),
    ):
        with pytest.raises(TransportError, match="at most") as refused:
            await wire.call(method, **arguments)
        assert refused.value.status is TransportStatus.INVALID_ARGUMENT
