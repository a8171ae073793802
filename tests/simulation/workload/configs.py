"""How an administrator changes group configs and reads lags."""

from __future__ import annotations

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from kip932.rpc.transport import TransportError
from sharegroups.admin_values import AlterConfig, ConfigResource
from sharegroups.aio import Admin
from tests.simulation.history import Administered, LagSeen, Share
from tests.simulation.workload.witness import Witness, error_text

#: After these errors it is unknown whether the change was made.
UNSURE = frozenset({"REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"})


async def alter(
    witness: Witness, admin: Admin, target: str, changes: tuple[tuple[str, str], ...], *, of_topic: bool = False
) -> str:
    """Change configs of a group or topic, in one attempt; returns the error, "" for none."""
    asked_ms = witness.world.now_ms()
    resource = ConfigResource.topic(target) if of_topic else ConfigResource.group(target)
    try:
        failure = (await admin.incremental_alter_configs({resource: [AlterConfig(*each) for each in changes]}))[
            resource
        ]
        error = error_text(failure) if failure is not None else ""
    except (KafkaError, TransportError) as problem:
        error = error_text(problem)
    for name, value in changes:
        witness.saw(Administered, "IncrementalAlterConfigs", target, f"{name}={value}", error, asked_ms)
    return error


async def lags(
    witness: Witness, admin: Admin, group: str, partitions: list[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """Return the lag of each partition that has one, -1 if it is not known; {} if there was no response. Records
    LagSeen."""
    ids = dict(witness.world.topics)
    asked_ms = witness.world.now_ms()
    with witness.trying("list_share_group_offsets") as attempt:
        found = (await admin.list_share_group_offsets({group: partitions}))[group]
        if isinstance(found, KafkaError):
            raise found
    witness.saw(Administered, "DescribeShareGroupOffsets", group, "", attempt.error, asked_ms)
    if attempt.error:
        return {}
    known: dict[TopicPartition, int] = {}
    for partition, offset in found.items():
        topic_id = ids.get(partition.topic)
        if topic_id is None or witness.world.topics.get(partition.topic) != topic_id:
            continue  # the name was deleted, created or got another id during the call
        start, lag = (offset.start_offset, offset.lag) if offset is not None else (-1, -1)
        known[partition] = -1 if lag is None else lag
        witness.saw(LagSeen, Share(group, topic_id, partition.partition), start, known[partition])
    return known
