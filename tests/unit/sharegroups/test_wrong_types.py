"""Arguments of the wrong type are refused by name, with the right way to write them, and not by protobuf or asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from sharegroups import (
    AcknowledgeType,
    Acl,
    AclFilter,
    Admin,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Operation,
    PatternType,
    Permission,
    Producer,
    QuotaEntity,
    ResourceType,
    ShareConsumer,
    TopicPartition,
    aio,
)
from sharegroups.errors import ConfigError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.support.virtual_time import virtual

NO_CLUSTER = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 500, "max.block.ms": 500}
P0 = TopicPartition("orders", 0)
ORDERS = ConfigResource.topic("orders")
# Typed as in a program without a type checker.
Topic: Any = NewTopic
Alter: Any = AlterConfig
Resource: Any = ConfigResource
Filter: Any = AclFilter
ACL: Any = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)

Case = tuple[Callable[[Any], Any], str]
OF_ADMIN: list[Case] = [
    (lambda a: a.create_topics([("orders", 2)]), r"create_topics needs a list.*\(tuple\) in it. Write create_topics\("),
    (lambda a: a.create_topics([Topic("orders", "2")]), r"'orders': num_partitions is '2' \(str\).*bits. Write 2"),
    (lambda a: a.create_topics([Topic("orders", True)]), r"num_partitions is True \(bool\)"),
    (lambda a: a.create_topics([Topic("orders", 2**31)]), r"num_partitions is 2147483648 \(int\)"),
    (lambda a: a.create_topics([Topic(7)]), r"name is 7 \(int\); expected text. Write '7'"),
    (lambda a: a.create_topics([Topic("orders", 1, {"retention.ms": 60000})]), r"retention.ms is 60000.*'60000'"),
    (lambda a: a.create_topics([Topic("orders", 1, ["retention.ms"])]), r"config is \['retention.ms'\] \(list\)"),
    (lambda a: a.create_partitions(["orders"]), r"create_partitions: counts is .*Write create_partitions\(\{"),
    (lambda a: a.create_partitions({"orders": "4"}), r"the count of orders is '4' \(str\).*Write 4"),
    (lambda a: a.create_partitions({7: 4}), r"a topic's name is 7"),
    (lambda a: a.delete_topics([b"orders"]), r"delete_topics needs a list.*found b'orders' \(bytes\) in it"),
    (lambda a: a.list_topics([7]), r"list_topics needs a list of topic names, found 7 \(int\) in it"),
    (lambda a: a.list_offsets("orders"), r"list_offsets needs a list of TopicPartition, found 'orders'"),
    (lambda a: a.list_offsets([("orders", 0)]), r"a partition is \('orders', 0\) \(tuple\); expected a TopicPartition"),
    (lambda a: a.list_offsets({P0: "latest"}), r"the offset for .* is 'latest' \(str\)"),
    (lambda a: a.delete_records([P0]), r"delete_records: before is \["),
    (lambda a: a.delete_records({P0: 1.5}), r"the offset for .* is 1.5 \(float\)"),
    (lambda a: a.describe_configs([("topic", "orders")]), r"describe_configs needs a list of ConfigResource, found \("),
    (lambda a: a.describe_configs([Resource("topic", "orders")]), r"a resource is .*ConfigResource.topic\("),
    (lambda a: a.incremental_alter_configs([Alter("x", "y")]), r"changes is \[.*Write incremental_alter_configs"),
    (lambda a: a.incremental_alter_configs({"orders": [Alter("x", "y")]}), r"a resource is 'orders' \(str\)"),
    (lambda a: a.incremental_alter_configs({ORDERS: {"x": "y"}}), r"needs a list of AlterConfig .* 'x' \(str\) in it"),
    (lambda a: a.incremental_alter_configs({ORDERS: [Alter("retention.ms", 6)]}), r"retention.ms is 6 .*Write '6'"),
    (lambda a: a.incremental_alter_configs({ORDERS: [Alter(7, "6")]}), r"AlterConfig.name is 7 \(int\)"),
    (lambda a: a.incremental_alter_configs({ORDERS: [Alter("x", "6", "set")]}), r"AlterConfig.operation is 'set'"),
    (lambda a: a.list_groups("Stable"), r"list of states, found 'Stable' \(str\). Write list_groups\("),
    (lambda a: a.list_groups(None, "share"), r"list_groups needs a list of types"),
    (lambda a: a.describe_share_groups([7]), r"describe_share_groups needs a list of group ids, found 7"),
    (lambda a: a.list_share_group_offsets(["workers"]), r"list_share_group_offsets: groups is \['workers'\] \(list\)"),
    (lambda a: a.list_share_group_offsets({"workers": ["orders"]}), r"a partition is 'orders' \(str\)"),
    (lambda a: a.alter_share_group_offsets("workers", {P0: "0"}), r"is '0' \(str\).*Write 0"),
    (lambda a: a.alter_share_group_offsets(7, {P0: 0}), r"group_id is 7 \(int\)"),
    (lambda a: a.explain_record(7, P0, 0), r"explain_record: group_id is 7 \(int\)"),
    (lambda a: a.explain_record("workers", "orders:0", 0), r"a partition is 'orders:0' \(str\); expected a TopicPart"),
    (lambda a: a.explain_record("workers", P0, "17"), r"offset is '17' \(str\).*Write 17"),
    (lambda a: a.explain_record("workers", P0, 0, 1.5), r"last_offset is 1.5 \(float\)"),
    (lambda a: a.delete_share_group_offsets(["workers"], ["orders"]), r"group_id is \['workers'\] \(list\)"),
    (lambda a: a.create_acls(["User:a"]), r"create_acls needs a list of Acl, found 'User:a' \(str\) in it. Write"),
    (lambda a: a.create_acls([ACL._replace(principal=7)]), r"create_acls: Acl.principal is 7 \(int\).*Write '7'"),
    (lambda a: a.create_acls([ACL._replace(operation="Read")]), r"Acl.operation is 'Read' \(str\)"),
    (lambda a: a.alter_client_quotas(["alice"]), r"changes is \['alice'\] \(list\); expected a dict of entities"),
    (lambda a: a.alter_client_quotas({"alice": {}}), r"an entity is 'alice' \(str\); expected a QuotaEntity. Write"),
    (lambda a: a.alter_client_quotas({QuotaEntity(cast(Any, 7)): {}}), r"the name of the user is 7 \(int\)"),
    (lambda a: a.alter_client_quotas({QuotaEntity("a"): {"k": "1"}}), r"k is '1' \(str\); expected a number"),
    (lambda a: a.describe_acls("User:a"), r"acl_filter is 'User:a' \(str\); expected an AclFilter, or None. Write"),
    (lambda a: a.describe_acls(Filter(host=7)), r"describe_acls: AclFilter.host is 7 \(int\)"),
    (lambda a: a.delete_acls(Filter()), r"delete_acls needs a list of AclFilter, found <ResourceType.ANY: 1> "),
    (lambda a: a.delete_acls([Filter(operation=None)]), r"delete_acls: AclFilter.operation is None"),
]  # fmt: skip
OF_PRODUCER: list[Case] = [
    (lambda p: p.produce(["orders"], b"x"), r"produce: topic is \['orders'\] \(list\); expected the name"),
    (lambda p: p.produce(7, b"x"), r"produce: topic is 7 \(int\)"),
    (lambda p: p.produce("t", b"x", partition="0"), r"produce: partition is '0' \(str\).*Write 0"),
    (
        lambda p: p.produce("t", b"x", timestamp=1.5),
        r"timestamp is 1.5 \(float\).*int\(time.time\(\) \* 1000\)",
    ),
    (lambda p: p.produce("t", b"x", timestamp=2**62), r"timestamp is 4611686018427387904 .*below 2\^62"),
    (lambda p: p.produce("t", b"x", timestamp=-(2**62) - 1), r"timestamp is -4611686018427387905 .*from -2\^62 on"),
    (lambda p: p.produce("t", b"x", headers={"\ud800": b"x"}), r"the name of a header is '\\ud800' .*lone surrogates"),
    (lambda p: p.produce("t", b"x", headers="trace"), r"headers is 'trace' \(str\)"),
    (lambda p: p.produce("t", b"x", headers=["ab"]), r"a header is 'ab' \(str\)"),
    (lambda p: p.produce("t", b"x", headers={"trace": 7}), r"the value of header 'trace' is 7 \(int\)"),
    (lambda p: p.produce("t", b"x", headers={7: "x"}), r"a header is \(7, 'x'\)"),
    (lambda p: p.produce("t", b"x", on_delivery="stored"), r"on_delivery is 'stored' \(str\).*stored\(error, report\)"),
    (lambda p: p.flush("1"), r"flush: timeout is '1' \(str\).*Write flush\(timeout=1.5\)"),
    (lambda p: p.close("1"), r"close: timeout is '1'"),
]
OF_CONSUMER: list[Case] = [
    (lambda c: c.subscribe(7), r"subscribe needs a list of topic names, found 7 \(int\). Write subscribe\(\["),
    (lambda c: c.subscribe([7]), r"subscribe needs a list of topic names, found 7 \(int\) in it"),
    (lambda c: c.poll("1"), r"poll: timeout is '1' \(str\)"),
    (lambda c: c.commit_sync("1"), r"commit_sync: timeout is '1' \(str\)"),
    (lambda c: c.close("1"), r"close: timeout is '1' \(str\)"),
    (lambda c: c.acknowledge("x"), r"acknowledge: message is 'x' \(str\).*for message in messages"),
    (
        lambda c: c.acknowledge_offset("t", 0, 0, "accept"),
        r"type is 'accept' \(str\).*one of AcknowledgeType.ACC",
    ),
    (lambda c: c.acknowledge_offset("t", 0, "0"), r"acknowledge_offset: offset is '0' \(str\).*Write 0"),
    (lambda c: c.set_acknowledgement_commit_callback("x"), r"callback is 'x' \(str\).*\(offsets, error\)"),
]


def settings(**more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": "node0:9000", **more}


async def refuses(client: Any, case: Case) -> None:
    call, said = case

    async def made() -> None:
        answer = call(client)
        if asyncio.iscoroutine(answer):
            await answer

    with pytest.raises(ValueError, match=said):
        await made()


@pytest.mark.rule("CL-89")
@on_fake_cluster()
async def test_calls_of_the_asyncio_clients_name_what_is_wrong(fake: FakeCluster) -> None:
    async with aio.Admin(settings(), transport=fake.transport()) as admin:
        for case in OF_ADMIN:
            await refuses(admin, case)
    async with aio.Producer(settings(), transport=fake.transport()) as producer:
        for case in OF_PRODUCER:
            await refuses(producer, case)
        assert not producer.sender.buffer.records
    async with consumer(fake, **EXPLICIT) as c:
        for case in OF_CONSUMER:
            await refuses(c, case)


@pytest.mark.rule("CL-89")
def test_calls_of_the_blocking_clients_name_what_is_wrong() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    with Admin(settings(), transport=fake.transport()) as admin:
        for call, said in OF_ADMIN:
            with pytest.raises(ValueError, match=said):
                call(admin)
    with Producer(settings(), transport=fake.transport()) as producer:
        for call, said in [*OF_PRODUCER, (lambda p: p.poll("1"), r"poll: timeout is '1' \(str\)")]:
            with pytest.raises(ValueError, match=said):
                call(producer)
        assert not len(producer)
    group = settings(**{"group.id": "g"}, **EXPLICIT)
    with ShareConsumer(group, transport=fake.transport()) as c:
        for call, said in OF_CONSUMER:
            with pytest.raises(ValueError, match=said):
                call(c)


@pytest.mark.rule("CL-89")
@pytest.mark.parametrize("kind", [Admin, Producer, ShareConsumer, aio.Admin, aio.Producer, aio.ShareConsumer])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("127.0.0.1:7932", r"settings is '127.0.0.1:7932' \(str\).*Write {name}\(bootstrap_servers='127.0.0.1:7932'"),
        (
            ["127.0.0.1:7932"],
            r"settings is \['127.0.0.1:7932'\] \(list\); expected a dict.*Write {name}\(",
        ),
        ({7: "x"}, r"the name of a setting is 7 \(int\); expected text"),
        ({"bootstrap.servers": ["a:1", "b:2"]}, "bootstrap.servers is .*; expected text, 'a:1, b:2'"),
    ],
)
@virtual
async def test_settings_of_the_wrong_type_are_named(kind: Any, given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("{name}", kind.__name__)):
        kind(given)


@on_fake_cluster()
async def test_a_message_is_acknowledged_with_a_number_as_before(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        for message in await c.poll(5):
            c.acknowledge(message, 1)  # type: ignore[arg-type]  # Kafka's numbers are accepted too
        assert list((await c.commit_sync()).values()) == [None]
    assert AcknowledgeType(2) is AcknowledgeType.RELEASE
