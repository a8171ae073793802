"""Every version that is offered: an empty and a full request have an answer that kio reads to its last byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests.table import HANDLERS, Handler
from kip932.api.v1 import (
    alter_client_quotas_pb2,
    alter_user_scram_credentials_pb2,
    create_acls_pb2,
    create_partitions_pb2,
    create_topics_pb2,
    delete_acls_pb2,
    delete_records_pb2,
    delete_topics_pb2,
    describe_acls_pb2,
    describe_client_quotas_pb2,
    describe_cluster_pb2,
    describe_configs_pb2,
    describe_user_scram_credentials_pb2,
    end_txn_pb2,
    fetch_pb2,
    find_coordinator_pb2,
    incremental_alter_configs_pb2,
    init_producer_id_pb2,
    list_offsets_pb2,
    metadata_pb2,
    produce_pb2,
)
from kip932.api.v1.acl_pb2 import AclBinding
from kip932.api.v1.record_batch_pb2 import FetchedBatch, Record, RecordBatch
from kip932.kafka_batches import from_native
from tests.support.kafka_values import full
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import TOPICS, ScriptedConnection, in_kio

#: The APIs about records, topics, configs, access and quotas; those of groups have tests of their own.
KEYS: Final = (0, 1, 2, 3, 10, 19, 20, 21, 22, 26, 29, 30, 31, 32, 37, 44, 48, 49, 50, 51, 60, 75)
NATIVE: Final = RecordBatch(base_timestamp_ms=5, records=[Record(key=b"k", value=b"a")]).SerializeToString()
BATCH: Final = from_native(NATIVE, 1, 0)
ACL: Final = AclBinding(resource_type=2, resource_name="n", resource_pattern_type=3, principal="p", host="h")


def metadata(request: Any) -> Any:
    response = metadata_pb2.MetadataResponse(cluster_id="c")
    for topic in request.topics.values:
        made = response.topics.add(name=topic.name or None, topic_id=topic.topic_id)
        made.partitions.add(partition_index=0, leader_id=1, leader_epoch=3)
    return response


def records(response: Any, topics: Callable[[Any], Any], **fields: Any) -> Callable[[Any], Any]:
    """Return what answers for each partition of each topic with the same fields."""

    def answer(request: Any) -> Any:
        into = response()
        lists = {name: getattr(into, name) for name in ("responses", "topics") if hasattr(into, name)}
        ((_, results),) = lists.items()
        for topic in topics(request):
            made = results.add(topic_id=topic.topic_id)
            parts = made.partition_responses if hasattr(made, "partition_responses") else made.partitions
            for _ in topic.partition_data if hasattr(topic, "partition_data") else topic.partitions:
                parts.add(**fields)
        return into

    return answer


def listed(response: Any, results: str, items: str, **fields: Any) -> Callable[[Any], Any]:
    """Return what answers for each item of a request with the same fields."""

    def answer(request: Any) -> Any:
        into = response()
        for _ in getattr(request, items):
            getattr(into, results).add(**fields)
        return into

    return answer


def resources(response: Any, results: str) -> Callable[[Any], Any]:
    def answer(request: Any) -> Any:
        into = response()
        for each in request.resources:
            getattr(into, results).add(resource_type=each.resource_type, resource_name=each.resource_name)
        return into

    return answer


NODE: Final[dict[str, Any]] = {
    "metadata": metadata,
    "find_coordinator": listed(
        find_coordinator_pb2.FindCoordinatorResponse, "coordinators", "coordinator_keys", key="k", node_id=1
    ),
    "end_txn": end_txn_pb2.EndTxnResponse(producer_id=5, producer_epoch=1),
    "init_producer_id": init_producer_id_pb2.InitProducerIdResponse(producer_id=5),
    "produce": records(produce_pb2.ProduceResponse, lambda request: request.topic_data, base_offset=7),
    "fetch": records(
        fetch_pb2.FetchResponse,
        lambda request: request.topics,
        high_watermark=3,
        records=[FetchedBatch(base_offset=1, count=1, batch=NATIVE)],
        aborted_transactions=[fetch_pb2.FetchResponse.AbortedTransaction(producer_id=2, first_offset=1)],
    ),
    "list_offsets": records(list_offsets_pb2.ListOffsetsResponse, lambda request: request.topics, offset=4),
    "delete_records": records(delete_records_pb2.DeleteRecordsResponse, lambda request: request.topics),
    "create_topics": listed(create_topics_pb2.CreateTopicsResponse, "topics", "topics", name="n", num_partitions=2),
    "create_partitions": listed(create_partitions_pb2.CreatePartitionsResponse, "results", "topics"),
    "delete_topics": listed(delete_topics_pb2.DeleteTopicsResponse, "responses", "topics", name="n"),
    "describe_configs": resources(describe_configs_pb2.DescribeConfigsResponse, "results"),
    "incremental_alter_configs": resources(incremental_alter_configs_pb2.IncrementalAlterConfigsResponse, "responses"),
    "describe_cluster": describe_cluster_pb2.DescribeClusterResponse(cluster_id="c", cluster_authorized_operations=8),
    "describe_acls": describe_acls_pb2.DescribeAclsResponse(acls=[ACL]),
    "create_acls": listed(create_acls_pb2.CreateAclsResponse, "results", "creations"),
    "delete_acls": listed(delete_acls_pb2.DeleteAclsResponse, "filter_results", "filters", matching_acls=[ACL]),
    "describe_client_quotas": describe_client_quotas_pb2.DescribeClientQuotasResponse(
        entries=[describe_client_quotas_pb2.DescribeClientQuotasResponse.Entry()]
    ),
    "alter_client_quotas": listed(alter_client_quotas_pb2.AlterClientQuotasResponse, "entries", "entries"),
    "describe_user_scram_credentials": listed(
        describe_user_scram_credentials_pb2.DescribeUserScramCredentialsResponse, "results", "users", user="u"
    ),
    "alter_user_scram_credentials": listed(
        alter_user_scram_credentials_pb2.AlterUserScramCredentialsResponse, "results", "upsertions", user="u"
    ),
}


def served() -> Iterator[Any]:
    for key in KEYS:
        handler = HANDLERS[key]
        for version in handler.versions_offered:
            if version in api(handler.api).versions:
                yield pytest.param(handler, version, id=f"{handler.api}-{version}")


def known(request: Any) -> Any:
    """Return a request with topics that exist, a batch for each partition, and a session and acks that are served."""
    for topic in getattr(request, "topics", None) or getattr(request, "topic_data", None) or ():
        if hasattr(topic, "topic_id"):
            topic.topic_id = TOPICS["orders"] if getattr(topic, "name", "") != "" else bytes(16)
        for field in ("name", "topic"):
            if isinstance(getattr(topic, field, None), str) and getattr(topic, field):
                setattr(topic, field, "orders")
        for data in getattr(topic, "partition_data", None) or ():
            data.records = BATCH
    for field, value in (("acks", -1), ("session_epoch", 0), ("key_type", 0), ("endpoint_type", 1)):
        if hasattr(request, field):
            setattr(request, field, value)
    return request


@pytest.mark.rule("KL-40")
@pytest.mark.parametrize(("handler", "version"), list(served()))
@virtual
async def test_an_empty_request_is_answered(handler: Handler, version: int) -> None:
    found = api(handler.api)
    request = found.decode_request(version, b"".join(found.encode_request(version, found.request())))
    response = await handler.answer(request, version, ScriptedConnection(**NODE))
    assert handler.api == "Produce" or in_kio(handler.api, version, response) is not None  # its acks are 0


@pytest.mark.rule("KL-40")
@pytest.mark.parametrize("about_known_things", [False, True])
@pytest.mark.parametrize(("handler", "version"), list(served()))
@virtual
async def test_a_full_request_is_answered(handler: Handler, version: int, about_known_things: bool) -> None:
    found = api(handler.api)
    value = full(found, "request", version)
    request = found.decode_request(version, b"".join(found.encode_request(version, value)))
    connection = ScriptedConnection(**NODE)
    response = await handler.answer(known(request) if about_known_things else request, version, connection)
    assert in_kio(handler.api, version, response) is not None


def test_versions_that_are_offered_are_those_of_the_table_but_for_old_ones_of_produce() -> None:
    for key in KEYS:
        handler, versions = HANDLERS[key], api(HANDLERS[key].api).versions
        first = {"Produce": 0, "EndTxn": 5}.get(handler.api, versions.start)
        last = 17 if handler.api == "Fetch" else versions.stop - 1
        assert handler.versions_offered == range(first, last + 1), handler.api
