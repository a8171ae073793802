"""IncrementalAlterConfigs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import incremental_alter_configs
from kip932.api.v1.incremental_alter_configs_pb2 import IncrementalAlterConfigsResponse
from kip932.errors import InvalidRequestError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, answered

REQUEST = api("IncrementalAlterConfigs").request
answer = partial(answered, "IncrementalAlterConfigs")


def asked() -> Any:
    change = REQUEST.AlterableConfig
    return REQUEST(
        resources=[
            REQUEST.AlterConfigsResource(
                resource_type=2,
                resource_name="orders",
                configs=[
                    change(name="retention.ms", config_operation=0, value="5"),
                    change(name="max.message.bytes", config_operation=1, value=None),
                ],
            )
        ],
        validate_only=True,
    )


@pytest.mark.rule("KL-60")
@pytest.mark.parametrize("version", range(2))
@virtual
async def test_changes_are_passed_on(version: int) -> None:
    response = IncrementalAlterConfigsResponse()
    response.responses.add(error_code=40, error_message="bad", resource_type=2, resource_name="orders")
    connection = ScriptedConnection(incremental_alter_configs=response)
    got = await answer(version, asked(), connection, incremental_alter_configs.answer)
    assert connection.request.validate_only
    (resource,) = connection.request.resources
    assert (resource.resource_type, resource.resource_name) == (2, "orders")
    assert [(each.name, each.config_operation, each.HasField("value")) for each in resource.configs] == [
        ("retention.ms", 0, True),
        ("max.message.bytes", 1, False),
    ]
    assert [(each.error_code, each.error_message, each.resource_name) for each in got.responses] == [
        (40, "bad", "orders")
    ]


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_whole_request_is_that_of_each_resource() -> None:
    connection = ScriptedConnection(incremental_alter_configs=InvalidRequestError("too many"))
    got = await answer(1, asked(), connection, incremental_alter_configs.answer)
    assert [(each.error_code, each.resource_type, each.resource_name) for each in got.responses] == [(42, 2, "orders")]
