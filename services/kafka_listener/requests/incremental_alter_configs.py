"""IncrementalAlterConfigs of topics, brokers and groups (KL-60)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import message_of
from kip932.api.v1.incremental_alter_configs_pb2 import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kip932.errors import KafkaError

_RESPONSE: Final = api("IncrementalAlterConfigs").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Change configs. Both versions are answered alike."""
    asked = node_request(request)
    try:
        return answer_of(await connection.call("incremental_alter_configs", asked))
    except KafkaError as error:
        return refused(asked, error)


def node_request(request: Any) -> IncrementalAlterConfigsRequest:
    """Return the node's request."""
    asked = IncrementalAlterConfigsRequest(validate_only=request.validate_only)
    for resource in request.resources:
        one = asked.resources.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        for config in resource.configs:
            one.configs.add(name=config.name, config_operation=config.config_operation, value=config.value)
    return asked


def refused(asked: IncrementalAlterConfigsRequest, error: KafkaError) -> Any:
    """Return the answer when the node refuses the request as a whole: the error for each resource."""
    answered = _RESPONSE()
    for resource in asked.resources:
        answered.responses.append(_result(resource, error.code, error.message))
    return answered


def answer_of(response: IncrementalAlterConfigsResponse) -> Any:
    """Return the answer."""
    answered = _RESPONSE(throttle_time_ms=response.throttle_time_ms)
    for result in response.responses:
        answered.responses.append(_result(result, result.error_code, message_of(result)))
    return answered


def _result(resource: Any, code: int, message: str | None) -> Any:
    return _RESPONSE.AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
