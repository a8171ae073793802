"""The three services as three processes, as in a deployment, with only the store in common."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import pytest

from kip932.ids import RESOURCE_GROUP
from shard_runtime.config.process_settings import load_settings
from share_node.store.cluster_init import init_cluster
from sharegroups import (
    AcknowledgeType,
    Admin,
    AlterConfig,
    ConfigResource,
    KafkaError,
    NewTopic,
    Producer,
    ShareConsumer,
)
from tests.support.node import BOUND_S, StartedProcess, unique
from tests.support.ports import free_port
from tests.support.stores import Server

#: For each service a call that needs no fields, and whether the address for clients serves it.
CALLS: Final = {
    "partition_leader": ("/kip932.api.v1.PartitionLeaderService/Fetch", True),
    "group_coordinator": ("/kip932.api.v1.GroupCoordinatorService/ListGroups", True),
    "share_coordinator": ("/kip932.internal.v1.ShareCoordinatorService/ReadShareGroupState", False),
}
COMMON: Final = "/kip932.api.v1.ClusterService/DescribeCluster"


@dataclass
class Service:
    """A role's process, and its addresses for clients and for nodes."""

    role: str
    folder: Path
    store: Server
    process: StartedProcess = field(init=False)
    address: str = field(init=False)
    internal: str = field(init=False)

    def __post_init__(self) -> None:
        port, internal = free_port(), free_port()
        self.address, self.internal = f"127.0.0.1:{port}", f"127.0.0.1:{internal}"
        settings = {
            "store.url": f"redis://127.0.0.1:{self.store.port}",
            "node.name": self.role,
            "listen.port": str(port),
            "internal.listen.port": str(internal),
            "data.dir": str(self.folder / self.role),
        }
        words = [f"{name}={value}" for name, value in settings.items()]
        self.process = StartedProcess(["share_node", "serve", self.role, *words], self.folder)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Service]]:
    """The services by role, all ready."""
    folder = tmp_path_factory.mktemp("three")
    with ExitStack() as stack:
        store = Server()
        stack.callback(shutil.rmtree, store.folder, ignore_errors=True)
        stack.callback(store.stop)
        asyncio.run(_begin(store))
        found = {}
        for role in CALLS:
            found[role] = Service(role, folder, store)
            stack.callback(found[role].process.stop)
        for service in found.values():
            service.process.first_line()
        yield found


async def _begin(store: Server) -> None:
    await store.start()
    await init_cluster(load_settings({"store.url": f"redis://127.0.0.1:{store.port}"}))


def serves(address: str, method: str) -> bool:
    """Return whether a call without fields gets any result but UNIMPLEMENTED there."""
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(method, bytes, bytes)(b"", timeout=BOUND_S)
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.UNIMPLEMENTED
    return True


@pytest.mark.rule("CM-173", "CM-1")
def test_each_service_is_a_process_with_addresses_and_a_role_of_its_own(services: dict[str, Service]) -> None:
    assert len({service.process.pid for service in services.values()}) == 3
    for service in services.values():
        with Admin(bootstrap_servers=service.address) as admin:
            nodes = admin.describe_cluster().nodes
        assert {(node.roles, f"{node.host}:{node.port}") for node in nodes} == {
            ((each.role,), each.address) for each in services.values()
        }


@pytest.mark.rule("CM-173")
def test_each_serves_its_own_calls_and_the_common_ones_alone(services: dict[str, Service]) -> None:
    for service in services.values():
        assert serves(service.address, COMMON), service.role
        for role, (method, of_clients) in CALLS.items():
            assert serves(service.address, method) == (of_clients and role == service.role), (service.role, method)
            assert serves(service.internal, method) == (not of_clients and role == service.role), (service.role, method)


@pytest.mark.rule("CM-173")
@pytest.mark.parametrize("role", sorted(CALLS))
def test_a_client_that_knows_any_of_them_produces_receives_and_acknowledges(
    services: dict[str, Service], role: str
) -> None:
    """Released records are delivered again, accepted ones are not, and the group's lag shows it."""
    bootstrap = services[role].address
    topic, group = unique("t"), unique("g")
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert not any(admin.create_topics([NewTopic(topic, 2)]).values())
        earliest = {ConfigResource(RESOURCE_GROUP, group): [AlterConfig("share.auto.offset.reset", "earliest")]}
        assert not any(admin.incremental_alter_configs(earliest).values())
        with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(10):
                producer.produce(topic, str(number), partition=number % 2)
        with ShareConsumer(
            bootstrap_servers=bootstrap, group_id=group, share_acknowledgement_mode="explicit"
        ) as consumer:
            consumer.subscribe([topic])
            seen: dict[str, list[int]] = {}
            for _ in range(BOUND_S):
                for message in consumer.poll(1):
                    value = (message.value() or b"").decode()
                    seen.setdefault(value, []).append(message.delivery_count() or 0)
                    first = len(seen[value]) == 1
                    consumer.acknowledge(message, AcknowledgeType.RELEASE if first else AcknowledgeType.ACCEPT)
                assert not any(consumer.commit_sync().values())
                if sum(map(len, seen.values())) == 20:
                    break
        assert seen == {str(number): [1, 2] for number in range(10)}
        assert lags(admin, group) == [0, 0]


def lags(admin: Admin, group: str) -> list[int | None]:
    """Return the lag of both partitions, once the coordinator's process knows their leaders."""
    found: list[int | None] = []
    for _ in range(BOUND_S):
        offsets = admin.list_share_group_offsets({group: None})[group]
        assert not isinstance(offsets, KafkaError), offsets
        found = [None if offset is None else offset.lag for offset in offsets.values()]
        if len(found) == 2:
            break
        time.sleep(1)
    return found
