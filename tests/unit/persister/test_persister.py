"""The persister: batching, look-ups, attempts, and what is known about a failed write."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from kip932 import errors
from kip932.ids import TopicIdPartition
from kip932.state_batches import StateBatch, WriteStats
from shard_runtime.persister import KAFKA_PROFILE, PersisterClient, PersisterError, PersisterSettings, StateInit
from shard_runtime.persister.values import StateSummary, StoredState
from share_coordinator.core.commands import WriteState
from share_coordinator.local import LocalShareCoordinator
from tests.unit.persister.nodes import Net, Reply, change, key
from tests.unit.share_coordinator.hosts import World
from tests.unit.share_coordinator.worlds import OTHER_TOPIC, TOPIC
from tests.unit.virtual_time import run


def _now() -> float:
    return asyncio.get_running_loop().time()


def _partitions(request: Any) -> list[int]:
    return [partition.partition for topic in request.write.topics for partition in topic.partitions]


async def _failure(persister: PersisterClient, partition: int = 0) -> PersisterError:
    with pytest.raises(PersisterError) as failure:
        await persister.write(key(partition), change((0, 1, 2, 1)))
    return failure.value


@pytest.mark.rule("SC-90", "PL-602", "PL-702", "P-4")
def test_all_operations_reach_the_coordinator_and_come_back() -> None:
    async def main() -> None:
        net = Net()
        world = net.real()
        persister = net.persister()
        names = [TopicIdPartition(TOPIC, 0), TopicIdPartition(OTHER_TOPIC, 3), TopicIdPartition(TOPIC, 77)]
        failures = await persister.initialize("g", dict.fromkeys(names, StateInit(4, 10)))
        assert [failures[name] and type(failures[name].error) for name in names[:2]] == [None, None]  # type: ignore[union-attr]
        assert isinstance(failures[names[2]], PersisterError)
        assert await persister.read(key(), 3, 1) == StoredState(4, 10, ())
        stats = WriteStats(cause=1, n_accept=5, hwm=100)
        write = change((12, 15, 2, 1), start=11, leader=3, generation=1)._replace(stats=stats)
        await persister.write(key(), write._replace(delivery_complete_count=4))
        assert await persister.read(key(), 3, 1) == StoredState(4, 11, (StateBatch(12, 15, 2, 1),))
        sent = [
            command for host in world.directory.hosts for command in host.commands if isinstance(command, WriteState)
        ]
        assert sent[0].stats == stats
        summaries = await persister.summary("g", names[:2])
        assert summaries == {names[0]: StateSummary(4, 3, 11, 4), names[1]: StateSummary(4, 0, 10, 0)}
        deleted = await persister.delete("g", {names[0]: 3, names[1]: 4})
        refused = deleted[names[0]]
        assert isinstance(refused, PersisterError)
        assert isinstance(refused.error, errors.FencedStateEpochError)
        assert deleted[names[1]] is None
        await persister.close()

    run(main())


@pytest.mark.rule("SC-48")
def test_deleting_what_the_cluster_does_not_know_is_done_at_the_first_answer() -> None:
    async def main() -> None:
        net = Net()
        net.real().directory.metadata.topics.clear()
        persister = net.persister()
        assert await persister.delete("g", {TopicIdPartition(TOPIC, 0): -1}) == {TopicIdPartition(TOPIC, 0): None}
        assert _now() == 0
        await persister.close()

    run(main())


@pytest.mark.rule("PL-721", "P-2", "SC-97")
def test_one_batch_is_in_flight_and_what_arrives_meanwhile_leaves_together() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted()
        node.gate = asyncio.Event()
        persister = net.persister()
        writes = [asyncio.create_task(persister.write(key(0), change()))]
        await asyncio.sleep(0.001)
        writes += [asyncio.create_task(persister.write(key(partition), change())) for partition in range(1, 6)]
        writes.append(asyncio.create_task(persister.write(key(1, "other"), change())))
        await asyncio.sleep(0.001)
        assert [_partitions(request) for request in node.requests] == [[0]]
        node.gate.set()
        await asyncio.gather(*writes)
        assert [request.write.group_id for request in node.requests] == ["g", "g", "other"]
        assert [sorted(_partitions(request)) for request in node.requests] == [[0], [1, 2, 3, 4, 5], [1]]
        assert len({request.correlation_id for request in node.requests}) == 3
        await persister.close()

    run(main())


@pytest.mark.rule("PL-721")
def test_reads_do_not_wait_for_writes() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted("hang")
        persister = net.persister()
        write = asyncio.create_task(persister.write(key(), change()))
        await asyncio.sleep(0.001)
        await persister.read(key(), 1, 0)
        assert not write.done()
        assert len(node.requests) == 2
        write.cancel()
        await persister.close()

    run(main())


@pytest.mark.rule("SC-97", "SC-98", "PL-705", "SC-99")
def test_requests_are_capped_and_never_hold_a_share_partition_twice() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted()
        node.gate = asyncio.Event()
        persister = net.persister(settings=PersisterSettings(keys_per_request=2))
        writes = [asyncio.create_task(persister.write(key(p), change(start=p))) for p in (0, 1, 1, 2, 3)]
        await asyncio.sleep(0.001)
        node.gate.set()
        await asyncio.gather(*writes)
        assert [_partitions(request) for request in node.requests] == [[0, 1], [2, 3], [1]]
        await persister.close()

    run(main())


@pytest.mark.rule("GC-74", "PL-724", "SC-93")
def test_pauses_double_with_jitter_and_each_attempt_looks_the_coordinator_up_again() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted(14, 15, 16, 3)
        persister = net.persister()
        await persister.write(key(), change())
        pauses = [later - earlier for earlier, later in zip(node.times, node.times[1:], strict=False)]
        assert len(pauses) == 4
        for index, pause in enumerate(pauses):
            assert 0.1 * 2**index * 0.8 <= pause <= 0.1 * 2**index * 1.2
        assert len(net.cluster.asked) == 5
        await persister.close()

    run(main())


@pytest.mark.rule("GC-74", "PL-724", "SC-94")
def test_the_schedules_are_bounded() -> None:
    rng = Random(7)
    ours = PersisterSettings()
    assert [round(ours.pause_ms(n, rng) / (100 * 2 ** (n - 1)), 9) <= 1.2 for n in range(1, 9)] == [True] * 8
    assert 24_000 <= ours.pause_ms(10, rng) <= 36_000
    assert ours.attempts == 10
    assert 1_600 <= KAFKA_PROFILE.pause_ms(1, rng) <= 2_400
    assert 12_800 <= KAFKA_PROFILE.pause_ms(4, rng) <= 19_200


@pytest.mark.rule("PL-723")
def test_the_operation_timeout_caps_everything_and_the_last_error_is_told() -> None:
    async def main() -> None:
        net = Net()
        net.scripted(*[14] * 20)
        persister = net.persister()
        failure = await _failure(persister)
        assert isinstance(failure.error, errors.CoordinatorLoadInProgressError)
        assert 6 <= _now() <= 15
        await persister.close()

    run(main())


@pytest.mark.rule("PL-723", "GC-74")
def test_attempts_end_after_their_number() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted(*[15] * 20)
        persister = net.persister(settings=PersisterSettings(operation_timeout_ms=10**6, attempts=3))
        assert isinstance((await _failure(persister)).error, errors.CoordinatorNotAvailableError)
        assert len(node.requests) == 3
        await persister.close()

    run(main())


@pytest.mark.rule("PL-723", "PL-707")
def test_a_peer_that_never_answers_costs_the_operation_timeout_and_leaves_the_outcome_open() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted("hang")
        persister = net.persister()
        failure = await _failure(persister)
        assert _now() == pytest.approx(15)
        assert failure.outcome_unknown
        await asyncio.sleep(0.1)
        await persister.write(key(), change())
        assert len(node.requests) == 2, "the lane is free again"
        await persister.close()

    run(main())


@pytest.mark.rule("PL-707", "PL-722", "PL-732")
@pytest.mark.parametrize(
    ("replies", "code", "unknown"),
    [
        ([74], 74, False),
        ([124], 124, False),
        ([42], 42, False),
        ([69], 69, False),
        ([31], 31, False),
        ([-1], -1, True),
        (["empty"], -1, True),
        (["nothing"], -1, True),
        ([16, 74], 74, True),
        ([15, 124], 124, True),
        (["break", 74], 74, True),
        ([3, 74], 74, False),
    ],
)
def test_whether_a_failed_write_may_have_landed(replies: list[Reply], code: int, unknown: bool) -> None:
    async def main() -> None:
        net = Net()
        net.scripted(*replies)
        persister = net.persister()
        failure = await _failure(persister)
        assert (failure.error.code, failure.outcome_unknown) == (code, unknown)
        assert failure.leader_epoch == (9 if code == 74 else None)
        await persister.close()

    run(main())


@pytest.mark.rule("PL-707")
def test_a_broken_stream_is_opened_again() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted("break")
        persister = net.persister()
        await persister.write(key(), change())
        assert len(node.requests) == 2
        await persister.close()

    run(main())


@pytest.mark.rule("PL-707")
def test_a_stopped_node_is_retried_until_it_is_back() -> None:
    async def main() -> None:
        net = Net()
        persister = net.persister()
        write = asyncio.create_task(persister.write(key(), change()))
        await asyncio.sleep(1)
        net.scripted()
        await write
        await persister.close()

    run(main())


@pytest.mark.rule("PL-720", "SC-91")
def test_without_a_known_node_the_answer_comes_at_once() -> None:
    async def main() -> None:
        persister = Net().persister(nodes=())
        failure = await _failure(persister)
        assert isinstance(failure.error, errors.CoordinatorNotAvailableError)
        assert (_now(), failure.outcome_unknown) == (0, False)
        await persister.close()

    run(main())


@pytest.mark.rule("PL-720", "PL-723")
def test_a_lookup_is_cached_shared_and_retried_by_its_own_count() -> None:
    async def main() -> None:
        net = Net()
        net.scripted()
        net.cluster.codes = [15, 15]
        persister = net.persister()
        await asyncio.gather(
            *(persister.write(key(0), change(start=n)) for n in range(3)), persister.read(key(0), 1, 0)
        )
        assert len(net.cluster.asked) == 3
        await persister.write(key(0), change())
        assert len(net.cluster.asked) == 3
        net.cluster.codes = [29]
        assert isinstance((await _failure(persister, 1)).error, errors.TopicAuthorizationFailedError)
        await persister.close()

    run(main())


@pytest.mark.rule("PL-720")
def test_the_nodes_own_hint_saves_the_lookup_until_it_proves_wrong() -> None:
    async def main() -> None:
        net = Net(coordinator="two:1")
        net.scripted(16, 16)
        two = net.scripted(address="two:1")
        persister = net.persister(resolve=lambda shard: "one:1")
        await persister.write(key(), change())
        assert (len(net.cluster.asked), len(two.requests)) == (1, 1)
        await persister.close()

    run(main())


@pytest.mark.rule("PL-720")
def test_a_doubted_hint_is_better_than_nothing_to_ask() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted(14, 14)
        persister = net.persister(nodes=(), resolve=lambda shard: "one:1")
        await persister.write(key(), change())
        assert len(node.requests) == 3
        await persister.close()

    run(main())


@pytest.mark.rule("CM-14", "GC-74")
def test_the_hint_of_a_refusal_is_followed_at_once_but_not_in_a_circle() -> None:
    async def main() -> None:
        net = Net()
        net.scripted(16, address="one:1", hint="two:1")
        net.scripted(address="two:1")
        persister = net.persister()
        await persister.write(key(), change())
        assert (_now(), len(net.cluster.asked)) == (0, 1)
        circle = Net()
        one = circle.scripted(*[16] * 9, address="one:1", hint="two:1")
        two = circle.scripted(*[16] * 9, address="two:1", hint="one:1")
        other = circle.persister(settings=PersisterSettings(attempts=4))
        assert isinstance((await _failure(other)).error, errors.NotCoordinatorError)
        assert len(one.requests) + len(two.requests) == 5
        assert _now() > 0.5
        await persister.close()
        await other.close()

    run(main())


@pytest.mark.rule("P-12", "SC-29a")
def test_the_coordinator_of_the_same_process_is_called_without_messages() -> None:
    async def main() -> None:
        net = Net()
        world = World()
        persister = net.persister(nodes=(), local=LocalShareCoordinator(world.dispatcher))
        name = TopicIdPartition(TOPIC, 0)
        assert await persister.initialize("g", {name: StateInit(2, 5)}) == {name: None}
        assert await persister.read(key(), 8, 2) == StoredState(2, 5, ())
        await persister.write(key(), change((6, 7, 2, 1), start=5, leader=8, generation=2))
        assert await persister.summary("g", [name]) == {name: StateSummary(2, 8, 5, 0)}
        with pytest.raises(PersisterError) as fenced:
            await persister.write(key(), change(leader=8, generation=1))
        assert (fenced.value.error.code, fenced.value.leader_epoch, fenced.value.outcome_unknown) == (74, 8, False)
        assert await persister.delete("g", {name: -1}) == {name: None}
        await persister.close()

    run(main())


@pytest.mark.rule("P-12", "PL-720")
def test_what_this_process_does_not_own_goes_to_its_owner() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted()
        world = World()
        local = LocalShareCoordinator(world.dispatcher)
        persister = net.persister(local=local)
        world.directory.active = False
        await persister.write(key(), change())
        assert len(node.requests) == 1
        await persister.close()

    run(main())


@pytest.mark.rule("PL-707", "P-12")
def test_a_local_write_that_is_not_confirmed_in_time_is_open() -> None:
    async def main() -> None:
        world = World()
        persister = Net().persister(nodes=(), local=LocalShareCoordinator(world.dispatcher))
        for host in world.directory.hosts:
            host.held = True
        failure = await _failure(persister)
        assert failure.outcome_unknown
        assert _now() <= 15
        await persister.close()

    run(main())


@pytest.mark.rule("SC-99")
def test_writes_of_one_share_partition_follow_each_other() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted(15)
        persister = net.persister()
        first = asyncio.create_task(persister.write(key(), change(start=1)))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(persister.write(key(), change(start=2)))
        await asyncio.gather(first, second)
        starts = [request.write.topics[0].partitions[0].start_offset for request in node.requests]
        assert starts == [1, 1, 2]
        await persister.close()

    run(main())


@pytest.mark.rule("CM-62", "PL-707")
def test_a_full_queue_refuses_and_nothing_was_sent() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted("hang")
        persister = net.persister(settings=PersisterSettings(queue_max=1, attempts=1))
        waiting = [asyncio.create_task(persister.write(key(0), change()))]
        await asyncio.sleep(0.01)
        waiting.append(asyncio.create_task(persister.write(key(1), change())))
        await asyncio.sleep(0.01)
        failure = await _failure(persister, 2)
        assert isinstance(failure.error, errors.CoordinatorNotAvailableError)
        assert not failure.outcome_unknown
        assert len(node.requests) == 1
        for task in waiting:
            task.cancel()
        await persister.close()

    run(main())


@pytest.mark.rule("SC-90")
@pytest.mark.parametrize(
    "bad", [key(-1), key(0, ""), key()._replace(topic_id=bytes(16)), key()._replace(topic_id=b"x")]
)
def test_what_names_no_share_partition_is_refused_before_anything_is_sent(bad: Any) -> None:
    async def main() -> None:
        with pytest.raises(PersisterError) as failure:
            await Net().persister().read(bad, 1, 0)
        assert isinstance(failure.value.error, errors.InvalidRequestError)

    run(main())


@pytest.mark.rule("PL-707")
def test_a_number_too_large_for_its_field_is_refused_without_sending() -> None:
    async def main() -> None:
        net = Net()
        node = net.scripted()
        persister = net.persister()
        with pytest.raises(PersisterError) as failure:
            await persister.write(key(), change(leader=2**40))
        assert isinstance(failure.value.error, errors.InvalidRequestError)
        assert not failure.value.outcome_unknown
        assert node.requests == []
        await persister.write(key(), change())
        await persister.close()

    run(main())


@pytest.mark.rule("CM-4")
def test_closing_fails_what_is_under_way() -> None:
    async def main() -> None:
        net = Net()
        net.scripted("hang")
        persister = net.persister()
        sent = asyncio.create_task(_failure(persister, 0))
        await asyncio.sleep(0.01)
        queued = asyncio.create_task(_failure(persister, 1))
        await asyncio.sleep(0.01)
        await persister.close()
        assert (await sent).outcome_unknown
        assert not (await queued).outcome_unknown
        assert _now() < 1

    run(main())
