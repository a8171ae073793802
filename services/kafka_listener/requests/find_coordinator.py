"""FindCoordinator: the nodes that coordinate groups (KL-46); for a transactional id the asked node (KL-101)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from kafka_listener.ports import Broker, Cluster, Connection
from kafka_listener.requests.refusals import code_of, text_of
from kafka_listener.requests.slices import slices
from kafka_listener.requests.transactional_ids import refusal
from kip932.acls import Operation
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest, FindCoordinatorResponse
from kip932.errors import CoordinatorNotAvailableError, InvalidRequestError, KafkaError, error_for
from kip932.ids import KEY_TYPE_GROUP, KEY_TYPE_TRANSACTION

_RESPONSE: Final = api("FindCoordinator").response
#: From this version on a request has many keys, and the answer an entry for each.
_MANY_KEYS: Final = 4
#: Clients that know KIP-890 send this version, or a later one.
_KIP_890: Final = 6


class Found(NamedTuple):
    """The coordinator of a key, or why there is none."""

    key: str
    broker: Broker | None
    error: KafkaError | None = None


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with the coordinator of each key."""
    keys = list(request.coordinator_keys) if version >= _MANY_KEYS else [request.key]
    key_type = request.key_type if version >= 1 else KEY_TYPE_GROUP
    if key_type == KEY_TYPE_GROUP:
        found = await _groups(keys, connection)
    elif key_type == KEY_TYPE_TRANSACTION:
        found = await transactions(keys, connection, known=version >= _KIP_890)
    else:
        error = InvalidRequestError(
            f"key type {key_type} is not served to Kafka's clients; expected 0 (group) or 1 (transactional id)"
        )
        found = [Found(key, None, error) for key in keys]
    return await many(found) if version >= _MANY_KEYS else one(found[0])


async def _groups(keys: Sequence[str], connection: Connection) -> list[Found]:
    try:
        response = await connection.call("find_coordinator", FindCoordinatorRequest(coordinator_keys=keys))
    except KafkaError as error:
        return [Found(key, None, error) for key in keys]
    return await groups(response, connection.cluster)


async def groups(response: FindCoordinatorResponse, cluster: Cluster) -> list[Found]:
    """Return the coordinators of groups by the node's response."""
    found, turns = [], slices()
    for each in response.coordinators:
        await turns.step()
        error = error_for(each.error_code, each.error_message or None)
        broker = None if error is not None else cluster.broker(each.node_id)
        if error is None and broker is None:
            error = CoordinatorNotAvailableError(
                f"the coordinator of {each.key!r}, node {each.node_id}, has no Kafka listener; set kafka.listen.port "
                "on every node"
            )
        found.append(Found(each.key, broker, error))
    return found


async def transactions(keys: Sequence[str], connection: Connection, *, known: bool) -> list[Found]:
    """Return the coordinators of transactional ids: any node is, so the client goes on with this one. `known`: as for
    `refusal`."""
    here = connection.cluster.broker(connection.cluster.node_id)
    found, turns = [], slices()
    for key in keys:
        await turns.step()
        error = refusal(connection, key, Operation.DESCRIBE, known=known)
        if error is None and here is None:
            error = CoordinatorNotAvailableError("this node is not in the list of nodes yet; try again")
        found.append(Found(key, here if error is None else None, error))
    return found


def one(found: Found) -> Any:
    """Return the answer of versions 0 to 3, which have one key."""
    broker = found.broker or Broker(-1, "", -1)
    return _RESPONSE(
        error_code=code_of(found.error),
        error_message=text_of(found.error),
        node_id=broker.node_id,
        host=broker.host,
        port=broker.port,
    )


async def many(found: Sequence[Found]) -> Any:
    """Return the answer of versions from 4 on, which has an entry for each key."""
    response, turns = _RESPONSE(), slices()
    for each in found:
        await turns.step()
        broker = each.broker or Broker(-1, "", -1)
        response.coordinators.append(
            _RESPONSE.Coordinator(
                key=each.key,
                node_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                error_code=code_of(each.error),
                error_message=text_of(each.error),
            )
        )
    return response
