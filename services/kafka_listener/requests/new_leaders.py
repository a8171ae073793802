"""Waits until new partitions have leaders (KL-57): in Kafka a partition has one from the beginning, and a client that
asks for it at once remembers that it had none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from kafka_listener.ports import Connection
from kip932.api.v1.metadata_pb2 import MetadataRequest, MetadataResponse
from kip932.errors import KafkaError

#: The maximum time that an answer waits. A new partition is claimed within some tens of milliseconds.
WAIT_MAX_S: Final = 1.0
_PAUSE_S: Final = 0.005
_PAUSE_MAX_S: Final = 0.2


async def wait_for_leaders(connection: Connection, names: Iterable[str], timeout_ms: int) -> None:
    """Wait until all partitions of these topics have a leader, but not longer than the request says, nor than
    WAIT_MAX_S. Raises no KafkaError: the topics exist either way."""
    asked = MetadataRequest()
    for name in names:
        asked.topics.values.add(name=name)
    if not asked.topics.values:
        return
    clock = asyncio.get_running_loop().time
    ends_s, pause_s = clock() + min(max(timeout_ms, 0) / 1000, WAIT_MAX_S), _PAUSE_S
    try:
        while not are_led(await connection.call("metadata", asked)) and clock() < ends_s:
            await asyncio.sleep(min(pause_s, max(ends_s - clock(), 0)))
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)
    except KafkaError:
        return


def are_led(found: MetadataResponse) -> bool:
    """Return whether each partition has a leader. A topic with an error has none to wait for."""
    return all(partition.leader_id >= 0 for topic in found.topics for partition in topic.partitions)
