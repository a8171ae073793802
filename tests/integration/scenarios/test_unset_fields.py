"""docs/reference/protocol.md, row by row: each field of each served request, left unset, against a real cluster.

A request is built with every field set, the field is cleared, and the response is compared with the row.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from kip932.api.v1 import produce_pb2
from kip932.rpc.transport import TransportError, TransportStatus
from shard_runtime.rpc.table import RPCS, UNSERVED, Port
from tests.integration.scenarios.full_requests import FULL, World
from tests.integration.scenarios.wire import METHODS, Wire, attempts
from tests.support.node import Cluster

pytestmark = pytest.mark.asyncio

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "protocol.md"
#: Not served to clients. Nodes call one of them, WriteTxnMarkers, with which a leader only names a record (CM-155).
NOT_SERVED: Final = {RPCS[path].name for path in UNSERVED}
ROWS: Final = [
    field
    for line in PAGE.read_text().splitlines()
    if line.startswith("| `")
    for field in re.findall(r"`([A-Z]\w+\.[\w.]+)`", line.split("|")[1])
]


def _fields(message: Descriptor, path: str, within: tuple[str, ...] = ()) -> Iterator[str]:
    for field in message.fields:
        name = f"{path}.{field.name}"
        yield name
        inner = field.message_type
        if inner is not None and inner.full_name not in within and not inner.name.endswith("Request"):
            yield from _fields(inner, name, (*within, inner.full_name))


@pytest.mark.rule("CM-111")
async def test_every_field_of_every_served_request_has_one_row() -> None:
    served = [name for name in METHODS if name not in NOT_SERVED]
    expected = [field for name in served for field in _fields(METHODS[name].request_type.DESCRIPTOR, name)]
    assert sorted(ROWS) == sorted(expected)


@pytest.mark.rule("CM-111")
async def test_the_page_names_the_only_served_request_whose_fields_have_no_rows() -> None:
    served = {row.name for row in RPCS.values() if row.ports & (Port.CLIENTS | Port.NODES)}
    (named,) = re.findall(r"are here, except (\w+),", PAGE.read_text())
    assert served - {field.partition(".")[0] for field in ROWS} == {named}
    assert served >= METHODS.keys()


def _cleared(request: Message, path: str) -> None:
    at: Any = request
    *way, last = path.split(".")
    for name in way:
        at = getattr(at, name)
        if not isinstance(at, Message):
            at = at[0]
    at.ClearField(last)


def _codes(answer: Any) -> set[int]:
    """Return every error number in a response, at any depth."""
    found: set[int] = set()
    for field, value in answer.ListFields():
        if field.name in ("error_code", "acknowledge_error_code"):
            found.add(value)
        elif field.message_type is not None:
            for one in [value] if isinstance(value, Message) else value:
                found |= _codes(one)
    return found


# ---- expected results of unset fields

#: The call as a whole is refused.
REFUSED: Final = object()
#: Error numbers in the response when the field is unset; for fields not listed here, the response has no errors.
CODES: Final[dict[str, object]] = {
    "Produce.acks": {21},
    "Produce.topic_data.partition_data.batches": {87},
    **{f"Produce.topic_data.partition_data.batches.{name}": {87} for name in (
        "record_batch", "record_count", "producer_id", "producer_epoch", "base_sequence")},
    **{field: REFUSED for field in ROWS
       if field.endswith(".topic_id") and not field.startswith(("Metadata", "Delete"))},
    "DeleteRecords.topics.topic_id": REFUSED,
    "DeleteShareGroupState.topics.topic_id": REFUSED,
    "ReadTopicStartOffsets.topic_ids": REFUSED,
    "ShareGroupHeartbeat.group_id": {24, 42},
    **{field: {42} for field in (
        "ShareGroupHeartbeat.member_id", "ShareFetch.group_id", "ShareFetch.member_id", "ShareAcknowledge.group_id",
        "ShareAcknowledge.member_id", "ShareFetch.share_session_epoch")},
    "ShareAcknowledge.share_session_epoch": {123},
    **{field: {42} for field in ROWS if field.endswith((".acknowledge_types", "_batches.last_offset"))},
    **{field: {3, 121, 42} for field in ROWS if field.endswith("topics.partitions.partition_index")
       and field.startswith("Share")},
    "ExplainRecord.group_id": {42},
    "ShareStream.fetch": REFUSED,
    "DescribeShareGroupOffsets.groups.group_id": {24},
    **{f"{rpc}.group_id": {24} for rpc in ("DeleteShareGroupOffsets", "AlterShareGroupOffsets")},
    **{f"{rpc}.topics.values.topic_name": {3} for rpc in ("DeleteShareGroupOffsets", "AlterShareGroupOffsets")},
    "EndTxn.transactional_id": {42},
    "EndTxn.producer_id": {90},
    "EndTxn.producer_epoch": {48},
    "CreateTopics.topics.name": {17},
    "CreatePartitions.topics.name": {3},
    "CreateTopics.topics.num_partitions": {37},
    "CreatePartitions.topics.count": {37},
    "CreateTopics.topics.configs.name": {40},
    "CreateTopics.topics.configs.value": {40},
    "DescribeConfigs.resources.resource_type": {42},
    "IncrementalAlterConfigs.resources.resource_type": {42},
    "DescribeConfigs.resources.resource_name": {3},
    "IncrementalAlterConfigs.resources.resource_name": {3},
    "IncrementalAlterConfigs.resources.configs.name": {40},
    "IncrementalAlterConfigs.resources.configs.value": {42},
    **{field: {42} for field in ROWS if field.startswith("CreateAcls.creations.")},
    "DescribeAcls.filter": {42},
    **{f"AlterClientQuotas.entries.{field}": {42}
       for field in ("entity", "entity.entity_type", "ops.key", "ops.value")},
    **{f"DescribeClientQuotas.components.{field}": {42} for field in ("entity_type", "match")},
    **{f"{filters}.{name}": {42} for filters in ("DescribeAcls.filter", "DeleteAcls.filters")
       for name in ("resource_type", "resource_pattern_type", "operation", "permission_type")},
    "DescribeUserScramCredentials.users.name": {91},
    "AlterUserScramCredentials.deletions.name": {91},
    "AlterUserScramCredentials.deletions.mechanism": {33},
    "AlterUserScramCredentials.upsertions.mechanism": {33},
    **{f"AlterUserScramCredentials.upsertions.{name}": {93}
       for name in ("name", "iterations", "salt", "salted_password")},
    "InitializeShareGroupState.topics.partitions.state_epoch": {124},
    "WriteShareGroupState.topics.partitions.state_epoch": {124},
    **{f"{rpc}.topics.partitions.{name}": {74} for rpc in ("ReadShareGroupState", "WriteShareGroupState")
       for name in ("leader_epoch", "generation")},
    **{f"{rpc}.topics.partitions.partition": {42} for rpc in ("ReadShareGroupState", "WriteShareGroupState")},
    **{f"WriteShareGroupState.topics.partitions.failures.{name}": {42} for name in ("last_offset", "reason")},
}  # fmt: skip


@pytest.mark.rule("CM-111", "CM-110")
@pytest.mark.parametrize("field", ROWS)
async def test_an_unset_field_means_what_its_row_says(cluster: Cluster, field: str) -> None:
    name, _, path = field.partition(".")
    async with Wire(cluster.bootstrap, cluster.internal) as wire:
        world = World(wire)
        request = await world.set_up(name)
        _cleared(request, path)
        expected = CODES.get(field, set())
        if expected is REFUSED:
            with pytest.raises(TransportError) as refused:
                await world.call(name, request)
            assert refused.value.status is TransportStatus.INVALID_ARGUMENT
            return
        answer = await world.call(name, request)
        assert isinstance(expected, set)
        if expected:
            assert _codes(answer), answer
            assert _codes(answer) <= expected, answer
        else:
            assert _codes(answer) == set(), answer
        if check := MEANINGS.get(field):
            await check(world, answer)
        elif path.split(".")[-1] in ("index", "partition", "partition_index"):
            assert re.search(r"partition|index", str(answer)), answer
            assert not re.search(r"^\s*(index|partition|partition_index): 1$", str(answer), re.MULTILINE), answer


# ---- meanings that no error number shows

Meaning = Callable[[World, Any], Awaitable[None]]
MEANINGS: dict[str, Meaning] = {}


def means(*fields: str) -> Callable[[Meaning], Meaning]:
    def keep(function: Meaning) -> Meaning:
        MEANINGS.update(dict.fromkeys(fields, function))
        return function

    return keep


@means(*[field for field in ROWS if re.fullmatch(
    r"\w+\.(topics|topic_data|groups|group_ids|resources|coordinator_keys|group_id|request|groups_names)"
    r"(\.partitions|\.partition_data)?",
    field) and not field.startswith(("ShareFetch", "ShareAck", "ShareGroupHeart", "Metadata", "EndTxn"))])  # fmt: skip
async def _nothing_is_answered(world: World, answer: Any) -> None:
    part = answer.response if isinstance(answer, produce_pb2.ProduceStreamResponse) else answer
    results = [value for field, value in part.ListFields() if field.message_type is not None]
    assert not any(getattr(one, "partition_responses", None) or getattr(one, "partitions", None)
                   for value in results for one in value), answer  # fmt: skip


@means("Produce.transactional_id", "Produce.timeout_ms", "Produce.topic_data.partition_data.batches.max_timestamp_ms",
       "Produce.topic_data.partition_data.batches.is_transactional")  # fmt: skip
async def _it_is_stored(world: World, answer: Any) -> None:
    assert answer.responses[0].partition_responses[0].base_offset == 3


@means("ProduceStream.correlation_id", "ShareStream.correlation_id", "StateStream.correlation_id")
async def _zero_is_echoed(world: World, answer: Any) -> None:
    assert answer.correlation_id == 0


@means("ProduceStream.traceparent", "ShareStream.traceparent", "StateStream.traceparent")
async def _it_belongs_to_no_trace(world: World, answer: Any) -> None:
    assert answer.correlation_id == 7, "the request is answered"


@means(
    "Fetch.topics.partitions.fetch_offset",
    "Fetch.topics.partitions.current_leader_epoch",
    "Fetch.max_bytes",
    "Fetch.topics.partitions.partition_max_bytes",
    "Fetch.max_wait_ms",
    "Fetch.min_bytes",
    "Fetch.isolation_level",
    "Fetch.batch_formats",
)
async def _the_batch_is_read(world: World, answer: Any) -> None:
    (batch,) = answer.responses[0].partitions[0].records
    assert (batch.base_offset, batch.count) == (0, 3)


@means("AlterShareGroupOffsets.topics.values.partitions.start_offset")
async def _it_begins_at_the_beginning(world: World, answer: Any) -> None:
    assert await world.wire.lag(world.group, world.topic, 1) == (0, 3)


@means("ListOffsets.topics.partitions.current_leader_epoch", "ListOffsets.topics.partitions.holes_from",
       "ListOffsets.topics.partitions.share_group_id")  # fmt: skip
async def _the_end_is_reported(world: World, answer: Any) -> None:
    (part,) = answer.topics[0].partitions
    assert (part.offset, part.holes) == (3, 0)


@means("ExplainRecord.partition_index", "ExplainRecord.offset", "ExplainRecord.last_offset")
async def _the_records_are_explained(world: World, answer: Any) -> None:
    (reported,) = answer.records
    full = await world.call("ExplainRecord", await FULL["ExplainRecord"](world))
    assert (full.records[0].first_offset, full.records[0].last_offset) == (1, 2)
    if reported.first_offset == 1:  # of partition 0, or only of offset 1
        assert reported.last_offset in (1, 2)
    else:
        assert (reported.first_offset, reported.last_offset) == (0, 2)
    assert answer.high_watermark == 3


@means("DescribeLogDirs.topics", "DescribeLogDirs.topics.values.partitions")
async def _all_partitions_are_measured(world: World, answer: Any) -> None:
    topics = {topic.name: topic for result in answer.results for topic in result.topics}
    found = {part.partition_index: part.record_count for part in topics[world.topic].partitions}
    assert found == {0: 3, 1: 3}


@means("DescribeLogDirs.topics.values", "DescribeLogDirs.topics.values.topic")
async def _the_store_alone_is_described(world: World, answer: Any) -> None:
    (store,) = answer.results
    assert not store.topics
    assert store.used_bytes > 0


@means("ListOffsets.topics.partitions.timestamp")
async def _the_first_is_found(world: World, answer: Any) -> None:
    assert answer.topics[0].partitions[0].offset == 0


@means("DeleteRecords.topics.partitions.offset")
async def _nothing_is_deleted(world: World, answer: Any) -> None:
    assert answer.topics[0].partitions[0].low_watermark == 0


@means("ShareFetch.max_bytes", "ShareFetch.max_records")
async def _nothing_is_acquired(world: World, answer: Any) -> None:
    (part,) = answer.responses[0].partitions
    assert not part.acquired_records
    assert world.session is not None
    assert (await world.wire.lag(world.group, world.topic, 1))[1] == 2  # although 1 and 2 are accepted


@means(
    "ShareFetch.batch_size",
    "ShareFetch.share_acquire_mode",
    "ShareFetch.is_renew_ack",
    "ShareFetch.session_id",
    "ShareFetch.compression_types",
    "ShareFetch.batch_formats",
    "ShareFetch.topics.partitions.partition_max_bytes",
    "ShareFetch.topics.partitions.acknowledgement_batches.release_delays_ms",
    "ShareFetch.topics.partitions.acknowledgement_batches.undelivered",
    "ShareFetch.topics.partitions.acknowledgement_batches.reason",
)
async def _the_fourth_is_acquired(world: World, answer: Any) -> None:
    (part,) = answer.responses[0].partitions
    assert [(one.first_offset, one.last_offset) for one in part.acquired_records] == [(3, 3)]


@means(
    "ShareFetch.topics.partitions.acknowledgement_batches.first_offset",
    "ShareAcknowledge.topics.partitions.acknowledgement_batches.first_offset",
)
async def _offset_0_is_accepted_too(world: World, answer: Any) -> None:
    async for _ in attempts():
        if await world.wire.lag(world.group, world.topic, 1) == (3, 1):
            return
    raise AssertionError(await world.wire.lag(world.group, world.topic, 1))


@means("ShareFetch.topics.partitions.partition_index")
async def _partition_0_is_meant(world: World, answer: Any) -> None:
    codes = {part.partition_index: part.acknowledge_error_code for part in answer.responses[0].partitions}
    assert codes[0] != 0
    assert codes.get(1, 0) == 0


@means("CreateTopics.validate_only")
async def _it_is_created(world: World, answer: Any) -> None:
    assert any(answer.topics[0].topic_id)


@means("IncrementalAlterConfigs.resources.configs.config_operation", "IncrementalAlterConfigs.validate_only")
async def _it_is_set(world: World, answer: Any) -> None:
    async for _ in attempts():
        shown = await world.call("DescribeConfigs", await FULL["DescribeConfigs"](world))
        if shown.results[0].configs[0].value == "5000":
            return
    raise AssertionError(shown)


@means("CreateAcls.creations", "DeleteAcls.filters")
async def _no_entry_has_a_result(world: World, answer: Any) -> None:
    assert not answer.ListFields()


@means(*[f"DescribeAcls.filter.{name}" for name in ("resource_name", "principal", "host")])
async def _the_entry_is_listed(world: World, answer: Any) -> None:
    assert world.topic in {entry.resource_name for entry in answer.acls}


@means(*[f"DeleteAcls.filters.{name}" for name in ("resource_name", "principal", "host")])
async def _the_entry_is_removed(world: World, answer: Any) -> None:
    assert world.topic in {entry.resource_name for entry in answer.filter_results[0].matching_acls}


@means("DescribeClientQuotas.components")
async def _no_entity_is_without_parts(world: World, answer: Any) -> None:
    assert not answer.entries  # the request is strict


@means("AlterClientQuotas.entries")
async def _no_entity_has_a_result(world: World, answer: Any) -> None:
    assert not answer.ListFields()


@means(
    "AlterClientQuotas.entries.ops",
    "AlterClientQuotas.entries.entity.entity_name",
    "AlterClientQuotas.entries.ops.remove",
    "AlterClientQuotas.validate_only",
)
async def _the_entity_has_no_error(world: World, answer: Any) -> None:
    assert [entry.error_code for entry in answer.entries] == [0]
    if answer.entries[0].entity[0].HasField("entity_name"):
        assert answer.entries[0].entity[0].entity_name == world.group


@means(*[f"DescribeClientQuotas.{field}" for field in ("components.match_type", "strict")])
async def _the_quota_is_listed(world: World, answer: Any) -> None:
    assert world.group in {entry.entity[0].entity_name for entry in answer.entries}


@means("DescribeUserScramCredentials.users")
async def _the_user_is_listed(world: World, answer: Any) -> None:
    assert world.group in {result.user for result in answer.results}


@means("AlterUserScramCredentials.deletions", "AlterUserScramCredentials.upsertions")
async def _the_other_is_altered(world: World, answer: Any) -> None:
    assert [(result.user, result.error_code) for result in answer.results] == [(world.group, 0)]


@means(*[field for field in ROWS if field.startswith("InitProducerId.")])
async def _the_id_is_new_and_not_0(world: World, answer: Any) -> None:
    assert answer.producer_id > 0
    assert answer.producer_epoch == 0


@means("EndTxn.committed", "EndTxn.topics", "EndTxn.topics.partition_indexes", "EndTxn.by_operator")
async def _the_next_epoch_is_reported(world: World, answer: Any) -> None:
    assert answer.producer_epoch == 2


@means(*[field for field in ROWS if field.startswith("ListTransactions.")])
async def _the_open_transaction_is_reported(world: World, answer: Any) -> None:
    assert "Ongoing" in {each.transaction_state for each in answer.transaction_states}


@means("DescribeTransactions.transactional_ids")
async def _no_transaction_is_reported(world: World, answer: Any) -> None:
    assert not answer.transaction_states


@means("InitializeShareGroupState.topics.partitions.start_offset")
async def _from_the_beginning(world: World, answer: Any) -> None:
    assert (await world.state_call("ReadShareGroupStateSummary")).start_offset == 0


@means("WriteShareGroupState.topics.partitions.start_offset")
async def _the_start_stays(world: World, answer: Any) -> None:
    assert (await world.state_call("ReadShareGroupStateSummary")).start_offset == 2


@means(*[field for field in ROWS if field.startswith("EndMemberSessions.")])
async def _the_session_goes_on(world: World, answer: Any) -> None:
    assert world.session is not None
    assert (await world.session.fetch({1: [(1, 2, [1])]}, wait_ms=0)).error_code == 0


@means("StateStream.read")
async def _the_answer_holds_none(world: World, answer: Any) -> None:
    assert answer.WhichOneof("response") is None
