"""Quotas of clients, and users' passwords."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import (
    alter_client_quotas,
    alter_user_scram_credentials,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from kip932.api.v1.alter_client_quotas_pb2 import AlterClientQuotasResponse
from kip932.api.v1.alter_user_scram_credentials_pb2 import AlterUserScramCredentialsResponse
from kip932.api.v1.describe_client_quotas_pb2 import DescribeClientQuotasResponse
from kip932.api.v1.describe_user_scram_credentials_pb2 import DescribeUserScramCredentialsResponse
from kip932.errors import ClusterAuthorizationFailedError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, answered

BOTH_VERSIONS = pytest.mark.parametrize("version", range(2))
describe = partial(answered, "DescribeUserScramCredentials", 0)
alter = partial(answered, "AlterUserScramCredentials", 0)
REFUSED = ClusterAuthorizationFailedError("no")


@pytest.mark.rule("KL-64")
@BOTH_VERSIONS
@virtual
async def test_quotas_are_described(version: int) -> None:
    response = DescribeClientQuotasResponse()
    entry = response.entries.add()
    entry.entity.add(entity_type="user", entity_name="ann")
    entry.entity.add(entity_type="client-id")
    entry.values.add(key="producer_byte_rate", value=1024.5)
    connection = ScriptedConnection(describe_client_quotas=response)
    request = api("DescribeClientQuotas").request
    component = request.ComponentData
    asked = request(
        components=[
            component(entity_type="user", match_type=0, match="ann"),
            component(entity_type="client-id", match_type=1, match=None),
        ],
        strict=True,
    )
    got = await answered("DescribeClientQuotas", version, asked, connection, describe_client_quotas.answer)
    first, second = connection.request.components
    assert (first.entity_type, first.match_type, first.match) == ("user", 0, "ann")
    assert (second.match_type, second.HasField("match"), connection.request.strict) == (1, False, True)
    (one,) = got.entries
    assert [(part.entity_type, part.entity_name) for part in one.entity] == [("user", "ann"), ("client-id", None)]
    assert [(value.key, value.value) for value in one.values] == [("producer_byte_rate", 1024.5)]
    connection = ScriptedConnection(describe_client_quotas=REFUSED)
    got = await answered("DescribeClientQuotas", version, request(), connection, describe_client_quotas.answer)
    assert (got.error_code, got.error_message, got.entries) == (31, "no", None)


@pytest.mark.rule("KL-64")
@BOTH_VERSIONS
@virtual
async def test_quotas_are_altered(version: int) -> None:
    response = AlterClientQuotasResponse()
    entry = response.entries.add(error_code=42, error_message="bad")
    entry.entity.add(entity_type="user")
    connection = ScriptedConnection(alter_client_quotas=response)
    request = api("AlterClientQuotas").request
    asked = request(
        entries=[
            request.EntryData(
                entity=[request.EntityData(entity_type="user", entity_name=None)],
                ops=[
                    request.OpData(key="producer_byte_rate", value=5.5, remove=False),
                    request.OpData(key="consumer_byte_rate", value=0.0, remove=True),
                ],
            )
        ],
        validate_only=True,
    )
    got = await answered("AlterClientQuotas", version, asked, connection, alter_client_quotas.answer)
    (made,) = connection.request.entries
    assert connection.request.validate_only
    assert [(part.entity_type, part.HasField("entity_name")) for part in made.entity] == [("user", False)]
    assert [(op.key, op.value, op.remove) for op in made.ops] == [
        ("producer_byte_rate", 5.5, False),
        ("consumer_byte_rate", 0.0, True),
    ]
    assert [(one.error_code, one.error_message) for one in got.entries] == [(42, "bad")]
    connection = ScriptedConnection(alter_client_quotas=REFUSED)
    got = await answered("AlterClientQuotas", version, asked, connection, alter_client_quotas.answer)
    assert [(one.error_code, one.entity[0].entity_type, one.entity[0].entity_name) for one in got.entries] == [
        (31, "user", None)
    ]


@pytest.mark.rule("KL-64")
@virtual
async def test_users_are_described_all_or_some() -> None:
    response = DescribeUserScramCredentialsResponse()
    response.results.add(user="ann").credential_infos.add(mechanism=1, iterations=4096)
    response.results.add(user="bob", error_code=91, error_message="no such user")
    connection = ScriptedConnection(describe_user_scram_credentials=response)
    request = api("DescribeUserScramCredentials").request
    handler = describe_user_scram_credentials.answer
    users = [request.UserName(name=name) for name in ("ann", "bob")]
    got = await describe(request(users=users), connection, handler)
    assert [user.name for user in connection.request.users] == ["ann", "bob"]
    first, second = got.results
    assert [(info.mechanism, info.iterations) for info in first.credential_infos] == [(1, 4096)]
    assert (second.error_code, second.error_message) == (91, "no such user")
    for all_users in (None, users[:0]):
        connection.calls.clear()
        await describe(request(users=all_users), connection, handler)
        assert list(connection.request.users) == []
    got = await describe(request(), ScriptedConnection(describe_user_scram_credentials=REFUSED), handler)
    assert (got.error_code, got.results) == (31, ())


@pytest.mark.rule("KL-64")
@virtual
async def test_users_passwords_are_altered() -> None:
    response = AlterUserScramCredentialsResponse()
    response.results.add(user="ann")
    connection = ScriptedConnection(alter_user_scram_credentials=response)
    request = api("AlterUserScramCredentials").request
    asked = request(
        deletions=[request.ScramCredentialDeletion(name="bob", mechanism=2)],
        upsertions=[
            request.ScramCredentialUpsertion(
                name="ann", mechanism=1, iterations=4096, salt=b"s" * 8, salted_password=b"p" * 32
            )
        ],
    )
    got = await alter(asked, connection, alter_user_scram_credentials.answer)
    (removed,), (made,) = connection.request.deletions, connection.request.upsertions
    assert (removed.name, removed.mechanism) == ("bob", 2)
    assert (made.name, made.mechanism, made.iterations, made.salt, made.salted_password) == (
        "ann",
        1,
        4096,
        b"s" * 8,
        b"p" * 32,
    )
    assert [(one.user, one.error_code) for one in got.results] == [("ann", 0)]
    connection = ScriptedConnection(alter_user_scram_credentials=REFUSED)
    got = await alter(asked, connection, alter_user_scram_credentials.answer)
    assert [(one.user, one.error_code) for one in got.results] == [("bob", 31), ("ann", 31)]
