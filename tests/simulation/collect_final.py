"""Collects the state of a cluster at rest, and its state again after all processes were killed and restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.ids import parse_topic_id
from kip932.records.v1.topic_log_pb2 import TopicLogRecord
from tests.simulation.final import Final as End
from tests.simulation.final import Letter, labels
from tests.simulation.history import LETTER_TOPIC, Administered, Share, StateSeen
from tests.simulation.inside import all_groups, all_states, logs, quiet, running, share_of
from tests.simulation.rebuild import Rebuilding

if TYPE_CHECKING:
    from tests.simulation.world import World
    from tests.twin.data import Data, Stream

_POLL_S: Final = 0.05
_QUIET_S: Final = 20.0
#: The time within which an interrupted change to a group ends: its call is forgotten within 60 s (GC-108), and a sweep
#: follows.
_CHANGED_S: Final = 120.0
_SWEEP_S: Final = 1.0
#: The time after a restart within which deleted topics are swept and the writes of take-overs are done.
_SETTLE_S: Final = 2.0
#: The time within which the store executes everything that a killed process had sent.
_ON_ITS_WAY_S: Final = 0.1
_STATE_LOG: Final = "{sgs:"
_TOPIC: Final = "{tp:"
_BATCH: Final = b"B"
#: Entries of a compacted stream besides the records of live keys: claims, no-ops, a last flush, a slice of copies.
_SLACK: Final = 64


async def collect_final(world: World) -> End:
    """Collect the served state, read the store after killing all processes, then collect the state that restarted
    processes replay. At the end the cluster serves again."""
    await world.settled()
    await _changed(world)
    await _quiet(world)
    served, ends, streams, groups = all_states(world), logs(world), _streams(world), all_groups(world)
    names = [each.name for each in world.shape.processes]
    for name in names:
        await world.kill(name)
    await asyncio.sleep(_ON_ITS_WAY_S)
    data = world.store.master.data
    rebuilt, torn = _rebuilt(data, world.shape.replicas > 0)
    stored = _logs_of(data)
    records = {partition: found.seen for partition, found in stored.items()}
    letters = _letters(world, records)
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(world.start(name))
    await world.settled()
    await asyncio.sleep(_SETTLE_S)
    await _quiet(world)
    return End(
        served=served,
        replayed=all_states(world),
        rebuilt=rebuilt,
        logs=ends,
        values={partition: _values(found) for partition, found in records.items()},
        labels={
            partition: {at: labels(record) for at, record in sorted(found.items())}
            for partition, found in records.items()
        },
        pressures=world.shape.pressures,
        hidden={partition: _values(found.aborted) for partition, found in stored.items() if found.aborted},
        open={partition: _values(found.open) for partition, found in stored.items() if found.open},
        leftovers=_leftovers(world),
        letters=letters,
        fatal=tuple(world.complaints_of_processes),
        streams=streams,
        torn=torn,
        logs_replayed=logs(world),
        groups=groups,
        groups_replayed=all_groups(world),
    )


async def _changed(world: World) -> None:
    """Wait a limited time until no group is being changed; a checker reports a change that is still in progress after
    that."""
    until_s = world.loop.time() + _CHANGED_S
    while any(group.changing for group in all_groups(world).values()):
        if world.loop.time() > until_s:
            return
        await asyncio.sleep(_SWEEP_S)


async def _quiet(world: World) -> None:
    """Wait until no coordinator is waiting for the store. Raises AssertionError if that takes too long."""
    until_s = world.loop.time() + _QUIET_S
    while not quiet(world):
        if world.loop.time() > until_s:
            raise AssertionError("coordinators still wait for the store, though no caller asks them anything")
        await asyncio.sleep(_POLL_S)


def _rebuilt(data: Data, tails_may_be_lost: bool) -> tuple[dict[Share, StateSeen], tuple[str, ...]]:
    reading = Rebuilding(tails_may_be_lost)
    for name, stream in sorted(data.streams.items()):
        if name.startswith(_STATE_LOG):
            reading.read(stream.fields)
    reading.finish()
    found = {}
    for key, state in reading.states.items():
        share = share_of(key)
        batches = tuple(tuple(batch) for batch in state.batches)
        numbers = (state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count)
        failures = tuple((one.first_offset, one.last_offset, *one[2:]) for one in state.failures)
        found[share] = StateSeen(0, "store", share, *numbers, batches, failures)
    return dict(sorted(found.items())), tuple(reading.torn)


class _Log:
    """One log as its entries in the store show it: its visible, aborted and open records."""

    def __init__(self, stream: Stream) -> None:
        self.seen: dict[int, Record] = {}
        self.aborted: dict[int, Record] = {}
        open_: dict[int, dict[int, Record]] = {}
        for fields in stream.fields:
            named = dict(zip(fields[::2], fields[1::2], strict=True))
            if named[b"t"] != _BATCH:
                continue
            batch = TopicLogRecord.FromString(named[b"r"]).batch
            if batch.is_control:
                ended = open_.pop(batch.producer_id, {})
                (self.seen if batch.control_type else self.aborted).update(ended)
                continue
            into = open_.setdefault(batch.producer_id, {}) if batch.is_transactional else self.seen
            for index, record in enumerate(RecordBatch.FromString(named[b"b"]).records):
                into[batch.base_offset + index] = record
        self.open = {offset: record for each in open_.values() for offset, record in each.items()}


def _logs_of(data: Data) -> dict[tuple[str, int], _Log]:
    found = {}
    for key, stream in sorted(data.streams.items()):
        if key.startswith(_TOPIC) and key.endswith("}:log"):
            topic, _, number = key.removeprefix(_TOPIC).removesuffix("}:log").partition(":")
            found[parse_topic_id(topic).hex(), int(number)] = _Log(stream)
    return found


def _letters(world: World, records: dict[tuple[str, int], dict[int, Record]]) -> tuple[Letter, ...]:
    """Remove the records of all dead-letter topics from `records`; return those in the existing topic as letters."""
    topics = {
        event.detail
        for event in world.history.of(Administered)
        if event.call == "CreateTopics" and event.target == LETTER_TOPIC
    }
    found: list[Letter] = []
    for topic_id, number in [place for place in records if place[0] in topics]:
        taken = records.pop((topic_id, number))
        if topic_id == world.topics.get(LETTER_TOPIC):
            for offset, record in taken.items():
                value = record.value if record.HasField("value") else None
                found.append(Letter(number, offset, labels(record)[0], value, labels(record)[1]))
    return tuple(found)


def _values(records: Mapping[int, Record]) -> dict[int, bytes]:
    return {at: record.value for at, record in sorted(records.items())}


def _streams(world: World) -> dict[str, tuple[int, int]]:
    """Return lengths and maximum lengths of the compacted logs: twice the size at which compaction starts, since some
    keys are copied late."""
    flags = world.flags_of(world.shape.processes[0])
    least = int(flags["shard.compaction.entries.min"])
    stored = world.store.master.data.streams
    found = {}
    for process in running(world):
        for role in (process.state, process.groups):
            for host in role.hosts if role is not None else ():
                if host.shard is not None:
                    key = host.shard_id.streams[0]
                    bound = 2 * max(least, 4 * len(host._tenure.positions._newest)) + _SLACK
                    found[key] = (len(stored[key].ids), bound)
    return dict(sorted(found.items()))


def _leftovers(world: World) -> tuple[str, ...]:
    """Return the keys of topics that do not exist according to the newest metadata (CM-21)."""
    image = max((process.node.metadata.image for process in running(world)), key=lambda image: image.version)
    existing = set(image.by_id)
    data = world.store.master.data
    keys = [*data.strings, *data.hashes, *data.streams]
    return tuple(
        sorted(
            key
            for key in keys
            if key.startswith(_TOPIC) and parse_topic_id(key.removeprefix(_TOPIC).partition(":")[0]) not in existing
        )
    )
