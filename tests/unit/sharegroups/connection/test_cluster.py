"""What a client asks its cluster for, and when it stops asking."""

from __future__ import annotations

import asyncio

from sharegroups.config import PRODUCER, Config
from sharegroups.connection.cluster import Cluster
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster

GONE = bytes(range(16))


@on_fake_cluster()
async def test_a_topic_id_that_is_no_longer_wanted_is_no_longer_requested(fake: FakeCluster) -> None:
    """Shows the end of the requests for a topic that was deleted while it was assigned."""
    cluster = Cluster(fake.transport(), Config(PRODUCER, {"bootstrap.servers": fake.bootstrap}))
    cluster.start()
    try:
        cluster.want(["t"], [GONE, fake.topics["t"][0]])
        await asyncio.sleep(5)
        assert cluster.names == {fake.topics["t"][0]: "t"}
        asked = fake.metadata_requests
        cluster.want(["t"], [GONE])
        await asyncio.sleep(5)
        assert fake.metadata_requests > asked, "it is looked up again at each heartbeat that names it"
        cluster.want(["t"], [])
        await asyncio.sleep(5)
        asked = fake.metadata_requests
        for _ in range(20):
            cluster.want(["t"], [])
            await asyncio.sleep(5)
        assert fake.metadata_requests == asked
    finally:
        await cluster.close()
