"""The second address of each node, for clients that come from elsewhere: answers at the external port name nodes by it
(CM-237).

Only the last step of an answer differs between the two ports for clients, so services know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from shard_runtime.cluster.owners import host_port
from shard_runtime.record_log.cluster_store import NodeRecord

#: The fields by which a message says how to reach a node.
_ENDPOINT: Final = frozenset({"node_id", "host", "port"})
_KAFKA: Final = "kafka_address"

#: The names of the fields that lead from an answer to such a message.
Way = tuple[FieldDescriptor, ...]


@cache
def ways_to_nodes(answer: Descriptor) -> tuple[Way, ...]:
    """Return all ways from an answer of this type to what says how to reach a node."""
    return tuple(_ways(answer, frozenset()))


def _ways(kind: Descriptor, above: frozenset[str]) -> Iterator[Way]:
    for field in kind.fields:
        inner = field.message_type
        if inner is None or inner.full_name in above:
            continue
        if set(inner.fields_by_name) >= _ENDPOINT:
            yield (field,)
        else:
            for way in _ways(inner, above | {kind.full_name}):
                yield (field, *way)


class ExternalNames:
    """Gives answers the external addresses of nodes. `node` returns the entry of a node in the list, None for an
    unknown one.

    A node without an external address, as of a version before this one, keeps the address that it has.
    """

    def __init__(self, node: Callable[[int], NodeRecord | None]) -> None:
        self._node = node

    def __call__(self, answer: Message) -> Message:
        """Return the answer with external addresses. The answer itself is not changed: others may send it, too."""
        ways = ways_to_nodes(answer.DESCRIPTOR)
        if not any(True for way in ways for _ in _reached(answer, way)):
            return answer
        copied = type(answer)()
        copied.CopyFrom(answer)
        for way in ways:
            for endpoint in _reached(copied, way):
                self._rename(endpoint)
        return copied

    def _rename(self, endpoint: Any) -> None:
        node = self._node(endpoint.node_id)
        if node is None:
            return
        if node.external_address:
            where = host_port(node.external_address)
            endpoint.host, endpoint.port = where.host, where.port
        if _KAFKA in endpoint.DESCRIPTOR.fields_by_name and endpoint.HasField(_KAFKA) and node.kafka_external_address:
            endpoint.kafka_address = node.kafka_external_address


def _reached(message: Any, way: Way) -> Iterator[Any]:
    field, *rest = way
    value = getattr(message, field.name)
    for each in value if field.is_repeated else [value] if message.HasField(field.name) else []:
        if rest:
            yield from _reached(each, tuple(rest))
        else:
            yield each
