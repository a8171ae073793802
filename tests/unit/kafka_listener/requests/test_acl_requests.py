"""DescribeAcls, CreateAcls, DeleteAcls: entries and filters both ways."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import create_acls, delete_acls, describe_acls
from kip932.api.v1.acl_pb2 import AclBinding
from kip932.api.v1.create_acls_pb2 import CreateAclsResponse
from kip932.api.v1.delete_acls_pb2 import DeleteAclsResponse
from kip932.api.v1.describe_acls_pb2 import DescribeAclsResponse
from kip932.errors import ClusterAuthorizationFailedError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, answered

VERSIONS = pytest.mark.parametrize("version", range(1, 4))
FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": "User:ann",
    "host_filter": None,
    "operation": 3,
    "permission_type": 1,
}


def entry(principal: str, name: str = "orders", pattern: int = 3) -> AclBinding:
    return AclBinding(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=3,
        permission_type=3,
    )


def check_filter(made: Any) -> None:
    assert (made.resource_type, made.resource_pattern_type, made.operation, made.permission_type) == (2, 1, 3, 1)
    assert made.principal == "User:ann"
    assert not made.HasField("resource_name")
    assert not made.HasField("host")


@pytest.mark.rule("KL-63")
@VERSIONS
@virtual
async def test_entries_are_listed_by_resource(version: int) -> None:
    entries = [entry("User:ann"), entry("User:bob"), entry("User:ann", pattern=4), entry("User:ann", name="x")]
    connection = ScriptedConnection(describe_acls=DescribeAclsResponse(acls=entries))
    asked = api("DescribeAcls").request(**FILTER)
    got = await answered("DescribeAcls", version, asked, connection, describe_acls.answer)
    check_filter(connection.request.filter)
    assert [(one.resource_type, one.resource_name, one.pattern_type) for one in got.resources] == [
        (2, "orders", 3),
        (2, "orders", 4),
        (2, "x", 3),
    ]
    assert [(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in got.resources[0].acls] == [
        ("User:ann", "*", 3, 3),
        ("User:bob", "*", 3, 3),
    ]


@pytest.mark.rule("KL-63")
@VERSIONS
@virtual
async def test_entries_are_created(version: int) -> None:
    response = CreateAclsResponse()
    response.results.add()
    response.results.add(error_code=42, error_message="no such operation")
    connection = ScriptedConnection(create_acls=response)
    request = api("CreateAcls").request
    fields = {"resource_name": "orders", "principal": "User:ann", "host": "*", "permission_type": 3}
    asked = request(
        creations=[
            request.AclCreation(resource_type=2, resource_pattern_type=4, operation=3, **fields),
            request.AclCreation(resource_type=2, operation=9, **fields),
        ]
    )
    got = await answered("CreateAcls", version, asked, connection, create_acls.answer)
    assert next(iter(connection.request.creations)) == entry("User:ann", pattern=4)
    assert [(one.error_code, one.error_message) for one in got.results] == [(0, None), (42, "no such operation")]


@pytest.mark.rule("KL-63")
@VERSIONS
@virtual
async def test_entries_are_removed(version: int) -> None:
    response = DeleteAclsResponse()
    response.filter_results.add(matching_acls=[entry("User:ann"), entry("User:ann", pattern=4)])
    response.filter_results.add(error_code=42, error_message="empty filter")
    connection = ScriptedConnection(delete_acls=response)
    request = api("DeleteAcls").request
    asked = request(filters=[request.DeleteAclsFilter(**FILTER), request.DeleteAclsFilter(**FILTER)])
    got = await answered("DeleteAcls", version, asked, connection, delete_acls.answer)
    check_filter(connection.request.filters[1])
    first, second = got.filter_results
    assert [(one.error_code, one.resource_name, one.pattern_type, one.principal) for one in first.matching_acls] == [
        (0, "orders", 3, "User:ann"),
        (0, "orders", 4, "User:ann"),
    ]
    assert (second.error_code, second.error_message, second.matching_acls) == (42, "empty filter", ())


@pytest.mark.rule("KL-40", "KL-63")
@virtual
async def test_a_refusal_is_that_of_the_answer_or_of_each_item() -> None:
    refused = ClusterAuthorizationFailedError("no")
    connection = ScriptedConnection(describe_acls=refused, create_acls=refused, delete_acls=refused)
    got = await answered("DescribeAcls", 2, api("DescribeAcls").request(**FILTER), connection, describe_acls.answer)
    assert (got.error_code, got.error_message, got.resources) == (31, "no", ())
    request = api("CreateAcls").request
    got = await answered("CreateAcls", 2, request(creations=[request.AclCreation()]), connection, create_acls.answer)
    assert [(one.error_code, one.error_message) for one in got.results] == [(31, "no")]
    request = api("DeleteAcls").request
    asked = request(filters=[request.DeleteAclsFilter(**FILTER)])
    got = await answered("DeleteAcls", 2, asked, connection, delete_acls.answer)
    assert [(one.error_code, one.matching_acls) for one in got.filter_results] == [(31, ())]
