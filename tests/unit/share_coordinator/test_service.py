"""The service: splitting requests by key, results per key, and the stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, InvalidRequestError
from kip932.failures import FAILURES_MAX
from kip932.ids import EXPLAINED_OFFSETS_MAX, REQUEST_PARTITIONS_MAX, SharePartitionKey, state_shard
from kip932.internal.v1 import share_coordinator_service_pb2 as service_pb
from kip932.internal.v1.state_stream_pb2 import StateStreamRequest
from kip932.records.v1.state_batch_pb2 import Failure, StateBatch
from kip932.rpc.transport import TransportError, TransportStatus, service_methods
from kip932.state_values import InitializeState, ReadState, StoredState, WriteState
from shard_runtime.cluster.owners import OwnerAddress
from shard_runtime.tracing import tracing
from share_coordinator.core.commands import CommandBatch
from share_coordinator.service import KEYS_SLICE
from tests.support.share_coordinators import SHARDS, CoordinatorProcess
from tests.support.share_state import OTHER_TOPIC, TOPIC
from tests.support.telemetry import telemetry
from tests.support.virtual_time import now_s, virtual
from tests.twin.transport import InMemoryNetwork

_SERVICE = service_pb.DESCRIPTOR.services_by_name["ShareCoordinatorService"]
_METHODS = service_methods(_SERVICE)
_ADDRESS = "node:1"
#: The RPCs about share-partitions of one group.
_ALL = [name for name in _METHODS if name not in {"StateStream", "ReadTopicStartOffsets"}]
_FIELDS: dict[str, dict[str, Any]] = {
    "InitializeShareGroupState": {"state_epoch": 1, "start_offset": 0},
    "WriteShareGroupState": {"state_epoch": 1, "leader_epoch": 1, "start_offset": 0},
    "ReadShareGroupState": {"leader_epoch": 1},
}

Name = tuple[bytes, int]


def _request(rpc: str, *names: Name, group: str = "g", **fields: Any) -> Any:
    request: Any = _METHODS[rpc].request_type(group_id=group)
    for topic_id, partition in names:
        topic = request.topics.add(topic_id=topic_id)
        topic.partitions.add(partition=partition, **{**_FIELDS.get(rpc, {}), **fields})
    return request


def _batch(first: int, last: int) -> StateBatch:
    return StateBatch(first_offset=first, last_offset=last, delivery_state=2, delivery_count=1)


def _codes(response: Any) -> dict[Name, int]:
    return {(t.topic_id, p.partition): p.error_code for t in response.results for p in t.partitions}


class Client:
    """Calls a coordinator's service through the in-memory transport, with encoded messages."""

    def __init__(self, world: CoordinatorProcess) -> None:
        network = InMemoryNetwork()
        network.serve(_ADDRESS, _SERVICE, world.service)
        self.transport = network.transport()

    async def call(self, rpc: str, *names: Name, **fields: Any) -> Any:
        return await self.send(rpc, _request(rpc, *names, **fields))

    async def send(self, rpc: str, request: Any) -> Any:
        return await self.transport.call(_ADDRESS, _METHODS[rpc], request, 30)


def _shard(topic_id: bytes, partition: int) -> int:
    return state_shard(SharePartitionKey("g", topic_id, partition), SHARDS)


@pytest.mark.rule("SC-37", "SC-50", "OP-18")
@virtual
async def test_the_five_rpcs_carry_their_fields_both_ways() -> None:
    client = Client(CoordinatorProcess())
    name = (TOPIC, 0)
    assert _codes(await client.call("InitializeShareGroupState", name, start_offset=5)) == {name: 0}
    batch = {"first_offset": 7, "last_offset": 9, "delivery_state": 2, "delivery_count": 1}
    write = await client.call(
        "WriteShareGroupState", name, start_offset=5, state_batches=[batch], delivery_complete_count=3
    )
    assert _codes(write) == {name: 0}
    read = (await client.call("ReadShareGroupState", name)).results[0].partitions[0]
    assert (read.state_epoch, read.start_offset, len(read.state_batches)) == (1, 5, 1)
    assert (read.state_batches[0].first_offset, read.state_batches[0].last_offset) == (7, 9)
    summary = (await client.call("ReadShareGroupStateSummary", name)).results[0].partitions[0]
    assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (1, 1, 5)
    assert summary.delivery_complete_count == 3
    assert not summary.state_batches
    assert not summary.HasField("delayed")
    counted = (await client.call("ReadShareGroupStateSummary", name, delayed_at_ms=1)).results[0].partitions[0]
    assert (counted.HasField("delayed"), counted.delayed) == (True, 0)
    for through, last in ((8, 8), (99, 9), (None, 7)):
        summary = await client.call("ReadShareGroupStateSummary", name, batches_from=7, batches_through=through)
        (one,) = summary.results[0].partitions[0].state_batches
        assert (one.first_offset, one.last_offset, one.delivery_state) == (7, last, 2)
    assert _codes(await client.call("DeleteShareGroupState", name, state_epoch=0)) == {name: 124}
    assert _codes(await client.call("DeleteShareGroupState", name)) == {name: 0}
    gone = (await client.call("ReadShareGroupStateSummary", name)).results[0].partitions[0]
    assert (gone.start_offset, gone.delivery_complete_count) == (-1, -1)


@pytest.mark.rule("SC-117")
@virtual
async def test_reasons_of_failures_come_back_in_reads_and_in_summaries_of_their_offsets() -> None:
    client, name = Client(CoordinatorProcess()), (TOPIC, 0)
    await client.call("InitializeShareGroupState", name)
    failure: dict[str, Any] = {"first_offset": 3, "last_offset": 9, "delivery_count": 2}
    failure["reason"] = "ValueError: ä\x1b\n  line 2"
    assert _codes(await client.call("WriteShareGroupState", name, failures=[failure])) == {name: 0}
    (read,) = (await client.call("ReadShareGroupState", name)).results[0].partitions[0].failures
    assert read == Failure(**failure)
    span = {"batches_from": 8, "batches_through": 20}
    (part,) = (await client.call("ReadShareGroupStateSummary", name, **span)).results[0].partitions[0].failures
    assert part == Failure(**{**failure, "first_offset": 8})
    assert not (await client.call("ReadShareGroupStateSummary", name)).results[0].partitions[0].failures
    refused = await client.call("WriteShareGroupState", name, failures=[{**failure, "reason": ""}])
    assert _codes(refused) == {name: InvalidRequestError.code}


@pytest.mark.rule("SC-117", "CM-91")
@virtual
async def test_more_reasons_than_a_share_partition_keeps_are_refused_as_a_whole() -> None:
    client, name = Client(CoordinatorProcess()), (TOPIC, 0)
    await client.call("InitializeShareGroupState", name)
    failures = [Failure(first_offset=at, last_offset=at, delivery_count=1, reason="x") for at in range(FAILURES_MAX)]
    assert _codes(await client.call("WriteShareGroupState", name, failures=failures)) == {name: 0}
    with pytest.raises(TransportError, match="has 5001 reasons of failures; at most 5000") as refused:
        await client.call("WriteShareGroupState", name, failures=[*failures, failures[0]])
    assert refused.value.status is TransportStatus.INVALID_ARGUMENT


@pytest.mark.rule("CM-91", "SC-117")
@virtual
async def test_what_would_make_a_response_too_large_is_to_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("share_coordinator.service.RESPONSE_BYTES", 2_000)
    client, names = Client(CoordinatorProcess()), [(TOPIC, partition) for partition in range(6)]
    await client.call("InitializeShareGroupState", *names)
    failure = {"first_offset": 3, "last_offset": 9, "delivery_count": 2, "reason": "x" * 900}
    await client.call("WriteShareGroupState", *names, failures=[failure])
    left = set(names)
    for _ in range(2):
        response = await client.call("ReadShareGroupState", *sorted(left))
        assert response.ByteSize() < 2_000 + 1_000 + 500
        codes = _codes(response)
        assert sorted(codes.values()) == [0] * 3 + [CoordinatorLoadInProgressError.code] * (len(left) - 3)
        left -= {name for name, code in codes.items() if not code}
    assert not left


@pytest.mark.rule("SC-12", "SC-15")
@virtual
async def test_a_refused_key_does_not_fail_the_others_and_says_why() -> None:
    client = Client(CoordinatorProcess())
    names = [(TOPIC, 0), (TOPIC, 99), (OTHER_TOPIC, 1)]
    response = await client.call("InitializeShareGroupState", *names)
    assert _codes(response) == {names[0]: 0, names[1]: 3, names[2]: 0}
    messages = [p.error_message for t in response.results for p in t.partitions if p.error_code]
    assert messages[0].startswith("Unable to initialize share group state: ")


@pytest.mark.scenario("S-091")
@virtual
async def test_a_summary_of_a_partition_that_cannot_be_is_refused_and_a_leader_epoch_in_it_raises_nothing() -> None:
    client = Client(CoordinatorProcess())
    await client.call("InitializeShareGroupState", (TOPIC, 0))
    for _ in range(2):
        answer = await client.call("ReadShareGroupStateSummary", (TOPIC, 0), leader_epoch=1)
        (found,) = answer.results[0].partitions
        assert (found.error_code, found.leader_epoch) == (0, 0)
    refused = await client.call("ReadShareGroupStateSummary", (TOPIC, -1))
    assert _codes(refused) == {(TOPIC, -1): InvalidRequestError.code}


@pytest.mark.rule("SC-13")
@virtual
async def test_a_key_named_twice_runs_twice_in_order_and_answers_its_first_error() -> None:
    world = CoordinatorProcess()
    client = Client(world)
    name = (TOPIC, 0)
    await client.call("InitializeShareGroupState", name)
    request = _request("WriteShareGroupState", name)
    for start, leader in ((10, 1), (20, 1)):
        request.topics.add(topic_id=TOPIC).partitions.add(
            partition=0, state_epoch=1, leader_epoch=leader, start_offset=start
        )
    assert _codes(await client.send("WriteShareGroupState", request)) == {name: 0}
    host = world.directory.hosts[_shard(*name)]
    written = [command for command in host.commands if isinstance(command, WriteState)]
    assert [command.start_offset for command in written] == [0, 10, 20]
    request.topics[1].partitions[0].state_epoch = 0
    assert _codes(await client.send("WriteShareGroupState", request)) == {name: 124}


@pytest.mark.rule("P-2", "SC-12")
@virtual
async def test_all_keys_of_one_shard_reach_its_host_as_one_command() -> None:
    world = CoordinatorProcess()
    client = Client(world)
    names = [(TOPIC, partition) for partition in range(8)]
    await client.call("InitializeShareGroupState", *names)
    for host in world.directory.hosts:
        (command,) = host.commands
        assert isinstance(command, CommandBatch)
        assert len(command.commands) == 2


@pytest.mark.rule("SC-5", "SC-10", "SC-11")
@pytest.mark.scenario("S-096")
@pytest.mark.parametrize("rpc", _ALL)
@virtual
async def test_not_running_and_empty_requests(rpc: str) -> None:
    world = CoordinatorProcess()
    client = Client(world)
    for empty in (_request(rpc), _request(rpc, (TOPIC, 0), group="")):
        assert not (await client.send(rpc, empty)).results
    without_partitions = _request(rpc, (TOPIC, 0))
    without_partitions.topics.add(topic_id=OTHER_TOPIC)
    assert not (await client.send(rpc, without_partitions)).results
    world.dispatcher.active = False
    names = [(TOPIC, 0), (OTHER_TOPIC, 1)]
    assert _codes(await client.call(rpc, *names)) == dict.fromkeys(names, 15)
    emptiness_first = rpc in ("ReadShareGroupState", "WriteShareGroupState")
    without_group = _codes(await client.send(rpc, _request(rpc, *names, group="")))
    assert without_group == ({} if emptiness_first else dict.fromkeys(names, 15))


@pytest.mark.rule("SC-5", "CM-14", "SC-29a")
@virtual
async def test_refusals_carry_the_owner_and_the_stored_leader_epoch() -> None:
    world = CoordinatorProcess()
    client = Client(world)
    name = (TOPIC, 0)
    await client.call("InitializeShareGroupState", name)
    await client.call("ReadShareGroupState", name, leader_epoch=7)
    fenced = (await client.call("ReadShareGroupState", name, leader_epoch=6)).results[0].partitions[0]
    assert (fenced.error_code, fenced.leader_epoch) == (74, 7)
    write = (await client.call("WriteShareGroupState", name, leader_epoch=6)).results[0].partitions[0]
    assert (write.error_code, write.leader_epoch) == (74, 7)
    assert (world.meter.fences, world.meter.raises, world.meter.written) == (2, 1, 1)
    world.directory.elsewhere[_shard(*name)] = OwnerAddress(3, "other", 9092)
    moved = (await client.call("ReadShareGroupState", name)).results[0].partitions[0]
    assert (moved.error_code, moved.coordinator.host, moved.coordinator.port) == (16, "other", 9092)


@pytest.mark.scenario("S-114")
@pytest.mark.rule("SC-5")
@virtual
async def test_a_loading_shard_says_so() -> None:
    world = CoordinatorProcess()
    world.directory.hosts[_shard(TOPIC, 0)].refusal = CoordinatorLoadInProgressError()
    response = await Client(world).call("ReadShareGroupState", (TOPIC, 0), (TOPIC, 1))
    assert _codes(response) == {(TOPIC, 0): 14, (TOPIC, 1): 42}


@pytest.mark.rule("SC-63", "SC-12")
@virtual
async def test_after_the_write_timeout_only_the_slow_shard_is_not_available_and_its_record_may_still_land() -> None:
    world = CoordinatorProcess(write_timeout_ms=5_000)
    client = Client(world)
    slow = world.directory.hosts[_shard(TOPIC, 0)]
    slow.held = True
    response = await client.call("InitializeShareGroupState", (TOPIC, 0), (TOPIC, 1))
    assert _codes(response) == {(TOPIC, 0): 15, (TOPIC, 1): 0}
    assert now_s() == pytest.approx(5)
    slow.commit()
    slow.held = False
    assert _codes(await client.call("ReadShareGroupState", (TOPIC, 0))) == {(TOPIC, 0): 0}


@pytest.mark.rule("SC-63", "P-12")
@virtual
async def test_one_command_ends_in_time_or_with_its_error_and_a_late_confirmation_does_no_harm() -> None:
    world = CoordinatorProcess(write_timeout_ms=5_000)
    key = SharePartitionKey("g", TOPIC, 0)
    host = world.directory.hosts[_shard(TOPIC, 0)]
    host.held = True
    for within_ms, until_s in ((9_000, 5.0), (1_000, 6.0)):
        outcome = await world.dispatcher.run_one(InitializeState(key, 1, 0), within_ms)
        assert isinstance(outcome, CoordinatorNotAvailableError)
        assert now_s() == pytest.approx(until_s)
    host.commit()
    host.held = False
    assert isinstance(await world.dispatcher.run_one(ReadState(key, 1, 1), 1_000), StoredState)
    host.refusal = CoordinatorLoadInProgressError()
    assert await world.dispatcher.run_one(ReadState(key, 1, 1), 1_000) is host.refusal


@virtual
async def test_a_topic_id_of_another_length_is_no_request() -> None:
    with pytest.raises(TransportError) as failure:
        await Client(CoordinatorProcess()).call("ReadShareGroupState", (b"short", 0))
    assert failure.value.status is TransportStatus.INVALID_ARGUMENT


@pytest.mark.rule("P-4")
@virtual
async def test_answers_on_a_stream_overtake_a_slow_one() -> None:
    world = CoordinatorProcess()
    client = Client(world)
    names = [(TOPIC, 0), (TOPIC, 1)]
    await client.call("InitializeShareGroupState", *names)
    slow = world.directory.hosts[_shard(*names[0])]
    slow.held = True
    stream: Any = await client.transport.open_stream(_ADDRESS, _METHODS["StateStream"])
    for correlation_id, name in enumerate(names, start=1):
        write = _request("WriteShareGroupState", name)
        await stream.write(StateStreamRequest(correlation_id=correlation_id, write=write))
    await stream.write(StateStreamRequest(correlation_id=3, read=_request("ReadShareGroupState", names[1])))
    answers = [await stream.read(), await stream.read()]
    assert {(answer.correlation_id, answer.WhichOneof("response")) for answer in answers} == {
        (2, "write"),
        (3, "read"),
    }
    slow.commit()
    last = await stream.read()
    assert (last.correlation_id, _codes(last.write)) == (1, {names[0]: 0})
    await stream.close()


@pytest.mark.rule("CM-216")
@virtual
async def test_the_span_of_a_write_whose_stream_ends_before_its_answer_ends_with_a_status() -> None:
    world = CoordinatorProcess()
    client = Client(world)
    await client.call("InitializeShareGroupState", (TOPIC, 0))
    world.directory.hosts[_shard(TOPIC, 0)].held = True
    with telemetry() as found:
        tracing.refresh()
        stream: Any = await client.transport.open_stream(_ADDRESS, _METHODS["StateStream"])
        write = _request("WriteShareGroupState", (TOPIC, 0))
        sender = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        for traceparent in (sender, "no", "0" * 100_000):
            await stream.write(StateStreamRequest(correlation_id=1, write=write, traceparent=traceparent))
        await asyncio.sleep(1)
        name = "kip932.internal.v1.ShareCoordinatorService/WriteShareGroupState"
        assert found.unended() == [name]
        await stream.close()
        await asyncio.sleep(1)
        assert found.unended() == []
        assert (found.one(name).attributes or {})["error.type"] == "CANCELLED"
    tracing.refresh()


@virtual
async def test_a_request_of_an_unknown_kind_is_answered_without_a_response() -> None:
    stream: Any = await Client(CoordinatorProcess()).transport.open_stream(_ADDRESS, _METHODS["StateStream"])
    await stream.write(StateStreamRequest(correlation_id=9))
    answer = await stream.read()
    assert (answer.correlation_id, answer.WhichOneof("response")) == (9, None)
    await stream.close()


@virtual
async def test_a_question_for_start_offsets_that_is_given_up_leaves_no_shard_with_an_answer_that_is_never_read() -> (
    None
):
    world = CoordinatorProcess()
    for host in world.directory.hosts:
        host.held = True
    asked = asyncio.get_running_loop().create_task(world.dispatcher.topic_starts(frozenset({TOPIC})))
    await asyncio.sleep(1)
    asked.cancel()
    await asyncio.wait([asked])
    futures = [future for host in world.directory.hosts for future, _ in host._waiting]
    assert len(futures) == len(world.directory.hosts)
    assert all(future.cancelled() for future in futures), "else each logs a failure that comes later"


@pytest.mark.rule("SC-80")
@virtual
async def test_deleted_topics_are_tombstoned_on_every_served_shard_in_spite_of_a_refusal() -> None:
    world = CoordinatorProcess()
    client = Client(world)
    names = [(TOPIC, partition) for partition in range(8)] + [(OTHER_TOPIC, 0)]
    await client.call("InitializeShareGroupState", *names)
    refusing = world.directory.hosts[0]
    refusing.refusal = CoordinatorLoadInProgressError()
    asyncio.get_running_loop().call_later(5, setattr, refusing, "refusal", None)
    assert await world.dispatcher.delete_topics(frozenset({TOPIC})) == 8
    assert sum(host.states.keys for host in world.directory.hosts) == 1


@pytest.mark.rule("CM-62")
@virtual
async def test_a_request_that_names_more_partitions_than_one_may_is_an_invalid_argument() -> None:
    client = Client(CoordinatorProcess())
    for rpc in _ALL:
        with pytest.raises(TransportError, match="go into one request") as refused:
            await client.call(rpc, *((TOPIC, number) for number in range(REQUEST_PARTITIONS_MAX + 1)))
        assert refused.value.status is TransportStatus.INVALID_ARGUMENT


@pytest.mark.rule("CM-91", "SC-50")
@virtual
async def test_the_offsets_whose_state_batches_a_summary_asks_for_are_bounded() -> None:
    client = Client(CoordinatorProcess())
    await client.call("InitializeShareGroupState", (TOPIC, 0))
    await client.call(
        "WriteShareGroupState", (TOPIC, 0), state_batches=[_batch(0, 0), _batch(2, 2), _batch(4_000, 4_000)]
    )

    async def ask(count: int, partitions: int = 1) -> Any:
        names = [(TOPIC, number) for number in range(partitions)]
        return await client.call("ReadShareGroupStateSummary", *names, batches_from=1, batches_through=count)

    found = (await ask(EXPLAINED_OFFSETS_MAX)).results[0].partitions[0]
    assert [(one.first_offset, one.last_offset) for one in found.state_batches] == [(2, 2)]
    for count, partitions, said in (
        (EXPLAINED_OFFSETS_MAX + 1, 1, "asked for 1001 offsets of a share-partition; at most 1000 at a time"),
        (EXPLAINED_OFFSETS_MAX, 51, "asked for 51000 offsets; at most 50000 go into one request"),
    ):
        with pytest.raises(TransportError, match=said) as refused:
            await ask(count, partitions)
        assert refused.value.status is TransportStatus.INVALID_ARGUMENT


@pytest.mark.rule("CM-94")
@virtual
async def test_a_large_request_reaches_all_shards_before_a_later_one_though_one_shard_hangs() -> None:
    """Its caller gives up and then repeats the write of one share-partition in its last part: the old write must not be
    applied after that."""

    world = CoordinatorProcess(write_timeout_ms=5_000)
    client = Client(world)
    names = [(TOPIC, partition) for partition in range(3 * KEYS_SLICE)]
    world.directory.metadata.topics[TOPIC] = len(names)
    await client.call("InitializeShareGroupState", *names)
    last = names[-1]
    shard = state_shard(SharePartitionKey("g", *last), SHARDS)
    for index, host in enumerate(world.directory.hosts):
        host.held = index != shard
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    large = asyncio.ensure_future(client.call("WriteShareGroupState", *names, start_offset=5))
    await asyncio.sleep(1)
    later = await client.call("WriteShareGroupState", last, start_offset=9)
    assert _codes(later) == {last: 0}
    found = _codes(await large)
    assert (len(found), found[last], loop.time() - began_s) == (len(names), 0, 5.0), "one time-out for all parts"
    read = await client.call("ReadShareGroupState", last)
    assert read.results[0].partitions[0].start_offset == 9


@pytest.mark.rule("CM-111")
@virtual
async def test_a_reset_to_the_beginning_by_an_older_node_is_one() -> None:
    """The older protocol has no field presence, so a 0 is not sent. Read as -1, it would start the group at the end of
    the log."""

    client = Client(CoordinatorProcess())
    name = (TOPIC, 0)
    request: Any = _METHODS["InitializeShareGroupState"].request_type(group_id="g")
    request.topics.add(topic_id=TOPIC).partitions.add(partition=0, state_epoch=1)
    assert _codes(await client.send("InitializeShareGroupState", request)) == {name: 0}
    read = await client.call("ReadShareGroupState", name)
    assert read.results[0].partitions[0].start_offset == 0
