"""One real node with access control, on virtual time: a topic, a group and a transactional id that every request
names, and callers with principals.

Entries are written into the metadata log, as the node itself does; they take effect through the node's own wiring.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import wraps
from inspect import Signature, signature
from types import MappingProxyType
from typing import Any, Final

from kip932.acls import Acl, Operation, PatternType, Permission, ResourceType
from kip932.api.v1.alter_share_group_offsets_pb2 import AlterShareGroupOffsetsRequest
from kip932.api.v1.delete_topics_pb2 import DeleteTopicsRequest
from kip932.errors import error_class
from shard_runtime.cluster.metadata import AclAdded, AclRemoved, Change
from shard_runtime.rpc.access import Access
from tests.integration.scenarios.wire import METHODS, Wire
from tests.scenarios.cluster import bounded
from tests.simulation import determinism
from tests.simulation.shape import Shape
from tests.simulation.world import World

TOPIC: Final = "topic-t"
GROUP: Final = "group-g"
TRANSACTION: Final = "transaction-x"
CLUSTER: Final = "kafka-cluster"
#: The names that requests use, by the type of their resource.
NAMES: Final = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER,
    ResourceType.TRANSACTIONAL_ID: TRANSACTION,
}
ADMIN: Final = "User:admin"
NODE: Final = "a"
FLAGS: Final = {
    "access.control.enable": "true",
    "super.users": ADMIN,
    "group.share.auto.offset.reset": "earliest",
    "group.share.record.lock.duration.ms": "15000",
    "group.share.session.timeout.ms": "45000",
    "group.share.heartbeat.interval.ms": "5000",
}
SHORT: Final = {
    "GROUP_AUTHORIZATION_FAILED": "GAF",
    "TOPIC_AUTHORIZATION_FAILED": "TAF",
    "CLUSTER_AUTHORIZATION_FAILED": "CAF",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "XAF",
}


def acl(
    principal: str,
    operation: Operation,
    resource: ResourceType,
    name: str | None = None,
    *,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    host: str = "*",
) -> Acl:
    """Return an entry; by default it allows something on the name that requests use."""
    return Acl(resource, name or NAMES[resource], pattern, principal, host, operation, permission)


def denial(principal: str, operation: Operation, resource: ResourceType, name: str | None = None) -> Acl:
    """Return an entry that denies."""
    return acl(principal, operation, resource, name, permission=Permission.DENY)


def reading(principal: str) -> tuple[Acl, Acl]:
    """Return the entries that a consumer needs: READ on the group and on the topic."""
    return acl(principal, Operation.READ, ResourceType.GROUP), acl(principal, Operation.READ, ResourceType.TOPIC)


#: Allows everything to everyone.
OPEN: Final = tuple(
    acl("User:*", Operation.ALL, resource, CLUSTER if resource is ResourceType.CLUSTER else "*") for resource in NAMES
)


def error_name(code: int) -> str:
    """Return the name of an error, short for those of access control; NONE for 0."""
    name = "NONE" if code == 0 else error_class(code).name
    return SHORT.get(name, name)


class Caller(Wire):
    """A client of the node, known by a principal; None for one without a certificate. Its host is `host`."""

    def __init__(self, world: World, principal: str | None, host: str) -> None:
        super().__init__(f"{NODE}:9000", f"{NODE}:9001")
        self.principal = principal
        self.host = host
        self.transport = world.transport(host, principal)  # type: ignore[assignment]  # over the simulated network

    async def exchange(self, name: str, request: Any) -> Any:
        """Send one request; return its response, for a stream the first one."""
        if not METHODS[name].streaming:
            return await self.call(name, request)
        stream = await self.transport.open_stream(self.bootstrap, METHODS[name])
        try:
            await stream.write(request)
            return await stream.read()
        finally:
            await stream.close()


class Stage:
    """The node, its names, and its entries. `admin` is a super user."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.topic_id = b""
        self._callers = 0
        self.admin = self.caller(ADMIN)

    async def open(self) -> None:
        """Create the topic, and the group without members: its state begins at offset 0."""
        self.topic_id = await self.admin.create_topic(TOPIC)
        await self.make_group()

    def caller(self, principal: str | None, host: str | None = None) -> Caller:
        """Return a client with its own connections."""
        self._callers += 1
        return Caller(self.world, principal, host or f"host{self._callers}")

    @property
    def access(self) -> Access:
        """The node's access control."""
        found = self.world.processes[NODE]._made.access  # type: ignore[union-attr]  # it has started
        assert found is not None
        return found

    async def allow(self, *acls: Acl) -> None:
        """Replace all entries by these."""
        await self.change(acls, self.entries)

    async def change(self, added: Iterable[Acl], removed: Iterable[Acl] = ()) -> None:
        """Add and remove entries, in one entry of the metadata log."""
        new = set(added)
        gone = [AclRemoved(each) for each in sorted(set(removed) - new)]
        changes: list[Change] = [*gone, *(AclAdded(each) for each in sorted(new))]
        process = self.world.processes[NODE]
        await self.world._in(process, process.node.metadata.change(lambda image: changes))

    @property
    def entries(self) -> Collection[Acl]:
        """The entries in force."""
        return self.world.processes[NODE].node.metadata.image.acls

    async def make_group(self, topic: str = TOPIC) -> None:
        """Make the group, without members, by setting its offset of the topic to 0."""
        request = AlterShareGroupOffsetsRequest(group_id=GROUP)
        request.topics.values.add(topic_name=topic).partitions.add(partition_index=0, start_offset=0)
        answer = await self.admin.call("AlterShareGroupOffsets", request, await self.admin.coordinator(GROUP))
        assert not answer.error_code, answer.error_message
        assert not answer.responses[0].partitions[0].error_code, answer

    async def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(timeout_ms=10_000)
        request.topics.add(name=name)
        answer = await self.admin.call("DeleteTopics", request)
        assert not answer.responses[0].error_code, answer


def on_stage(**flags: str) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Turn a coroutine function that takes a Stage into a test; `flags` are the node's settings, with `_` for a dot."""

    def made(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @wraps(test)
        def played(**arguments: Any) -> None:
            play(lambda stage: test(stage, **arguments), flags=flags)

        _, *others = signature(test).parameters.values()
        played.__signature__ = Signature(others)  # type: ignore[attr-defined]  # for pytest: the stage is no fixture
        return played

    return made


def play(
    story: Callable[[Stage], Awaitable[None]],
    *,
    flags: Mapping[str, str] = MappingProxyType({}),
    lines: list[str] | None = None,
    nodes: int = 1,
    set_up: bool = True,
) -> None:
    """Play a story on a new stage; it must leave no error line. `flags` are the nodes' settings, with `_` for a dot;
    `lines` receives all log lines; `set_up`: the topic and
    the group are created."""
    settings = {**FLAGS, **{name.replace("_", "."): value for name, value in flags.items()}}

    async def main() -> None:
        world = World(1, Shape(Shape.two().processes[:nodes], flags=settings))
        await world.open()
        for process in world.shape.processes:
            await world.start(process.name)
        await world.settled()
        stage = Stage(world)
        if set_up:
            await stage.open()
        await story(stage)
        await world.close()
        assert world.complaints == []

    determinism.run(1, lambda: bounded(main()), lines)
