"""The fields of each refusal: the rows of kafka-answers/access.md, "What each request needs"."""

from __future__ import annotations

from typing import Any, Final

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from kip932.acls import Acl, Operation, ResourceType
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.ids import KEY_TYPE_SHARE, RESOURCE_GROUP, RESOURCE_TOPIC, SharePartitionKey
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access.members import joined
from tests.scenarios.access.stage import GROUP, SHORT, TOPIC, Caller, Stage, acl, denial, error_name, on_stage

USER = "User:u"
G, T, C = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER
OTHER = "topic-u"
_TEXTS: Final = ("error_message", "acknowledge_error_message")


def on_group(operation: Operation) -> Acl:
    return acl(USER, operation, G)


async def answer(caller: Caller, name: str, request: dict[str, Any]) -> Any:
    """Call an RPC; return its answer as plain values, without texts, ids that change, and the zero throttle time."""
    message = ParseDict(request, METHODS[name].request_type())
    return _plain(MessageToDict(await caller.call(name, message), preserving_proto_field_name=True))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if name not in _TEXTS}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return SHORT.get(str(value).removeprefix("ERROR_CODE_"), value)


def of(topic_id: bytes) -> Any:
    """Return an id in its JSON form."""
    request = METHODS["ReadTopicStartOffsets"].request_type(topic_ids=[topic_id])
    return MessageToDict(request)["topicIds"][0]


ZERO: Final = of(bytes(16))


@pytest.mark.rule("GC-130")
@on_stage()
async def test_find_coordinator(stage: Stage) -> None:
    caller = stage.caller(USER)
    key = SharePartitionKey(GROUP, stage.topic_id, 0).text
    for kind, name, error in ((0, GROUP, "GAF"), (1, "transaction-x", "XAF"), (KEY_TYPE_SHARE, key, "CAF")):
        found = await answer(caller, "FindCoordinator", {"key_type": kind, "coordinator_keys": [name]})
        assert found == {"coordinators": [{"key": name, "node_id": -1, "port": -1, "error_code": error}]}


@pytest.mark.rule("CM-61")
@on_stage()
async def test_metadata(stage: Stage) -> None:
    caller, topic = stage.caller(USER), of(stage.topic_id)
    asked = {"topics": {"values": [{"name": TOPIC}, {"name": "unknown"}]}}
    found = await answer(caller, "Metadata", asked)
    assert found["topics"] == [{"error_code": "TAF", "name": name, "topic_id": ZERO} for name in (TOPIC, "unknown")]
    found = await answer(caller, "Metadata", {"topics": {"values": [{"topic_id": topic}]}})
    assert found["topics"] == [{"error_code": "TAF", "topic_id": topic}]
    assert "topics" not in await answer(caller, "Metadata", {})


@pytest.mark.rule("CM-61")
@on_stage()
async def test_topics_are_created_only_where_it_is_allowed_and_an_existing_name_is_not_shown(stage: Stage) -> None:
    await stage.allow(acl(USER, Operation.CREATE, T, "mine"))
    names = ("mine", "theirs", TOPIC)
    asked = {"topics": [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in names]}
    found = (await answer(stage.caller(USER), "CreateTopics", {**asked, "timeout_ms": 9_000}))["topics"]
    assert found[0].pop("topic_id")
    assert found[0] == {"name": "mine", "num_partitions": -1}
    for one, name in zip(found[1:], names[1:], strict=True):
        assert (one["name"], one["error_code"]) == (name, "TAF")
        assert one.get("topic_id", ZERO) == ZERO
    listed = await answer(stage.admin, "Metadata", {})
    assert {topic["name"] for topic in listed["topics"]} == {TOPIC, "mine"}


@pytest.mark.rule("CM-61")
@on_stage()
async def test_topics_are_deleted_and_grown_only_where_it_is_allowed(stage: Stage) -> None:
    caller, topic = stage.caller(USER), of(stage.topic_id)
    asked = {"topics": [{"name": TOPIC}, {"topic_id": topic}], "timeout_ms": 9_000}
    found = (await answer(caller, "DeleteTopics", asked))["responses"]
    assert found == [
        {"name": TOPIC, "topic_id": ZERO, "error_code": "TAF"},
        {"topic_id": topic, "error_code": "TAF"},
    ]
    unknown = of(b"unknown-topic-id")
    found = (await answer(caller, "DeleteTopics", {"topics": [{"topic_id": unknown}]}))["responses"]
    assert found == [{"topic_id": unknown, "error_code": "ERROR_CODE_UNKNOWN_TOPIC_ID"}]
    found = await answer(caller, "CreatePartitions", {"topics": [{"name": TOPIC, "count": 3}], "timeout_ms": 9_000})
    assert found == {"results": [{"name": TOPIC, "error_code": "TAF"}]}
    (still,) = (await answer(stage.admin, "Metadata", {}))["topics"]
    assert len(still["partitions"]) == 1


@pytest.mark.rule("GC-135", "GC-136")
@on_stage()
async def test_configs(stage: Stage) -> None:
    caller = stage.caller(USER)
    named = [
        {"resource_type": kind, "resource_name": name}
        for kind, name in ((RESOURCE_TOPIC, TOPIC), (RESOURCE_GROUP, GROUP), (RESOURCE_GROUP, "unknown"))
    ]
    refused = [{"error_code": error, **one} for one, error in zip(named, ("TAF", "GAF", "GAF"), strict=True)]
    assert await answer(caller, "DescribeConfigs", {"resources": named}) == {"results": refused}
    for one, key in zip(named, ("retention.ms", "share.session.timeout.ms", "share.session.timeout.ms"), strict=True):
        one["configs"] = [{"name": key, "value": "50000"}]
    assert await answer(caller, "IncrementalAlterConfigs", {"resources": named}) == {"responses": refused}
    await stage.allow(on_group(Operation.ALTER_CONFIGS))
    found = (await answer(caller, "IncrementalAlterConfigs", {"resources": named}))["responses"]
    assert [one.get("error_code") for one in found] == ["TAF", None, "GAF"], "the other changes are made"


@pytest.mark.rule("CM-61")
@on_stage()
async def test_a_group_whose_caller_may_not_write_to_a_topic_does_not_get_it_for_dead_letters(stage: Stage) -> None:
    """[P] In Kafka ALTER_CONFIGS on a group is enough (CM-61 (g))."""
    await stage.admin.create_topic("dlq.theirs", 1, {"errors.deadletterqueue.group.enable": "true"})
    await stage.allow(on_group(Operation.ALTER_CONFIGS), acl(USER, Operation.READ, T, "dlq.theirs"))
    config = {"name": "errors.deadletterqueue.topic.name"}
    resource = {"resource_type": RESOURCE_GROUP, "resource_name": GROUP}
    for name in ("dlq.theirs", "dlq.unknown"):
        asked = {"resources": [{**resource, "configs": [{**config, "value": name}]}]}
        found = (await answer(stage.caller(USER), "IncrementalAlterConfigs", asked))["responses"]
        assert found == [{"error_code": "TAF", **resource}]
    removing = {"resources": [{**resource, "configs": [{**config, "config_operation": 1}]}]}
    found = (await answer(stage.caller(USER), "IncrementalAlterConfigs", removing))["responses"]
    assert found == [resource], "to remove the topic needs no permission on it"


@pytest.mark.rule("GC-11")
@on_stage()
async def test_a_refused_heartbeat_has_an_error_and_nothing_else(stage: Stage) -> None:
    asked = {"group_id": GROUP, "member_id": "m", "subscribed_topic_names": {"values": [TOPIC]}}
    assert await answer(stage.caller(USER), "ShareGroupHeartbeat", asked) == {"error_code": "GAF"}


@pytest.mark.rule("GC-125", "GC-122")
@on_stage()
async def test_groups_are_described_and_listed_only_where_it_is_allowed(stage: Stage) -> None:
    caller = stage.caller(USER)
    await joined(stage, "User:admin", "m")
    await stage.admin.heartbeat("mine", "n", 0, [TOPIC])
    unset = -(1 << 31)
    for group in (GROUP, "unknown"):
        found = await answer(caller, "ShareGroupDescribe", {"group_ids": [group]})
        assert found["groups"] == [{"error_code": "GAF", "group_id": group, "authorized_operations": unset}]
    assert await answer(caller, "ListGroups", {}) == {}
    await stage.allow(acl(USER, Operation.DESCRIBE, G, "mine"), acl(USER, Operation.DESCRIBE, T))
    found = (await answer(caller, "ShareGroupDescribe", {"group_ids": [GROUP, "mine"]}))["groups"]
    assert [one.get("error_code") for one in found] == ["GAF", None]
    assert [one["group_id"] for one in (await answer(caller, "ListGroups", {}))["groups"]] == ["mine"]


@pytest.mark.rule("GC-90")
@on_stage()
async def test_groups_are_deleted_only_where_it_is_allowed(stage: Stage) -> None:
    """DELETE on the group is enough, whichever topics its state is about."""
    await stage.admin.heartbeat("mine", "n", 0, [TOPIC])
    await stage.admin.heartbeat("mine", "n", -1)
    await stage.allow(acl(USER, Operation.DELETE, G, "mine"))
    found = await answer(stage.caller(USER), "DeleteGroups", {"groups_names": [GROUP, "mine"]})
    assert found == {"results": [{"group_id": GROUP, "error_code": "GAF"}, {"group_id": "mine"}]}
    listed = await answer(stage.admin, "ListGroups", {})
    assert [one["group_id"] for one in listed["groups"]] == [GROUP]


async def _two_topics(stage: Stage) -> bytes:
    """Make a second topic; the caller may use it, but not the first one."""
    other = await stage.admin.create_topic(OTHER)
    await stage.make_group(OTHER)
    await stage.allow(on_group(Operation.ALL), acl(USER, Operation.ALL, T, OTHER))
    return other


@pytest.mark.rule("GC-110", "GC-111")
@on_stage()
async def test_offsets_are_described_only_where_it_is_allowed(stage: Stage) -> None:
    other = of(await _two_topics(stage))
    caller = stage.caller(USER)
    topics = [{"topic_name": name, "partitions": [0]} for name in (TOPIC, OTHER, "unknown")]
    asked = {"groups": [{"group_id": GROUP, "topics": {"values": topics}}, {"group_id": "unknown"}]}
    named, unknown = (await answer(caller, "DescribeShareGroupOffsets", asked))["groups"]
    assert unknown == {"group_id": "unknown", "error_code": "GAF"}
    refused = {"partitions": [{"start_offset": "-1", "lag": "-1", "error_code": "TAF"}], "topic_id": ZERO}
    by_name = {one.pop("topic_name"): one for one in named["topics"]}
    assert by_name[TOPIC] == by_name["unknown"] == refused
    assert by_name[OTHER]["topic_id"] == other
    (every,) = (await answer(caller, "DescribeShareGroupOffsets", {"groups": [{"group_id": GROUP}]}))["groups"]
    assert [one["topic_name"] for one in every["topics"]] == [OTHER]


@pytest.mark.rule("GC-100", "CM-61")
@on_stage()
async def test_offsets_are_altered_only_where_it_is_allowed_and_a_refused_topic_has_no_id(stage: Stage) -> None:
    """[P] Kafka returns the id of a topic that the caller may not read (CM-61 (i))."""
    other = of(await _two_topics(stage))
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]}
        for name in (TOPIC, OTHER, "unknown")
    ]
    asked = {"group_id": GROUP, "topics": {"values": topics}}
    found = (await answer(stage.caller(USER), "AlterShareGroupOffsets", asked))["responses"]
    refused = [{"error_code": "TAF"}]
    by_name = {one["topic_name"]: (one["topic_id"], one["partitions"]) for one in found}
    assert by_name == {TOPIC: (ZERO, refused), OTHER: (other, [{}]), "unknown": (ZERO, refused)}
    assert await stage.admin.lag(GROUP, TOPIC) == (0, 0)


@pytest.mark.rule("GC-96")
@on_stage()
async def test_offsets_are_deleted_only_where_it_is_allowed(stage: Stage) -> None:
    other = of(await _two_topics(stage))
    topics = [{"topic_name": name} for name in (TOPIC, OTHER, "unknown")]
    asked = {"group_id": GROUP, "topics": {"values": topics}}
    found = (await answer(stage.caller(USER), "DeleteShareGroupOffsets", asked))["responses"]
    by_name = {one["topic_name"]: (one.get("topic_id"), one.get("error_code")) for one in found}
    assert by_name == {TOPIC: (ZERO, "TAF"), OTHER: (other, None), "unknown": (ZERO, "TAF")}


@pytest.mark.rule("CM-61")
@on_stage()
async def test_records_are_written_read_and_deleted_only_where_it_is_allowed(stage: Stage) -> None:
    other = await _two_topics(stage)
    caller = stage.caller(USER)
    data = RecordBatch(records=[Record(value=b"v")]).SerializeToString()
    request = METHODS["Produce"].request_type(acks=-1, timeout_ms=9_000)
    for topic_id in (stage.topic_id, other):
        part = request.topic_data.add(topic_id=topic_id).partition_data.add(index=0)
        part.batches.add(record_batch=data, record_count=1, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    found = _plain(MessageToDict(await caller.call("Produce", request), preserving_proto_field_name=True))
    refused, done = (one["partition_responses"][0] for one in found["responses"])
    assert (refused["error_code"], refused["base_offset"], "error_code" in done) == ("TAF", "-1", False)
    topics = [{"topic_id": of(topic_id)} for topic_id in (stage.topic_id, other)]

    def each(part: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**topic, "partitions": [part]} for topic in topics]

    reading = {"partition_max_bytes": 9_000, "current_leader_epoch": -1}
    found = await answer(caller, "Fetch", {"max_bytes": 9_000, "min_bytes": 1, "topics": each(reading)})
    refused, done = (one["partitions"][0] for one in found["responses"])
    assert (refused["error_code"], "records" in refused, "records" in done) == ("TAF", False, True)
    found = await answer(caller, "ListOffsets", {"topics": each({"timestamp": -1, "current_leader_epoch": -1})})
    refused, done = (one["partitions"][0] for one in found["topics"])
    assert (refused["error_code"], refused["offset"], done["offset"]) == ("TAF", "-1", "1")
    found = await answer(caller, "DeleteRecords", {"timeout_ms": 9_000, "topics": each({"offset": 1})})
    refused, done = (one["partitions"][0] for one in found["topics"])
    assert (refused["error_code"], refused["low_watermark"], done["low_watermark"]) == ("TAF", "-1", "1")
    assert await stage.admin.produce(stage.topic_id, 1) == 0, "nothing was written to the refused topic"


@pytest.mark.rule("CM-61")
@on_stage()
async def test_the_operations_on_the_cluster_are_those_that_the_caller_may_do(stage: Stage) -> None:
    caller, asked = stage.caller(USER), {"include_cluster_authorized_operations": True}
    for entries, expected in (
        ((), -(1 << 31)),
        ((acl(USER, Operation.CREATE, C),), -(1 << 31)),
        ((acl(USER, Operation.DESCRIBE, C),), 1 << 8),
        ((acl(USER, Operation.ALTER, C),), 1 << 7 | 1 << 8),
    ):
        await stage.allow(*entries)
        assert (await answer(caller, "DescribeCluster", asked))["cluster_authorized_operations"] == expected
    assert (await answer(caller, "DescribeCluster", {}))["cluster_authorized_operations"] == -(1 << 31)


@pytest.mark.rule("CM-61")
@on_stage()
async def test_a_topic_named_by_its_id_is_named_in_the_refusal_only_to_who_may_describe_it(stage: Stage) -> None:
    request = METHODS["DeleteTopics"].request_type()
    request.topics.add(topic_id=stage.topic_id)
    texts = []
    for entries in ((), (acl(USER, Operation.DESCRIBE, ResourceType.TOPIC),)):
        await stage.allow(*entries)
        (answer,) = (await stage.caller(USER).call("DeleteTopics", request)).responses
        assert error_name(answer.error_code) == "TAF"
        texts.append(answer.error_message)
    assert TOPIC not in texts[0]
    assert f"{USER} may not DELETE TOPIC '{TOPIC}'" in texts[1]


@pytest.mark.rule("CM-61")
@on_stage()
async def test_a_producer_that_may_write_nowhere_reads_of_write_and_not_of_a_right_that_does_not_help(
    stage: Stage,
) -> None:
    answer = await stage.caller(USER).call("InitProducerId", METHODS["InitProducerId"].request_type())
    assert error_name(answer.error_code) == "CAF"
    assert answer.error_message.startswith(f"{USER} may not WRITE to any topic.")
    assert "IDEMPOTENT_WRITE" not in answer.error_message
    assert "acls add --allow-principal User:u --producer --topic NAME" in answer.error_message
    await stage.allow(acl(USER, Operation.WRITE, T), denial(USER, Operation.WRITE, T))
    answer = await stage.caller(USER).call("InitProducerId", METHODS["InitProducerId"].request_type())
    assert error_name(answer.error_code) == "CAF"
    assert "acls add" not in answer.error_message, "no entry outweighs the denial"
    assert "acls explain --principal User:u --operation WRITE --topic NAME" in answer.error_message
