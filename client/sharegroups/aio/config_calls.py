"""Routes requests about configs: a node's own configs to that node, which alone knows them; the rest to any node."""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message

from kip932.errors import InvalidRequestError, KafkaError
from kip932.ids import RESOURCE_BROKER
from kip932.rpc.transport import Method
from sharegroups.admin_values import ConfigResource
from sharegroups.aio.cluster import Cluster
from sharegroups.aio.coordinator_calls import at_any, until_answered

ResponseT = TypeVar("ResponseT", bound=Message)


async def at_their_nodes(
    cluster: Cluster, method: Method[Any, ResponseT], request: Any, timeout_s: float
) -> tuple[list[ResponseT], dict[ConfigResource, KafkaError]]:
    """Return the answers to a request with `resources`, and an error for each resource whose node is not alive.

    Raises KafkaError, RequestTimedOutError after `timeout_s` without an answer.
    """
    parts: dict[str, Any] = {}
    for resource in request.resources:
        node = resource.resource_name if resource.resource_type == RESOURCE_BROKER else ""
        if node not in parts:
            parts[node] = type(request)()
            parts[node].CopyFrom(request)
            parts[node].ClearField("resources")
        parts[node].resources.append(resource)
    if any(parts):
        await until_answered(cluster, "Metadata", timeout_s, lambda: cluster.fetch_metadata([]))
    answers: list[ResponseT] = []
    errors: dict[ConfigResource, KafkaError] = {}
    for node, part in parts.items():
        address = cluster.address(int(node)) if node.isdecimal() else None
        if not node:
            answers.append(await at_any(cluster, method, part, timeout_s))
        elif address is None:
            alive = ", ".join(map(str, cluster.node_ids()))
            errors[ConfigResource.broker(node)] = InvalidRequestError(
                f"no node {node!r} is alive; the live nodes of the cluster are {alive}"
            )
        else:
            answers.append(await _at(cluster, address, method, part, timeout_s))
    return answers, errors


async def _at(
    cluster: Cluster, address: str, method: Method[Any, ResponseT], request: Any, timeout_s: float
) -> ResponseT:
    one_s = min(timeout_s, cluster.timeout_s)
    return await until_answered(
        cluster, method.name, timeout_s, lambda: cluster.transport.call(address, method, request, one_s)
    )
