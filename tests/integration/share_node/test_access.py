"""A node with access control on real sockets: callers are known by their certificates, and the port for nodes admits
nodes only (CM-61)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]  # no types
from prometheus_client import generate_latest

from kip932.acls import ANONYMOUS, CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from kip932.ids import KEY_TYPE_SHARE, SharePartitionKey
from kip932.remedies import ADMINISTRATOR
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import TransportError, TransportStatus
from shard_runtime.clock import SystemClock
from shard_runtime.cluster.metadata import AclAdded, AclRemoved, Change
from shard_runtime.config.process_settings import load_settings
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.rpc.server import ListenError
from shard_runtime.rpc.short_refusals import FULL_MAX
from share_node.certs import Authority
from share_node.node.process import NodeProcess
from share_node.node.process_store import StoreClient
from share_node.store.data_directory import NodeIdentity
from tests.integration.scenarios.wire import METHODS, Wire, attempts
from tests.support.certificates import files_in, install
from tests.support.promtool import assert_without_remarks
from tests.twin.store import MemoryStore, memory_cluster_store, memory_log

pytestmark = pytest.mark.asyncio

ADMIN, ALICE = "User:admin", "User:alice"
FLAGS = {
    "node.name": "a",
    "listen.host": "127.0.0.1",
    "listen.port": "0",
    "internal.listen.port": "0",
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.auto.offset.reset": "earliest",
    "store.fsync.always": "true",
    "access.control.enable": "true",
    "super.users": ADMIN,
}
AUTHORITY = Authority.made()


class Node:
    """A node in this process, on a store in memory; its ports are real."""

    def __init__(self, process: NodeProcess) -> None:
        self.process = process
        self.address = process.node.registry.record.address
        self._wires: list[Wire] = []

    def caller(self, name: str | None = None) -> Wire:
        """Return a client with the certificate of this name; None: without TLS."""
        wire = Wire(self.address, self.process.internal_address)
        if name is not None:
            certificate, key = AUTHORITY.issue(name)
            credentials = grpc.ssl_channel_credentials(AUTHORITY.certificate, key, certificate)
            wire.transport = GrpcTransport(lambda: credentials)
        self._wires.append(wire)
        return wire

    async def allow(self, *acls: Acl) -> None:
        """Replace all entries by these."""
        metadata = self.process.node.metadata
        changes: list[Change] = [AclRemoved(each) for each in metadata.image.acls - set(acls)]
        changes += [AclAdded(each) for each in acls]
        await metadata.change(lambda image: changes)

    async def close(self) -> None:
        """Close its clients, and stop it."""
        for wire in self._wires:
            await wire.transport.close()
        await self.process.stop()


@contextlib.asynccontextmanager
async def running(flags: dict[str, str]) -> AsyncIterator[Node]:
    """Start a node with these settings, and wait until it serves."""
    clock = SystemClock()
    store, settings = MemoryStore(clock), StoreSettings(cluster_id="c", wait_ms=500)
    log, cluster = memory_log(store, "a", settings, clock), memory_cluster_store(store, "a", settings)
    await cluster.init_cluster("c")
    await log.open()
    process = NodeProcess(
        load_settings(flags), NodeIdentity("a", 1, frozenset(), None), StoreClient(log, cluster, "c"), clock
    )
    await process.start()
    await process.wait_ready()
    node = Node(process)
    try:
        yield node
    finally:
        await node.close()


def with_tls(folder: Path) -> dict[str, str]:
    """Return the settings of a node with TLS, whose files are in the folder."""
    files = files_in(folder)
    install(files, AUTHORITY.issue("node", ["127.0.0.1", "localhost"]), AUTHORITY.certificate)
    return {
        **FLAGS,
        "ssl.client.auth": "required",
        "ssl.certificate.location": str(files.certificate),
        "ssl.key.location": str(files.key),
        "ssl.ca.location": str(files.authorities),
    }


def allowed(principal: str, operation: Operation, resource: ResourceType, name: str) -> Acl:
    """Return an entry that allows something."""
    return Acl(resource, name, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)


async def topics(caller: Wire) -> list[str]:
    """Return the names of the topics that the caller sees."""
    answer = await caller.call("Metadata", METHODS["Metadata"].request_type())
    return [topic.name for topic in answer.topics]


@pytest.mark.rule("CM-61")
async def test_a_caller_without_a_certificate_is_anonymous_on_a_port_without_tls() -> None:
    async with running({**FLAGS, "super.users": ANONYMOUS}) as node:
        await node.caller().create_topic("t")
    async with running(FLAGS) as node:
        caller = node.caller()
        asked = METHODS["FindCoordinator"].request_type(coordinator_keys=["g"])
        (found,) = (await caller.call("FindCoordinator", asked)).coordinators
        assert found.error_message.startswith(
            f"{ANONYMOUS} (this port asks no caller for a certificate) may not DESCRIBE GROUP 'g'."
        )
        await node.allow(allowed(ANONYMOUS, Operation.DESCRIBE, ResourceType.GROUP, "g"))
        (found,) = (await caller.call("FindCoordinator", asked)).coordinators
        assert found.error_code == 0


@pytest.mark.rule("CM-61")
async def test_an_answer_with_many_refusals_says_a_few_times_what_would_allow_them(tmp_path: Path) -> None:
    async with running(with_tls(tmp_path)) as node:
        bob = node.caller("bob")
        for groups, in_full in ((5, 5), (60, FULL_MAX)):
            asked = METHODS["FindCoordinator"].request_type(coordinator_keys=[f"g{number}" for number in range(groups)])
            said = [found.error_message for found in (await bob.call("FindCoordinator", asked)).coordinators]
            assert sum(ADMINISTRATOR in text for text in said) == in_full
            assert all(f"User:bob may not DESCRIBE GROUP 'g{number}'." in text for number, text in enumerate(said))


@pytest.mark.rule("CM-61", "CM-60")
async def test_a_caller_is_judged_by_its_certificate(tmp_path: Path) -> None:
    async with running(with_tls(tmp_path)) as node:
        admin, alice, bob = node.caller("admin"), node.caller("alice"), node.caller("bob")
        topic_id = await admin.create_topic("t")
        assert [await topics(each) for each in (admin, alice, bob)] == [["t"], [], []]
        rights = [
            allowed(ALICE, Operation.READ, kind, name)
            for kind, name in ((ResourceType.TOPIC, "t"), (ResourceType.GROUP, "g"))
        ]
        await node.allow(*rights)
        assert [await topics(each) for each in (admin, alice, bob)] == [["t"], ["t"], []]
        await alice.join("g", ["t"], "m")
        await admin.produce(topic_id, 1)
        stream = await alice.transport.open_stream(alice.bootstrap, METHODS["ShareStream"])
        shown: list[str] = []
        for entries in (rights, rights[:1], rights):
            await node.allow(*entries)
            shown.append(await _fetched(stream, topic_id, len(shown)))
        assert shown == ["ERROR_CODE_NONE", "ERROR_CODE_GROUP_AUTHORIZATION_FAILED", "ERROR_CODE_NONE"]
        await stream.close()
        stolen = METHODS["ShareGroupHeartbeat"].request_type(group_id="g", member_id="m", member_epoch=-1)
        await node.allow(*rights, allowed("User:bob", Operation.READ, ResourceType.GROUP, "g"))
        answer = await bob.call("ShareGroupHeartbeat", stolen)
        assert "joined by another principal" in answer.error_message
        assert (await alice.call("ShareGroupHeartbeat", stolen)).error_code == 0


async def _fetched(stream: Any, topic_id: bytes, epoch: int) -> str:
    request = METHODS["ShareStream"].request_type(correlation_id=epoch)
    request.fetch.group_id, request.fetch.member_id = "g", f"m{epoch}"
    request.fetch.max_bytes, request.fetch.max_records, request.fetch.batch_size = 1 << 20, 1, 1
    request.fetch.topics.add(topic_id=topic_id).partitions.add(partition_index=0)
    await stream.write(request)
    answer = (await stream.read()).fetch
    return str(type(answer).DESCRIPTOR.fields_by_name["error_code"].enum_type.values_by_number[answer.error_code].name)


def _share_key(topic_id: bytes = bytes(15) + b"1") -> Any:
    key = SharePartitionKey("g", topic_id, 0).text
    return METHODS["FindCoordinator"].request_type(key_type=KEY_TYPE_SHARE, coordinator_keys=[key])


def _reading() -> Any:
    request = METHODS["StateStream"].request_type(correlation_id=1)
    request.read.group_id = "g"
    request.read.topics.add(topic_id=bytes(15) + b"1").partitions.add(partition=0, leader_epoch=1)
    return request


@pytest.mark.rule("CM-61")
async def test_the_port_for_nodes_admits_nodes_and_who_has_cluster_action(tmp_path: Path) -> None:
    async with running(with_tls(tmp_path)) as node:
        own, alice, admin = node.caller("node"), node.caller("alice"), node.caller("admin")
        async for _ in attempts():
            (found,) = (await own.call("FindCoordinator", _share_key(), own.internal)).coordinators
            if not found.error_code:
                break
        assert found.error_code == 0
        await _refused(alice)
        assert (await admin.call("FindCoordinator", _share_key(), admin.internal)).coordinators[0].error_code == 0
        await node.allow(allowed(ALICE, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
        assert (await alice.call("FindCoordinator", _share_key(), alice.internal)).coordinators[0].error_code == 0
        stream = await alice.transport.open_stream(alice.internal, METHODS["StateStream"])
        await stream.write(_reading())
        assert await stream.read() is not None
        await node.allow()
        await stream.write(_reading())
        with pytest.raises(TransportError) as ended:
            await stream.read()
        assert ended.value.status is TransportStatus.PERMISSION_DENIED
        await _refused(alice)


async def _refused(caller: Wire) -> None:
    """Check that the port for nodes ends this caller's calls, unary ones and streams."""
    said = "User:alice may not CLUSTER_ACTION CLUSTER"
    for name, request in (
        ("FindCoordinator", _share_key()),
        ("ReadShareGroupState", _reading().read),
        ("WriteTxnMarkers", METHODS["WriteTxnMarkers"].request_type()),
        ("EndMemberSessions", METHODS["EndMemberSessions"].request_type()),
        ("ReportMemberConnections", METHODS["ReportMemberConnections"].request_type()),
        ("ListOffsets", METHODS["ListOffsets"].request_type()),
        ("Produce", METHODS["Produce"].request_type()),
    ):
        with pytest.raises(TransportError, match=said) as refused:
            await caller.call(name, request, caller.internal)
        assert refused.value.status is TransportStatus.PERMISSION_DENIED, name
    stream = await caller.transport.open_stream(caller.internal, METHODS["StateStream"])
    with contextlib.suppress(TransportError):  # the stream may have ended already
        await stream.write(_reading())
    with pytest.raises(TransportError, match=said):
        await stream.read()


@pytest.mark.rule("CM-60", "CM-174")
async def test_a_node_with_tls_shows_when_its_certificate_ends_and_prometheus_own_check_has_no_remark(
    tmp_path: Path,
) -> None:
    async with running(with_tls(tmp_path)) as node:
        registry, certificates = node.process.registry, node.process.certificates
        assert certificates is not None
        ends_at = registry.get_sample_value("sharegroups_certificate_expiry_timestamp_seconds")
        assert ends_at == certificates.current.ends_at.timestamp()
        assert registry.get_sample_value("sharegroups_certificate_reload_failures_total") == 0
        assert_without_remarks(generate_latest(registry).decode())


@pytest.mark.rule("CM-61")
async def test_a_node_of_the_same_principal_needs_no_entry_and_a_renewed_certificate_changes_who_is_one(
    tmp_path: Path,
) -> None:
    async with running(with_tls(tmp_path)) as node:
        other = node.caller("node-2")
        with pytest.raises(TransportError, match="User:node-2 may not CLUSTER_ACTION CLUSTER"):
            await other.call("FindCoordinator", _share_key(), other.internal)
        install(files_in(tmp_path), AUTHORITY.issue("node-2", ["127.0.0.1"]), AUTHORITY.certificate)
        assert node.process.certificates is not None
        assert node.process.certificates.reload()
        answer = await other.call("FindCoordinator", _share_key(), other.internal)
        assert answer.coordinators[0].error_code == 0


@pytest.mark.rule("CM-61")
async def test_a_refusal_ends_the_call_with_kafkas_error_in_its_details(tmp_path: Path) -> None:
    async with running(with_tls(tmp_path)) as node:
        certificate, key = AUTHORITY.issue("alice")
        credentials = grpc.ssl_channel_credentials(AUTHORITY.certificate, key, certificate)
        async with grpc.aio.secure_channel(node.process.internal_address, credentials) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(METHODS["FindCoordinator"].path)(_share_key().SerializeToString())
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    trailing: Iterable[Any] = refused.value.trailing_metadata()
    details = dict(trailing)["grpc-status-details-bin"]
    assert b"CLUSTER_AUTHORIZATION_FAILED" in details


@pytest.mark.parametrize("on", [True, False], ids=["with access control", "without it"])
@pytest.mark.rule("CM-61")
async def test_reflection_is_not_served_with_access_control(on: bool) -> None:
    async with running({**FLAGS, "access.control.enable": str(on).lower()}) as node:
        for address in (node.address, node.process.internal_address):
            async with grpc.aio.insecure_channel(address) as channel:
                stub = reflection_pb2_grpc.ServerReflectionStub(channel)
                call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
                if on:
                    with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
                        await call.read()
                else:
                    assert "ClusterService" in str(await call.read()), address


@pytest.mark.rule("CM-61")
async def test_a_node_without_tls_starts_with_access_control_only_if_its_port_for_nodes_is_on_loopback() -> None:
    with pytest.raises(ListenError, match=r"everyone who reaches it could read and write share state"):
        async with running({**FLAGS, "internal.listen.host": "0.0.0.0", "allow.plaintext": "true"}):
            pass
