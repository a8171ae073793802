"""Helpers for tests that follow a consumer or producer through several steps ("stories"): records in the fake cluster,
a consumer of it, and virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from inspect import Signature, signature
from typing import Any

from kip932.ids import ACK_RELEASE
from sharegroups.aio import ShareConsumer
from sharegroups.producing.produced import encode
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.virtual_time import run

#: A test that is such a story.
Test = Callable[..., Coroutine[Any, Any, None]]
EXPLICIT = {"share.acknowledgement.mode": "explicit"}


def produce(fake: FakeCluster, count: int = 1, topic: str = "t", partition: int = 0, value: bytes = b"v") -> None:
    records = [(None, value + str(index).encode(), (), 1000) for index in range(count)]
    fake.log(topic, partition).append(encode(records)[0], count)
    fake.notify()


def consumed(fake: FakeCluster, topic: str, number: int, count: int) -> None:
    """Set up group `g` as if it had consumed a partition and finished its first records."""
    partition = fake.partition(topic, number)
    fake.initialised.add(("g", partition.topic_id))
    fake.logs[partition].states["g"] |= dict.fromkeys(range(count), ("acknowledged", "", 1))


def released(fake: FakeCluster) -> list[tuple[int, int, list[int], list[int]]]:
    """Return every acknowledgement batch with a release that a leader received."""
    requests: list[Any] = [*fake.acknowledges, *fake.fetches]
    return [
        (batch.first_offset, batch.last_offset, list(batch.acknowledge_types), list(batch.release_delays_ms))
        for request in requests
        for topic in request.topics
        for part in topic.partitions
        for batch in part.acknowledgement_batches
        if ACK_RELEASE in batch.acknowledge_types
    ]


def consumer(fake: FakeCluster, **settings: Any) -> ShareConsumer:
    """Return a consumer that gets whole batches, so that the result of its first poll is predictable."""
    given = {"bootstrap.servers": fake.bootstrap, "group.id": "g", "share.acquire.mode": "batch_optimized"} | settings
    return ShareConsumer(given, transport=fake.transport())


def play(
    story: Callable[[FakeCluster], Awaitable[None]],
    nodes: int = 1,
    partitions: int = 1,
    kind: type[FakeCluster] = FakeCluster,
) -> None:
    async def main() -> None:
        fake = kind(nodes)
        fake.add_topic("t", partitions)
        await story(fake)

    run(main())


def on_fake_cluster(
    nodes: int = 1, partitions: int = 1, kind: type[FakeCluster] = FakeCluster
) -> Callable[[Test], Callable[..., None]]:
    """Return a decorator that makes a test of a coroutine function. The function takes a fake cluster with topic `t`,
    then pytest fixtures."""

    def made(test: Test) -> Callable[..., None]:
        @wraps(test)
        def played(**fixtures: Any) -> None:
            play(lambda fake: test(fake, **fixtures), nodes, partitions, kind)

        _, *others = signature(test).parameters.values()
        played.__signature__ = Signature(others)  # type: ignore[attr-defined]  # so that pytest makes no cluster
        return played

    return made
