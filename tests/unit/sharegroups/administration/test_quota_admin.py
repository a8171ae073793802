"""The admin client and quotas of clients: one request, a result for each entity."""

from __future__ import annotations

import pytest

from kip932.errors import ClusterAuthorizationFailedError, InvalidRequestError
from kip932.quotas import QuotaEntity
from sharegroups.aio.admin import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster

ALICE, APP, CLIENTS = QuotaEntity("alice"), QuotaEntity("", "app"), QuotaEntity(client_id="")


def admin(fake: FakeCluster) -> Admin:
    servers = ",".join(f"node{node}:9000" for node in fake.nodes)
    return Admin({"bootstrap.servers": servers}, transport=fake.transport())


@pytest.mark.rule("CL-160")
@on_fake_cluster()
async def test_quotas_are_set_listed_and_removed(fake: FakeCluster) -> None:
    async with admin(fake) as a:
        wanted: dict[QuotaEntity, dict[str, float | None]] = {
            ALICE: {"producer_byte_rate": 1000, "consumer_byte_rate": 5},
            APP: {"controller_mutation_rate": 0.5},
        }
        assert await a.alter_client_quotas(wanted) == {ALICE: None, APP: None}
        assert await a.describe_client_quotas() == wanted
        assert await a.alter_client_quotas({CLIENTS: {"producer_byte_rate": 1}}, validate_only=True) == {CLIENTS: None}
        assert await a.alter_client_quotas({ALICE: {"producer_byte_rate": None}}) == {ALICE: None}
        assert await a.describe_client_quotas() == {ALICE: {"consumer_byte_rate": 5}, APP: wanted[APP]}
        assert len(fake.quota_requests) == 5


@pytest.mark.rule("CL-160")
@on_fake_cluster()
async def test_each_entity_has_its_own_error(fake: FakeCluster) -> None:
    async with admin(fake) as a:
        fake.errors["alter_client_quotas"].append(ClusterAuthorizationFailedError.code)
        result = await a.alter_client_quotas({ALICE: {"producer_byte_rate": 1}, APP: {"k": 1}, CLIENTS: {}})
        assert list(result) == [ALICE, APP, CLIENTS]
        assert [type(error) for error in result.values()] == [
            ClusterAuthorizationFailedError,
            InvalidRequestError,
            type(None),
        ]
        assert not fake.quotas
        fake.errors["describe_client_quotas"].append(ClusterAuthorizationFailedError.code)
        with pytest.raises(ClusterAuthorizationFailedError):
            await a.describe_client_quotas()
