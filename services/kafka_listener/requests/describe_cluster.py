"""DescribeCluster (KL-61)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import raise_refusal
from kip932.api.v1.describe_cluster_pb2 import DescribeClusterRequest
from kip932.errors import KafkaError

_RESPONSE: Final = api("DescribeCluster").response
#: From this version on a request says whether it is for brokers or for controllers.
_ENDPOINT_TYPE_FROM: Final = 1
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with the nodes that have a Kafka listener."""
    kind = request.endpoint_type if version >= _ENDPOINT_TYPE_FROM else _BROKERS
    if kind != _BROKERS:
        code = MISMATCHED_ENDPOINT_TYPE if kind == _CONTROLLERS else UNSUPPORTED_ENDPOINT_TYPE
        return _RESPONSE(error_code=code, error_message=f"endpoint type {kind} is not served here; expected 1, brokers")
    asked = DescribeClusterRequest(include_cluster_authorized_operations=request.include_cluster_authorized_operations)
    try:
        found = await connection.call("describe_cluster", asked)
        raise_refusal(found)
    except KafkaError as error:
        return _RESPONSE(error_code=error.code, error_message=error.message)
    return _RESPONSE(
        throttle_time_ms=found.throttle_time_ms,
        endpoint_type=_BROKERS,
        cluster_id=found.cluster_id,
        controller_id=connection.cluster.node_id,
        brokers=[
            _RESPONSE.DescribeClusterBroker(
                broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack or None
            )
            for each in connection.cluster.brokers()
        ],
        cluster_authorized_operations=found.cluster_authorized_operations,
    )
