"""The calls that end with an admin client."""

from __future__ import annotations

import pytest

from sharegroups.aio import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster


@on_fake_cluster()
async def test_close_ends_the_connections_that_the_admin_made_and_no_others(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fake.transport()
    closed: list[object] = []

    async def close() -> None:
        closed.append(made)

    monkeypatch.setattr(made, "close", close)
    monkeypatch.setattr("sharegroups.aio.admin.transport_for", lambda _: made)
    for given in (made, None):
        async with Admin({"bootstrap.servers": fake.bootstrap}, transport=given) as admin:
            assert "t" in await admin.list_topics()
        assert closed == ([] if given else [made])
