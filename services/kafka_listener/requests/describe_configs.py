"""DescribeConfigs of topics, brokers and groups (KL-60)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import message_of
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1.describe_configs_pb2 import DescribeConfigsRequest, DescribeConfigsResponse
from kip932.errors import KafkaError

_RESPONSE: Final = api("DescribeConfigs").response
#: From this version on a request may ask for documentation, and the answer has types.
_DOCUMENTATION_FROM: Final = 3


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with the configs of each resource."""
    asked = await node_request(request, version)
    try:
        response = await connection.call("describe_configs", asked)
    except KafkaError as error:
        response = await refused(asked, error)
    return await answer_of(response)


async def node_request(request: Any, version: int) -> DescribeConfigsRequest:
    """Return the node's request. Null names ask for all configs."""
    asked = DescribeConfigsRequest(
        include_synonyms=request.include_synonyms,
        include_documentation=version >= _DOCUMENTATION_FROM and request.include_documentation,
    )
    turns = slices()
    for resource in request.resources:
        await turns.step()
        one = asked.resources.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        if resource.configuration_keys is not None:
            one.configuration_keys.values.extend(resource.configuration_keys)
            one.configuration_keys.SetInParent()
    return asked


async def refused(asked: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    """Return the node's response when it refuses the request as a whole: the error for each resource."""
    response = DescribeConfigsResponse()
    turns = slices()
    for resource in asked.resources:
        await turns.step()
        response.results.add(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    return response


async def answer_of(response: DescribeConfigsResponse) -> Any:
    """Return the answer."""
    answered, turns = _RESPONSE(throttle_time_ms=response.throttle_time_ms), slices()
    for result in response.results:
        await turns.step()
        answered.results.append(
            _RESPONSE.DescribeConfigsResult(
                error_code=result.error_code,
                error_message=message_of(result),
                resource_type=result.resource_type,
                resource_name=result.resource_name,
                configs=await made_of(result.configs, _config, turns),
            )
        )
    return answered


def _config(config: DescribeConfigsResponse.Config) -> Any:
    return _RESPONSE.DescribeConfigsResourceResult(
        name=config.name,
        value=_value(config),
        read_only=config.read_only,
        config_source=config.config_source,
        is_sensitive=config.is_sensitive,
        synonyms=[
            _RESPONSE.DescribeConfigsSynonym(name=each.name, value=_value(each), source=each.source)
            for each in config.synonyms
        ],
        config_type=config.config_type,
        documentation=config.documentation if config.HasField("documentation") else None,
    )


def _value(of: DescribeConfigsResponse.Config | DescribeConfigsResponse.Synonym) -> str | None:
    return of.value if of.HasField("value") else None
