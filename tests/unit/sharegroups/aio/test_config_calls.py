"""Configs of a node are requested from that node; those of topics and groups from any node."""

from __future__ import annotations

from kip932.errors import InvalidRequestError
from sharegroups.admin_values import AlterConfig, ConfigResource
from sharegroups.aio import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster

INTERVAL = "group.share.assignment.interval.ms"


@on_fake_cluster(nodes=3)
async def test_each_resource_is_asked_for_where_it_is_known(fake: FakeCluster) -> None:
    nodes = [ConfigResource.broker(str(node)) for node in fake.nodes]
    others = [ConfigResource.broker(), ConfigResource.topic("t"), ConfigResource.group("g")]
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        found = await admin.describe_configs([*others, *nodes])
    assert {resource for resource, configs in found.items() if isinstance(configs, dict)} == {*others, *nodes}


@on_fake_cluster(nodes=2)
async def test_a_change_reaches_the_node_that_it_names(fake: FakeCluster) -> None:
    node = ConfigResource.broker("1")
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        assert await admin.incremental_alter_configs({node: [AlterConfig(INTERVAL, "500")]}) == {node: None}
        found = await admin.describe_configs([node])
    configs = found[node]
    assert isinstance(configs, dict)
    assert configs[INTERVAL].value == "500"


@on_fake_cluster(nodes=2)
async def test_a_node_that_is_not_there_is_named_with_those_that_are(fake: FakeCluster) -> None:
    wrong = [ConfigResource.broker(name) for name in ("7", "one")]
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        found = await admin.describe_configs([*wrong, ConfigResource.topic("t")])
        changed = await admin.incremental_alter_configs({wrong[0]: [AlterConfig(INTERVAL, "500")]})
    for resource in wrong:
        error = found[resource]
        assert isinstance(error, InvalidRequestError)
        assert error.message == f"no node {resource.name!r} is alive; the live nodes of the cluster are 0, 1"
    assert isinstance(found[ConfigResource.topic("t")], dict)
    assert isinstance(changed[wrong[0]], InvalidRequestError)
