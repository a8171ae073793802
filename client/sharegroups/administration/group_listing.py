"""Lists the groups of all coordinators, and reports what is missing (GC-123, CL-46).

Each node lists the groups of the group-log shards that it owns, and names the shards that it does not own. A shard that
every node names is missing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kip932.api.v1.common_pb2 import NodeEndpoint
from kip932.api.v1.list_groups_pb2 import ListGroupsRequest, ListGroupsResponse
from kip932.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    NetworkError,
    NotCoordinatorError,
    RetriableError,
    error_for,
)
from kip932.rpc.transport import TransportError
from sharegroups.admin_values import GroupListing, ListGroupsResult
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import fatal_error, until_answered
from sharegroups.connection.silent_nodes import while_in_charge

#: How long the client keeps asking for shards that no node owns, in seconds. A shard gets a new owner within one lease
#: plus 2 s (CM-4).
UNOWNED_S: Final = 10.0
_ROLE: Final = "group-coordinator"
#: By shard, the reason why it is left out.
Unserved = Mapping[int, KafkaError]


class _Answer(NamedTuple):
    """The groups that a node lists, and the shards that it leaves out."""

    groups: tuple[GroupListing, ...]
    unserved: Unserved


@dataclass(frozen=True, slots=True)
class _Round:
    """The results of asking every node once."""

    answers: tuple[_Answer, ...]
    failed: tuple[KafkaError, ...]

    def result(self) -> ListGroupsResult:
        """Return the groups sorted by id, and one error for each cause of missing groups."""
        found = {group.group_id: group for answer in self.answers for group in answer.groups}
        errors = [*self.failed, *_not_listed(self._missing())]
        return ListGroupsResult([found[group_id] for group_id in sorted(found)], errors)

    def goes_on(self, spent_s: float) -> bool:
        """Return whether to ask again, `spent_s` after the first attempt."""
        missing = self._missing().values()
        if not self.failed and all(isinstance(error, NotCoordinatorError) for error in missing):
            return bool(missing) and spent_s < UNOWNED_S
        return any(isinstance(error, RetriableError) for error in (*self.failed, *missing))

    def _missing(self) -> Unserved:
        """Return the shards that every node leaves out, each with its owner's reason if there is one. A node that did
        not answer may own any shard that the others do not own."""
        if not self.answers:
            return {}
        everywhere = set.intersection(*(set(answer.unserved) for answer in self.answers))
        missing: dict[int, KafkaError] = {}
        for shard in sorted(everywhere):
            reasons = [answer.unserved[shard] for answer in self.answers]
            own = [reason for reason in reasons if not isinstance(reason, NotCoordinatorError)]
            if own or not self.failed:
                missing[shard] = (own or reasons)[0]
        return missing


async def list_groups(cluster: Cluster, request: ListGroupsRequest, timeout_s: float) -> ListGroupsResult:
    """Ask every group coordinator, and repeat while missing groups may still turn up (GC-123). Raises KafkaError when
    no node returns the list of nodes."""
    clock = asyncio.get_running_loop().time
    began_s, backoff = clock(), cluster.backoff()
    until_s = began_s + timeout_s
    answered: _Round | None = None
    while True:
        try:
            nodes = await _nodes(cluster, until_s - clock())
        except RetriableError:
            if answered is None:
                raise
            return answered.result()
        answered = await _ask(cluster, nodes, request, until_s - clock())
        pause_s = backoff.next_ms() / 1000
        if not answered.goes_on(clock() - began_s) or clock() + pause_s >= until_s:
            return answered.result()
        await asyncio.sleep(pause_s)


async def _nodes(cluster: Cluster, timeout_s: float) -> list[NodeEndpoint]:
    """Return the live group coordinators. Raises KafkaError, or RequestTimedOutError after `timeout_s`."""
    metadata = await until_answered(cluster, wire.LIST_GROUPS.name, timeout_s, lambda: cluster.fetch_metadata([]))
    return [node for node in metadata.brokers if not node.roles or _is_coordinator(node)]


async def _ask(cluster: Cluster, nodes: Sequence[NodeEndpoint], request: ListGroupsRequest, timeout_s: float) -> _Round:
    answers = await asyncio.gather(*(_ask_node(cluster, node, request, timeout_s) for node in nodes))
    failed = [answer for answer in answers if isinstance(answer, KafkaError)]
    if not nodes:
        failed.append(CoordinatorNotAvailableError("No live node is a group coordinator, so no group is listed"))
    return _Round(tuple(answer for answer in answers if isinstance(answer, _Answer)), tuple(failed))


async def _ask_node(
    cluster: Cluster, node: NodeEndpoint, request: ListGroupsRequest, timeout_s: float
) -> _Answer | KafkaError:
    address = wire.address_of(node)

    async def still_there() -> str:
        metadata = await cluster.fetch_metadata([])
        return next((at for each in metadata.brokers if (at := wire.address_of(each)) == address), "no node's address")

    call = cluster.transport.call(address, wire.LIST_GROUPS, request, timeout_s)
    try:
        response = await while_in_charge(call, address, still_there, f"node {node.node_id}")
    except TransportError as error:
        kind, cause = type(fatal_error(error) or NetworkError()), str(fatal_error(error) or error)
    else:
        refusal = error_for(response.error_code, response.error_message)
        if refusal is None or response.unserved_shards:
            return _answer(response)
        kind, cause = type(refusal), refusal.message
    return kind(f"Node {node.node_id} at {address} does not list its groups: {cause}")


def _answer(response: ListGroupsResponse) -> _Answer:
    return _Answer(
        tuple(_listing(group) for group in response.groups),
        {
            each.shard: error_for(each.error_code, each.error_message) or NotCoordinatorError()
            for each in response.unserved_shards
        },
    )


def _listing(group: ListGroupsResponse.ListedGroup) -> GroupListing:
    members = group.members if group.HasField("members") else None
    return GroupListing(group.group_id, group.group_state, group.group_type, members)


def _not_listed(missing: Unserved) -> Iterator[KafkaError]:
    """Yield one error for all shards that are left out for the same reason."""
    shards: dict[tuple[type[KafkaError], str], list[int]] = defaultdict(list)
    for shard, error in missing.items():
        unowned = isinstance(error, NotCoordinatorError)
        shards[type(error), "" if unowned else error.message].append(shard)
    for (kind, cause), numbers in shards.items():
        one = len(numbers) == 1
        named = f"shard{'' if one else 's'} {', '.join(map(str, numbers))} of the group log"
        if cause:
            yield kind(f"The groups of {named} {'is' if one else 'are'} not listed: {cause}")
        else:
            its, it_is = ("its", "it is") if one else ("their", "they are")
            yield CoordinatorNotAvailableError(
                f"No node serves {named}, so {its} groups are not listed; the logs of the group coordinators say why "
                f"{it_is} not loaded, and `sharegroups state repair` shows what in the store is damaged"
            )


def _is_coordinator(node: NodeEndpoint) -> bool:
    return any(role.replace("_", "-") == _ROLE for role in node.roles)
