"""DescribeConfigs."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import describe_configs
from kip932.api.v1.describe_configs_pb2 import DescribeConfigsResponse
from kip932.errors import InvalidRequestError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, answered

REQUEST = api("DescribeConfigs").request
answer = partial(answered, "DescribeConfigs")


def found() -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    result = response.results.add(resource_type=32, resource_name="g")
    config = result.configs.add(
        name="share.auto.offset.reset",
        value="earliest",
        config_source=8,
        config_type=2,
        documentation="Where to begin.",
    )
    config.synonyms.add(name="share.auto.offset.reset", value="earliest", source=8)
    config.synonyms.add(name="share.auto.offset.reset", value="latest", source=5)
    result.configs.add(name="hidden", is_sensitive=True, read_only=True, config_source=4, config_type=9)
    response.results.add(error_code=3, error_message="no such topic", resource_type=2, resource_name="nope")
    return response


@pytest.mark.rule("KL-60")
@pytest.mark.parametrize("version", range(1, 5))
@virtual
async def test_configs_have_sources_synonyms_and_types(version: int) -> None:
    connection = ScriptedConnection(describe_configs=found())
    resource = REQUEST.DescribeConfigsResource
    asked = REQUEST(
        resources=[
            resource(resource_type=32, resource_name="g", configuration_keys=None),
            resource(resource_type=2, resource_name="nope", configuration_keys=["retention.ms"]),
            resource(resource_type=4, resource_name="", configuration_keys=[]),
        ],
        include_synonyms=True,
        **({"include_documentation": True} if version >= 3 else {}),
    )
    got = await answer(version, asked, connection, describe_configs.answer)
    request = connection.request
    assert (request.include_synonyms, request.include_documentation) == (True, version >= 3)
    assert [
        (
            each.resource_type,
            each.resource_name,
            each.HasField("configuration_keys"),
            list(each.configuration_keys.values),
        )
        for each in request.resources
    ] == [(32, "g", False, []), (2, "nope", True, ["retention.ms"]), (4, "", True, [])]
    group, topic = got.results
    assert (topic.error_code, topic.error_message, topic.configs) == (3, "no such topic", ())
    first, hidden = group.configs
    assert (first.name, first.value, first.read_only, first.config_source) == (
        "share.auto.offset.reset",
        "earliest",
        False,
        8,
    )
    assert [(each.value, each.source) for each in first.synonyms] == [("earliest", 8), ("latest", 5)]
    assert (hidden.value, hidden.is_sensitive, hidden.read_only) == (None, True, True)
    if version >= 3:
        assert (first.config_type, first.documentation, hidden.documentation) == (2, "Where to begin.", None)


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_whole_request_is_that_of_each_resource() -> None:
    connection = ScriptedConnection(describe_configs=InvalidRequestError("too many"))
    asked = REQUEST(resources=[REQUEST.DescribeConfigsResource(resource_type=2, resource_name="a")])
    got = await answer(4, asked, connection, describe_configs.answer)
    assert [(each.error_code, each.resource_name, each.error_message) for each in got.results] == [
        (42, "a", "too many")
    ]
