"""Asks the cluster, as a client does, which node currently owns what, so that a fault affects the node that matters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest
from kip932.errors import KafkaError
from kip932.ids import KEY_TYPE_GROUP, KEY_TYPE_SHARE, SharePartitionKey, topic_id_text
from kip932.rpc.transport import TransportError
from sharegroups import Admin
from sharegroups.connection.wire import FIND_COORDINATOR
from tests.chaos.deployment import Deployment
from tests.chaos.load import wait_for
from tests.chaos.workers import TimedTransport

POLL_WAIT_S: Final = 20.0
_CALL_S: Final = 2.0


class Ownership:
    """Looks up leaders and coordinators, repeatedly until there is one."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        settings = {"bootstrap.servers": deployment.outside, "default.api.timeout.ms": 3_000}
        self._admin = Admin(settings, transport=TimedTransport(deployment.reach))
        self._names: Mapping[str, str] = {address: name for name, address in deployment.addresses.items()}

    def leader(self, topic: str, partition: int) -> str:
        """Return the node that leads a partition. Raises AssertionError if none does within a bounded time."""
        found = ""

        def known() -> bool:
            nonlocal found
            found = self._leaders(topic).get(partition, "")
            return bool(found)

        wait_for(known, f"leader of {topic}-{partition}", POLL_WAIT_S)
        return found

    def group_coordinator(self, group: str) -> str:
        """Return the node that coordinates a group. Raises AssertionError like `leader`."""
        return self._coordinator(KEY_TYPE_GROUP, group)

    def share_coordinator(self, group: str, topic: str, partition: int) -> str:
        """Return the node that keeps the state of a share-partition. Raises AssertionError like `leader`."""
        topic_id = self._admin.list_topics([topic])[topic].topic_id
        return self._coordinator(KEY_TYPE_SHARE, SharePartitionKey(group, topic_id, partition).text)

    def topic_id(self, topic: str) -> str:
        """Return a topic's id, as logs write it."""
        return topic_id_text(self._admin.list_topics([topic])[topic].topic_id)

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def _leaders(self, topic: str) -> dict[int, str]:
        try:
            nodes = {node.node_id: f"{node.host}:{node.port}" for node in self._admin.describe_cluster().nodes}
            described = self._admin.list_topics([topic])[topic]
        except KafkaError:
            return {}
        return {
            part.partition: self._names[nodes[part.leader]] for part in described.partitions if part.leader in nodes
        }

    def _coordinator(self, key_type: int, key: str) -> str:
        found = ""

        def known() -> bool:
            nonlocal found
            found = asyncio.run(self._ask(key_type, key))
            return bool(found)

        wait_for(known, f"coordinator of {key}", POLL_WAIT_S)
        return found

    async def _ask(self, key_type: int, key: str) -> str:
        transport = TimedTransport(self._deployment.reach)
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        try:
            for address in self._deployment.outside.split(","):
                try:
                    answer = await transport.call(address, FIND_COORDINATOR, request, _CALL_S)
                except TransportError:
                    continue
                for one in answer.coordinators:
                    if one.port > 0:
                        return self._names.get(f"{one.host}:{one.port}", "")
        finally:
            await transport.close()
        return ""
