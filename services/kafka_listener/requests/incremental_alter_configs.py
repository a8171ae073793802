"""IncrementalAlterConfigs of topics, brokers and groups (KL-60)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import message_of
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1.incremental_alter_configs_pb2 import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kip932.errors import KafkaError

_RESPONSE: Final = api("IncrementalAlterConfigs").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Change configs. Both versions are answered alike."""
    asked = await node_request(request)
    try:
        return await answer_of(await connection.call("incremental_alter_configs", asked))
    except KafkaError as error:
        return await refused(asked, error)


async def node_request(request: Any) -> IncrementalAlterConfigsRequest:
    """Return the node's request."""
    asked = IncrementalAlterConfigsRequest(validate_only=request.validate_only)
    turns = slices()
    for resource in request.resources:
        await turns.step()
        one = asked.resources.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        for config in resource.configs:
            await turns.step()
            one.configs.add(name=config.name, config_operation=config.config_operation, value=config.value)
    return asked


async def refused(asked: IncrementalAlterConfigsRequest, error: KafkaError) -> Any:
    """Return the answer when the node refuses the request as a whole: the error for each resource."""
    code, message = error.code, error.message
    return _RESPONSE(
        responses=await made_of(asked.resources, lambda resource: _result(resource, code, message), slices())
    )


async def answer_of(response: IncrementalAlterConfigsResponse) -> Any:
    """Return the answer."""
    results = await made_of(
        response.responses, lambda result: _result(result, result.error_code, message_of(result)), slices()
    )
    return _RESPONSE(throttle_time_ms=response.throttle_time_ms, responses=results)


def _result(resource: Any, code: int, message: str | None) -> Any:
    return _RESPONSE.AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
