"""The persister: its operations, how they are batched, what it refuses, and how it closes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932 import errors
from kip932.failures import FAILURES_MAX, REASONS_BYTES_MAX, Failure
from kip932.ids import TopicIdPartition
from kip932.internal.v1 import share_coordinator_service_pb2
from kip932.state_batches import StateBatch, WriteStats
from kip932.state_values import ReadState, ReadSummary, StateSpan, StateSummary, StoredState, WriteState
from shard_runtime.rpc.binding import bind
from shard_runtime.rpc.bounds import check_state_batches
from share_coordinator.service import ShareCoordinatorService
from share_persister import PersisterError, PersisterSettings
from share_persister.messages import build_request, method_of
from share_persister.node_queue import NodeQueue, QueuedCall
from tests.support.coordinator_nodes import Net, change, failure_of, key
from tests.support.share_state import OTHER_TOPIC, TOPIC
from tests.support.virtual_time import now_s, virtual

STATE_SERVICE = share_coordinator_service_pb2.DESCRIPTOR.services_by_name["ShareCoordinatorService"]


def _partitions(request: Any) -> list[int]:
    return [partition.partition for topic in request.write.topics for partition in topic.partitions]


@pytest.mark.rule("SC-90", "PL-602", "PL-702", "P-4", "GC-118", "SC-96")
@pytest.mark.parametrize("beside", [True, False])
@virtual
async def test_all_operations_reach_the_coordinator_and_come_back(beside: bool) -> None:
    net = Net()
    world = net.real()
    persister = net.persister(local=world.dispatcher if beside else None)
    names = [TopicIdPartition(TOPIC, 0), TopicIdPartition(OTHER_TOPIC, 3), TopicIdPartition(TOPIC, 77)]
    failures = await persister.initialize("g", 4, dict.fromkeys(names, 10))
    assert [failures[name] and type(failures[name].error) for name in names[:2]] == [None, None]  # type: ignore[union-attr]
    assert isinstance(failures[names[2]], PersisterError)
    assert await persister.read(ReadState(key(), 3, 1)) == StoredState(4, 10, (), recorded=beside)
    stats = WriteStats(cause=1, n_accept=5, hwm=100)
    write = change((12, 15, 2, 1), start=11, leader=3, generation=1)._replace(stats=stats)
    await persister.write(write._replace(delivery_complete_count=4))
    assert await persister.read(ReadState(key(), 3, 1)) == StoredState(4, 11, (StateBatch(12, 15, 2, 1),))
    sent = [command for host in world.directory.hosts for command in host.commands if isinstance(command, WriteState)]
    assert sent[0].stats == stats
    summaries = await persister.summary("g", names[:2])
    assert summaries == {names[0]: StateSummary(4, 3, 11, 4, 0, 0), names[1]: StateSummary(4, 0, 10, 0, 0, 0)}
    waits = StateBatch(16, 18, 0, 1, 5_000)
    await persister.write(write._replace(batches=(waits,), delivery_complete_count=4))
    for at_ms, delayed in ((4_999, 3), (5_000, 0)):
        counted = await persister.summary("g", names[:1], at_ms)
        assert counted == {names[0]: StateSummary(4, 3, 11, 4, 0, 0, delayed=delayed)}
    bounded = await persister.read_summary(ReadSummary(key(), StateSpan(13, 15)))
    assert bounded == StateSummary(4, 3, 11, 4, 0, 0, (StateBatch(13, 15, 2, 1),))
    deleted = await persister.delete("g", {names[0]: 3, names[1]: 4})
    refused = deleted[names[0]]
    assert isinstance(refused, PersisterError)
    assert isinstance(refused.error, errors.FencedStateEpochError)
    assert deleted[names[1]] is None
    await persister.close()


@pytest.mark.rule("SC-117", "PL-942")
@pytest.mark.parametrize("beside", [True, False])
@virtual
async def test_reasons_of_failures_reach_the_coordinator_and_come_back(beside: bool) -> None:
    net = Net()
    world = net.real()
    persister = net.persister(local=world.dispatcher if beside else None)
    await persister.initialize("g", 4, {TopicIdPartition(TOPIC, 0): 10})
    failures = (Failure(12, 14, 1, "ValueError: ä"), Failure(15, 15, 3, "KeyError: b"))
    await persister.write(change((12, 15, 0, 1), start=11, leader=3)._replace(failures=failures))
    assert (await persister.read(ReadState(key(), 3, 0))).failures == failures
    bounded = await persister.read_summary(ReadSummary(key(), StateSpan(14, 99)))
    assert bounded.failures == (Failure(14, 14, 1, "ValueError: ä"), failures[1])
    await persister.close()


@pytest.mark.rule("CM-91", "PL-942")
@virtual
async def test_states_that_are_too_large_for_one_response_are_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("share_coordinator.service.RESPONSE_BYTES", 2_000)
    net = Net()
    net.real()
    persister = net.persister()
    await persister.initialize("g", 4, {TopicIdPartition(TOPIC, number): 10 for number in range(9)})
    failures = (Failure(12, 14, 1, "x" * 1_000),)
    for number in range(9):
        await persister.write(change(start=11, leader=3, of=key(number))._replace(failures=failures))
    found = await asyncio.gather(*(persister.read(ReadState(key(number), 3, 0)) for number in range(9)))
    assert [state.failures for state in found] == [failures] * 9
    assert now_s() > 0, "some were asked for again"
    await persister.close()


@pytest.mark.rule("CM-91", "CM-181", "SC-117")
@pytest.mark.parametrize("reason", ["x", "x" * 52, "€" * 341 + "x"])
@virtual
async def test_any_reasons_fill_requests_that_every_node_accepts(reason: str) -> None:
    most = min(FAILURES_MAX, REASONS_BYTES_MAX // len(reason.encode()))
    failures = tuple(Failure(2**62 + at, 2**62 + at, 2**15 - 1, reason) for at in range(most))
    commands = [
        change(*[(at, at, 2, 1) for at in range(0, 2_000, 2)], of=key(number))._replace(failures=failures)
        for number in range(40)
    ]
    served = {bound.method.path: bound for bound in bind(STATE_SERVICE, ShareCoordinatorService(None))}  # type: ignore[arg-type]
    write = served[method_of(WriteState).path]
    sizes: list[int] = []

    async def send(request: Any) -> Any:
        write.parse(request.SerializeToString())
        counts = [
            (len(each.state_batches), len(each.failures)) for topic in request.topics for each in topic.partitions
        ]
        check_state_batches([batches for batches, _ in counts], [failures for _, failures in counts])
        sizes.append(len(counts))
        return write.method.response_type()

    queue = NodeQueue(WriteState, send, PersisterSettings())
    entries = [QueuedCall(command) for command in commands]
    for entry in entries:
        queue.add(entry)
    await asyncio.gather(*(entry.outcome for entry in entries))
    assert sum(sizes) == len(commands)
    assert 1 <= max(sizes) < len(commands)


@pytest.mark.rule("GC-114")
def test_a_summary_is_asked_for_without_a_leader_epoch() -> None:
    request: Any = build_request(ReadSummary, "g", [ReadSummary(key(3))])
    (topic,) = request.topics
    assert [(each.partition, each.leader_epoch) for each in topic.partitions] == [(3, -1)]
    assert not topic.partitions[0].HasField("batches_from")


@pytest.mark.rule("PL-825")
def test_a_summary_of_some_offsets_asks_for_their_batches() -> None:
    request: Any = build_request(ReadSummary, "g", [ReadSummary(key(3), StateSpan(0, 7))])
    (asked,) = request.topics[0].partitions
    assert (asked.leader_epoch, asked.batches_from, asked.batches_through) == (-1, 0, 7)
    assert asked.HasField("batches_from")


@pytest.mark.rule("SC-48", "OP-5")
@virtual
async def test_deleting_what_the_cluster_does_not_know_is_done_at_the_first_answer() -> None:
    net = Net()
    net.real().directory.metadata.topics.clear()
    persister = net.persister()
    assert await persister.delete("g", {TopicIdPartition(TOPIC, 0): -1}) == {TopicIdPartition(TOPIC, 0): None}
    assert now_s() == 0
    await persister.close()


@pytest.mark.rule("PL-721", "P-2", "SC-97")
@virtual
async def test_one_batch_is_in_flight_and_what_arrives_meanwhile_leaves_together() -> None:
    net = Net()
    node = net.scripted()
    node.gate = asyncio.Event()
    persister = net.persister()
    writes = [asyncio.create_task(persister.write(change()))]
    await asyncio.sleep(0.001)
    writes += [asyncio.create_task(persister.write(change(of=key(partition)))) for partition in range(1, 6)]
    writes.append(asyncio.create_task(persister.write(change(of=key(1, "other")))))
    await asyncio.sleep(0.001)
    assert [_partitions(request) for request in node.requests] == [[0]]
    node.gate.set()
    await asyncio.gather(*writes)
    assert [request.write.group_id for request in node.requests] == ["g", "g", "other"]
    assert [sorted(_partitions(request)) for request in node.requests] == [[0], [1, 2, 3, 4, 5], [1]]
    assert len({request.correlation_id for request in node.requests}) == 3
    await persister.close()


@pytest.mark.rule("PL-721", "SC-97")
@virtual
async def test_reads_do_not_wait_for_writes() -> None:
    net = Net()
    node = net.scripted("hang")
    persister = net.persister()
    write = asyncio.create_task(persister.write(change()))
    await asyncio.sleep(0.001)
    await persister.read(ReadState(key(), 1, 0))
    assert not write.done()
    assert len(node.requests) == 2
    write.cancel()
    await persister.close()


@pytest.mark.rule("SC-97", "SC-98", "PL-705", "SC-99")
@virtual
async def test_requests_are_capped_and_never_hold_a_share_partition_twice() -> None:
    net = Net()
    node = net.scripted()
    node.gate = asyncio.Event()
    persister = net.persister(settings=PersisterSettings(keys_per_request=2))
    writes = [asyncio.create_task(persister.write(change(start=p, of=key(p)))) for p in (0, 1, 1, 2, 3)]
    await asyncio.sleep(0.001)
    node.gate.set()
    await asyncio.gather(*writes)
    assert [_partitions(request) for request in node.requests] == [[0, 1], [2, 3], [1]]
    await persister.close()


@pytest.mark.rule("SC-99")
@virtual
async def test_writes_of_one_share_partition_follow_each_other() -> None:
    net = Net()
    node = net.scripted(15)
    persister = net.persister()
    first = asyncio.create_task(persister.write(change(start=1)))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(persister.write(change(start=2)))
    await asyncio.gather(first, second)
    starts = [request.write.topics[0].partitions[0].start_offset for request in node.requests]
    assert starts == [1, 1, 2]
    await persister.close()


@pytest.mark.rule("CM-62", "PL-707")
@virtual
async def test_a_full_queue_refuses_and_nothing_was_sent() -> None:
    net = Net()
    node = net.scripted("hang")
    persister = net.persister(settings=PersisterSettings(queue_max=1, attempts=1))
    waiting = [asyncio.create_task(persister.write(change()))]
    await asyncio.sleep(0.01)
    waiting.append(asyncio.create_task(persister.write(change(of=key(1)))))
    await asyncio.sleep(0.01)
    failure = await failure_of(persister, 2)
    assert isinstance(failure.error, errors.CoordinatorNotAvailableError)
    assert not failure.outcome_unknown
    assert len(node.requests) == 1
    for task in waiting:
        task.cancel()
    await persister.close()


@pytest.mark.rule("SC-90")
@pytest.mark.parametrize(
    "bad", [key(-1), key(0, ""), key()._replace(topic_id=bytes(16)), key()._replace(topic_id=b"x")]
)
@virtual
async def test_what_names_no_share_partition_is_refused_before_anything_is_sent(bad: Any) -> None:
    net = Net()
    world = net.real()
    persister = net.persister()
    with pytest.raises(PersisterError) as failure:
        await persister.read(ReadState(bad, 1, 0))
    assert isinstance(failure.value.error, errors.InvalidRequestError)
    with pytest.raises(PersisterError):
        await persister.write(change(of=bad))
    name = bad.topic_partition
    for outcomes in (
        await persister.initialize(bad.group_id, 1, {name: 0}),
        await persister.delete(bad.group_id, {name: -1}),
        await persister.summary(bad.group_id, [name]),
    ):
        refused = outcomes[name]
        assert isinstance(refused, PersisterError)
        assert isinstance(refused.error, errors.InvalidRequestError)
    assert await persister.initialize("g", 1, {}) == {}, "and who names none gets none"
    assert ([*net.cluster.asked], [command for host in world.directory.hosts for command in host.commands]) == ([], [])
    await persister.close()


@pytest.mark.rule("PL-707")
@virtual
async def test_a_number_too_large_for_its_field_is_refused_without_sending() -> None:
    net = Net()
    node = net.scripted()
    persister = net.persister()
    with pytest.raises(PersisterError) as failure:
        await persister.write(change(leader=2**40))
    assert isinstance(failure.value.error, errors.InvalidRequestError)
    assert not failure.value.outcome_unknown
    assert node.requests == []
    await persister.write(change())
    await persister.close()


@pytest.mark.rule("CM-4")
@virtual
async def test_closing_fails_what_is_under_way() -> None:
    net = Net()
    net.scripted("hang")
    persister = net.persister()
    sent = asyncio.create_task(failure_of(persister, 0))
    await asyncio.sleep(0.01)
    queued = asyncio.create_task(failure_of(persister, 1))
    await asyncio.sleep(0.01)
    await persister.close()
    assert (await sent).outcome_unknown
    assert not (await queued).outcome_unknown
    assert now_s() < 1
