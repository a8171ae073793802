"""The state of one share-partition, accessed through the share coordinator's RPCs and directly in the store."""

from __future__ import annotations

from typing import Any

from kip932.internal.v1 import delete_share_group_state_pb2 as delete_pb
from kip932.internal.v1 import initialize_share_group_state_pb2 as initialize_pb
from kip932.internal.v1 import read_share_group_state_pb2 as read_pb
from kip932.internal.v1 import write_share_group_state_pb2 as write_pb
from share_coordinator.core.records import ShareRecord
from tests.integration.scenarios.stored import share_records
from tests.integration.scenarios.wire import Batches, Wire
from tests.support.node import Cluster, unique


class Key:
    """The state of one share-partition that no leader reads."""

    def __init__(self, wire: Wire, cluster: Cluster, group: str, topic_id: bytes) -> None:
        self.wire = wire
        self.cluster = cluster
        self.group = group
        self.topic_id = topic_id

    async def _call(self, name: str, request: Any, **fields: Any) -> Any:
        request.group_id = self.group
        one = request.topics.add(topic_id=self.topic_id).partitions.add(partition=0)
        for batch in fields.pop("batches", ()):
            first, last, state, count = batch
            one.state_batches.add(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for field, value in fields.items():
            setattr(one, field, value)
        answer = await self.wire.state_call(name, request, self.group, self.topic_id)
        (topic,) = answer.results
        (result,) = topic.partitions
        assert (topic.topic_id, result.partition) == (self.topic_id, 0)
        assert bool(result.error_message) == (result.error_code != 0)
        return result

    async def initialize(self, state_epoch: int, start_offset: int) -> int:
        request = initialize_pb.InitializeShareGroupStateRequest()
        fields = {"state_epoch": state_epoch, "start_offset": start_offset}
        return int((await self._call("InitializeShareGroupState", request, **fields)).error_code)

    async def read(self, leader_epoch: int) -> Any:
        request = read_pb.ReadShareGroupStateRequest()
        return await self._call("ReadShareGroupState", request, leader_epoch=leader_epoch)

    async def write(
        self, batches: Batches, *, start: int = 0, state_epoch: int = 0, leader_epoch: int = 0, dcc: int | None = None
    ) -> int:
        fields = {"batches": batches, "state_epoch": state_epoch, "leader_epoch": leader_epoch, "start_offset": start}
        if dcc is not None:
            fields["delivery_complete_count"] = dcc
        result = await self._call("WriteShareGroupState", write_pb.WriteShareGroupStateRequest(), **fields)
        return int(result.error_code)

    async def delete(self) -> int:
        request = delete_pb.DeleteShareGroupStateRequest()
        return int((await self._call("DeleteShareGroupState", request)).error_code)

    async def summary(self) -> tuple[int, int, int, int]:
        """Return the state epoch, leader epoch, start offset and delivery-complete count."""
        found = await self.wire.summary(self.group, self.topic_id)
        assert found.error_code == 0, found.error_message
        return found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count

    def records(self) -> list[ShareRecord]:
        return share_records(self.cluster, self.group, self.topic_id)


async def new_key(wire: Wire, cluster: Cluster) -> Key:
    """Return a key with its own topic and group, without state."""
    return Key(wire, cluster, unique("g"), await wire.create_topic(unique("T")))
