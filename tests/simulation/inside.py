"""What lies inside the processes of a world, as those hold it that may answer now: states, groups, logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kip932.ids import SharePartitionKey
from tests.simulation.final import LogEnd
from tests.simulation.history import Share, StateSeen

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World


def running(world: World) -> Iterator[Process]:
    """Processes that live and do not stand still, once they have begun."""
    for process in list(world.processes.values()):
        if process.parts is not None and not process.life.halted and not process.ended:
            yield process


def confirmed(host: Any) -> Any:
    """The shard of a host that may answer, with nothing in it that the store has not confirmed; else None."""
    tenure = host._tenure
    if host.shard is None or tenure is None or host.waiting or not tenure.lease.valid():
        return None
    return host.shard


def states(process: Process) -> Iterator[tuple[SharePartitionKey, Any]]:
    """Share-partition states that a process may answer with."""
    for host in process.state.hosts if process.state is not None else ():
        shard = confirmed(host)
        if shard is not None:
            yield from shard._states.items()


def share_of(key: SharePartitionKey) -> Share:
    """A share-partition as histories name it."""
    return Share(key.group_id, key.topic_id.hex(), key.partition)


def seen(at_ms: int, process: str, share: Share, state: Any) -> StateSeen:
    """A state as histories show it."""
    batches = tuple(tuple(batch) for batch in state.batches)
    epochs = (state.state_epoch, state.leader_epoch)
    return StateSeen(at_ms, process, share, *epochs, state.start_offset, state.delivery_complete_count, batches)


def all_states(world: World) -> dict[Share, StateSeen]:
    """Every share-partition state of the cluster."""
    found = {}
    for process in running(world):
        for key, state in states(process):
            share = share_of(key)
            found[share] = seen(world.now_ms(), process.name, share, state)
    return dict(sorted(found.items()))


def logs(world: World) -> dict[tuple[str, int], LogEnd]:
    """Where every log that is led begins and ends."""
    found = {}
    for process in running(world):
        for partition, led in process.led.items():
            if led.lease.valid():
                name = (partition.topic_id.hex(), partition.partition)
                found[name] = LogEnd(led.log.log_start_offset, led.log.high_watermark)
    return dict(sorted(found.items()))


def quiet(world: World) -> bool:
    """Whether no coordinator waits for the store."""
    return not any(
        host.waiting
        for process in running(world)
        for role in (process.state, process.groups)
        if role is not None
        for host in role.hosts
    )
