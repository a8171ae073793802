"""Which coordinator the persister calls: look-ups, hints, and the coordinator in its own process."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kip932 import errors
from kip932.ids import TopicIdPartition, state_shard
from kip932.state_values import ReadState, StateSummary, StoredState
from shard_runtime.cluster.owners import OwnerAddress
from share_persister import PersisterError, PersisterSettings
from share_persister.finder import CoordinatorFinder
from tests.support.coordinator_nodes import CLUSTER_SERVICE, Cluster, Net, change, failure_of, key
from tests.support.share_coordinators import SHARDS, CoordinatorProcess
from tests.support.share_state import TOPIC
from tests.support.virtual_time import now_s, virtual


@pytest.mark.rule("PL-720", "SC-91")
@virtual
async def test_without_a_known_node_the_answer_comes_at_once() -> None:
    persister = Net().persister(nodes=())
    failure = await failure_of(persister)
    assert isinstance(failure.error, errors.CoordinatorNotAvailableError)
    assert (now_s(), failure.outcome_unknown) == (0, False)
    await persister.close()


@pytest.mark.rule("PL-720", "PL-723", "SC-92")
@virtual
async def test_a_lookup_is_cached_shared_and_retried_by_its_own_count() -> None:
    net = Net()
    net.scripted()
    net.cluster.codes = [15, 15]
    persister = net.persister()
    await asyncio.gather(*(persister.write(change(start=n)) for n in range(3)), persister.read(ReadState(key(0), 1, 0)))
    assert len(net.cluster.asked) == 3
    await persister.write(change())
    assert len(net.cluster.asked) == 3
    net.cluster.codes = [29]
    assert isinstance((await failure_of(persister, 1)).error, errors.TopicAuthorizationFailedError)
    await persister.close()


@pytest.mark.rule("SC-91")
@virtual
async def test_lookups_go_to_random_nodes() -> None:
    net = Net()
    net.scripted()
    second = Cluster("one:1")
    net.network.serve("seed:2", CLUSTER_SERVICE, second)
    net.cluster.codes, second.codes = [15] * 20, [15] * 20
    persister = net.persister(nodes=("seed:1", "seed:2"))
    await failure_of(persister)
    asked = sorted([(at, 1) for at in net.cluster.asked] + [(at, 2) for at in second.asked])
    order = [seed for _, seed in asked]
    assert {1, 2} == set(order)
    assert order not in ([1, 2] * len(order), [2, 1] * len(order))
    await persister.close()


@pytest.mark.rule("SC-94", "PL-723")
@virtual
async def test_lookups_have_attempts_of_their_own_and_a_success_restarts_the_count() -> None:
    net = Net()
    node = net.scripted(15, 15)
    net.cluster.codes = [15, 15, 0, 15, 15, 0, 15, 15]
    persister = net.persister(settings=PersisterSettings(attempts=3))
    await persister.write(change())
    assert (len(net.cluster.asked), len(node.requests)) == (9, 3)
    await persister.close()
    failing = Net()
    failing.scripted()
    failing.cluster.codes = [15] * 3
    other = failing.persister(settings=PersisterSettings(attempts=3))
    assert isinstance((await failure_of(other)).error, errors.CoordinatorNotAvailableError)
    assert len(failing.cluster.asked) == 3
    await other.close()


@pytest.mark.rule("PL-720", "SC-91")
@virtual
async def test_the_nodes_own_hint_saves_the_lookup_until_it_proves_wrong() -> None:
    net = Net(coordinator="two:1")
    net.scripted(16, 16)
    two = net.scripted(address="two:1")
    persister = net.persister(resolve=lambda shard: "one:1")
    await persister.write(change())
    assert (len(net.cluster.asked), len(two.requests)) == (1, 1)
    await persister.close()


@pytest.mark.rule("PL-720")
@virtual
async def test_a_doubted_hint_is_better_than_nothing_to_ask() -> None:
    net = Net()
    node = net.scripted(14, 14)
    persister = net.persister(nodes=(), resolve=lambda shard: "one:1")
    await persister.write(change())
    assert len(node.requests) == 3
    await persister.close()


@pytest.mark.rule("CM-14", "GC-74")
@virtual
async def test_the_hint_of_a_refusal_is_followed_at_once_but_not_in_a_circle() -> None:
    net = Net()
    net.scripted(16, address="one:1", hint="two:1")
    net.scripted(address="two:1")
    persister = net.persister()
    await persister.write(change())
    assert (now_s(), len(net.cluster.asked)) == (0, 1)
    circle = Net()
    one = circle.scripted(*[16] * 9, address="one:1", hint="two:1")
    two = circle.scripted(*[16] * 9, address="two:1", hint="one:1")
    other = circle.persister(settings=PersisterSettings(attempts=4))
    assert isinstance((await failure_of(other)).error, errors.NotCoordinatorError)
    assert len(one.requests) + len(two.requests) == 5
    assert now_s() > 0.5
    await persister.close()
    await other.close()


@pytest.mark.rule("SC-93")
@virtual
async def test_a_late_failure_of_the_former_coordinator_does_not_discard_the_present_one() -> None:
    """Shows which cached address a failure discards."""
    net = Net()
    finder = CoordinatorFinder(net.network.transport(), lambda: ["seed:1"], None, Random(1), 1.0)
    finder.note(3, "one:1")
    finder.note(3, "two:1")  # a first refusal by `one` named it
    finder.doubt(3, "one:1")  # a second request to `one` fails later
    assert await finder.find(3, key(0)) == "two:1"
    assert net.cluster.asked == [], "no node had to be asked"
    finder.doubt(3, "two:1")
    net.scripted()
    assert await finder.find(3, key(0)) == "one:1"
    assert len(net.cluster.asked) == 1


@pytest.mark.rule("P-12", "SC-29a")
@virtual
async def test_the_coordinator_of_the_same_process_is_called_without_messages() -> None:
    net = Net()
    world = CoordinatorProcess()
    persister = net.persister(nodes=(), local=world.dispatcher)
    name = TopicIdPartition(TOPIC, 0)
    assert await persister.initialize("g", 2, {name: 5}) == {name: None}
    assert await persister.read(ReadState(key(), 8, 2)) == StoredState(2, 5, (), recorded=True)
    await persister.write(change((6, 7, 2, 1), start=5, leader=8, generation=2))
    assert await persister.summary("g", [name]) == {name: StateSummary(2, 8, 5, 0, 0, 0)}
    with pytest.raises(PersisterError) as fenced:
        await persister.write(change(leader=8, generation=1))
    assert (fenced.value.error.code, fenced.value.leader_epoch, fenced.value.outcome_unknown) == (74, 8, False)
    assert await persister.delete("g", {name: -1}) == {name: None}
    await persister.close()


@pytest.mark.rule("P-12", "PL-720")
@virtual
async def test_what_this_process_does_not_own_goes_to_its_owner() -> None:
    net = Net()
    node = net.scripted()
    world = CoordinatorProcess()
    local = world.dispatcher
    persister = net.persister(local=local)
    world.dispatcher.active = False
    await persister.write(change())
    assert len(node.requests) == 1
    await persister.close()


@pytest.mark.rule("P-12", "CM-14")
@virtual
async def test_a_shard_that_this_process_loses_is_followed_to_its_new_owner_at_once() -> None:
    net = Net()
    node = net.scripted(address="two:1")
    world = CoordinatorProcess()
    persister = net.persister(local=world.dispatcher)
    host = world.directory.hosts[state_shard(key(), SHARDS)]
    host.held = True
    write = asyncio.create_task(persister.write(change()))
    await asyncio.sleep(0)
    world.directory.elsewhere = dict.fromkeys(range(SHARDS), OwnerAddress(2, "two", 1))
    host.lose()
    await write
    assert (now_s(), len(net.cluster.asked), len(node.requests)) == (0, 0, 1)
    await persister.close()


@pytest.mark.rule("PL-707", "P-12")
@virtual
async def test_a_local_write_that_is_not_confirmed_in_time_is_open() -> None:
    world = CoordinatorProcess()
    persister = Net().persister(nodes=(), local=world.dispatcher)
    for host in world.directory.hosts:
        host.held = True
    failure = await failure_of(persister)
    assert failure.outcome_unknown
    assert now_s() <= 15
    await persister.close()


@pytest.mark.rule("PL-723", "P-12")
@virtual
async def test_a_local_write_ends_with_its_operation_even_where_the_coordinator_would_wait_longer() -> None:
    world = CoordinatorProcess(write_timeout_ms=60_000)
    settings = PersisterSettings(operation_timeout_ms=2_000)
    persister = Net().persister(nodes=(), local=world.dispatcher, settings=settings)
    for host in world.directory.hosts:
        host.held = True
    first = asyncio.create_task(failure_of(persister))
    await asyncio.sleep(0.5)
    behind = await failure_of(persister)  # waits for the first one to end, with its own operation time-out
    assert now_s() == pytest.approx(2.5)
    assert behind.outcome_unknown
    assert (await first).outcome_unknown
    for host in world.directory.hosts:
        host.commit()  # too late for both callers: neither gets a second result
    await persister.close()


@pytest.mark.rule("PL-723", "P-12")
@virtual
async def test_a_refused_local_write_is_tried_again_in_its_place() -> None:
    world = CoordinatorProcess()
    persister = Net().persister(nodes=(), local=world.dispatcher)
    await persister.initialize("g", 1, {TopicIdPartition(TOPIC, 0): 0})
    for host in world.directory.hosts:
        host.refusal = errors.CoordinatorLoadInProgressError()
    order: list[str] = []

    async def write(name: str, first: int) -> None:
        await persister.write(change((first, first, 2, 1)))
        order.append(name)

    writes = [asyncio.create_task(write(name, number)) for number, name in enumerate("ab")]
    await asyncio.sleep(0.05)
    for host in world.directory.hosts:
        host.refusal = None
    await asyncio.gather(*writes)
    assert order == ["a", "b"]
    assert (await persister.read(ReadState(key(), 1, 1))).batches == change((0, 1, 2, 1)).batches
    await persister.close()
