"""A suspended coordinator sends no response and breaks no connection: the persister calls the coordinator that takes
over."""

from __future__ import annotations

import asyncio

import pytest

from kip932.ids import TopicIdPartition
from kip932.state_values import ReadState, StoredState
from shard_runtime.cluster.owners import OwnerAddress
from share_persister import PersisterError
from tests.support.coordinator_nodes import CLUSTER_SERVICE, Cluster, Net, change, failure_of, key
from tests.support.share_coordinators import SHARDS, CoordinatorProcess
from tests.support.share_state import TOPIC
from tests.support.virtual_time import now_s, virtual


class Hint:
    """The owner of every shard, as the persister's own node believes."""

    def __init__(self, address: str | None) -> None:
        self.address = address

    def __call__(self, shard: int) -> str | None:
        return self.address


@pytest.mark.rule("PL-723", "GC-74")
@virtual
async def test_a_silent_coordinator_is_left_once_another_owns_the_shard() -> None:
    net, hint = Net(), Hint("one:1")
    one, two = net.scripted("hang", "hang"), net.scripted(address="two:1")
    persister = net.persister(resolve=hint)
    writing = asyncio.create_task(persister.write(change()))
    reading = asyncio.create_task(persister.read(ReadState(key(1), 1, 0)))
    await asyncio.sleep(3.5)
    assert not writing.done()
    hint.address = None  # the old owner has left the node list, and no other node has claimed yet
    await asyncio.sleep(1)
    assert not writing.done()
    hint.address = "two:1"
    await writing
    await reading
    assert now_s() < 3.5 + 1 + 1 + 0.2
    assert (len(one.requests), len(two.requests)) == (2, 2)
    await persister.close()


@pytest.mark.rule("PL-723")
@virtual
async def test_a_coordinator_that_is_only_slow_is_waited_for() -> None:
    net = Net()
    one, two = net.scripted(), net.scripted(address="two:1")
    one.gate = asyncio.Event()
    persister = net.persister(resolve=Hint("one:1"))
    writing = asyncio.create_task(persister.write(change()))
    await asyncio.sleep(10)
    one.gate.set()
    await writing
    assert (len(one.requests), len(two.requests)) == (1, 0)
    await persister.close()


@pytest.mark.rule("PL-707")
@virtual
async def test_a_write_that_a_silent_coordinator_may_have_taken_is_unknown_when_no_other_takes_it() -> None:
    net, hint = Net(), Hint("one:1")
    net.scripted("hang")
    net.scripted(*[29] * 20, address="two:1")
    persister = net.persister(resolve=hint)
    failing = asyncio.create_task(failure_of(persister))
    await asyncio.sleep(1)
    hint.address = "two:1"
    failure: PersisterError = await failing
    assert failure.outcome_unknown
    assert now_s() < 4
    await persister.close()


@pytest.mark.rule("P-12")
@virtual
async def test_what_was_asked_of_a_silent_node_is_done_in_this_process_when_it_takes_the_shard() -> None:
    net, here = Net(), CoordinatorProcess()
    net.scripted("hang", "hang")

    persister = net.persister(resolve=Hint("one:1"), local=here.dispatcher)
    names = [TopicIdPartition(TOPIC, number) for number in range(3)]
    await persister.initialize("g", 1, dict.fromkeys(names, 5))
    here.directory.elsewhere = dict.fromkeys(range(SHARDS), OwnerAddress(9, "one", 1))
    # The second request is queued after the first: it was never sent, and still need not wait for the first.
    waiting = [asyncio.create_task(persister.read(ReadState(key(0), 1, 1)))]
    await asyncio.sleep(0.1)
    waiting.append(asyncio.create_task(persister.read(ReadState(key(1), 1, 1))))
    await asyncio.sleep(2)
    here.directory.elsewhere = {}
    assert await asyncio.gather(*waiting) == [StoredState(1, 5, (), recorded=True)] * 2
    assert now_s() < 3.5
    await persister.close()


@pytest.mark.rule("GC-74", "PL-720")
@virtual
async def test_a_lookup_does_not_wait_for_a_silent_node_until_the_end_of_the_operation() -> None:
    net = Net()
    net.scripted()
    silent = Cluster("one:1")
    held = asyncio.Event()

    class Silent:
        async def find_coordinator(self, request: object, context: object) -> object:
            silent.asked.append(now_s())
            await held.wait()
            raise AssertionError("not reached")

    net.network.serve("silent:1", CLUSTER_SERVICE, Silent())
    persister = net.persister(nodes=("silent:1", "seed:1"))
    await persister.write(change())
    assert now_s() <= 3.2 * len(silent.asked) + 1
    await persister.close()
