"""What the guests of a run may read, by the entries that a node follows; found without the product's own decisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kip932.acls import Acl, Operation, ResourceType
from tests.simulation.connection_events import RightsSeen

if TYPE_CHECKING:
    from shard_runtime.rpc.access import Access
    from tests.simulation.process import Process

#: The principal of the clients whose rights come and go. The others have none, and may do everything.
GUEST: Final = "User:guest"


def readable(acls: Iterable[Acl], kind: ResourceType) -> tuple[str, ...]:
    """Return the names that the guests may read: those with an entry that allows it, and none that denies it. Their
    entries are all literal and for every host."""
    entries = [
        each for each in acls if (each.principal, each.resource_type, each.operation) == (GUEST, kind, Operation.READ)
    ]
    denied = {each.resource_name for each in entries if not each.allows}
    return tuple(sorted({each.resource_name for each in entries if each.allows} - denied))


def watch_rights(process: Process, access: Access) -> None:
    """Record what the guests may read, whenever the process decides by other entries."""
    world = process.world

    def changed() -> None:
        acls = access._acls or ()
        allowed = readable(acls, ResourceType.GROUP), readable(acls, ResourceType.TOPIC)
        world.history.add(RightsSeen(world.now_ms(), process.name, process.incarnation, GUEST, *allowed))

    access.subscribe(changed)
