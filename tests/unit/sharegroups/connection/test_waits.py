"""What the clients of a process wait for."""

from __future__ import annotations

import asyncio

import pytest

from kip932.api.v1.error_code_pb2 import ErrorCode
from sharegroups.aio import Admin
from sharegroups.connection.waits import Wait, longest
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster


@pytest.mark.rule("CT-90")
def test_the_oldest_wait_is_named_until_it_ends() -> None:
    assert longest() is None
    outer, inner = Wait("a coordinator"), Wait("an answer")
    assert longest() is outer
    outer.end()
    outer.end()
    assert longest() is inner
    inner.end()
    assert longest() is None


@pytest.mark.rule("CT-90", "CL-46")
@on_fake_cluster()
async def test_a_call_that_is_retried_says_why_and_leaves_nothing(fake: FakeCluster) -> None:
    """Shows of CL-46 the text of the time-out when no node coordinates a group."""
    settings = {"bootstrap.servers": fake.bootstrap, "default.api.timeout.ms": 3_000}
    fake.errors["describe"].extend([ErrorCode.ValueType(16)] * 100)
    async with Admin(settings, transport=fake.transport()) as admin:
        asked = asyncio.ensure_future(admin.describe_share_groups(["g"]))
        await asyncio.sleep(2)
        wait = longest()
        assert wait is not None
        assert wait.what == "the coordinator of group 'g'"
        assert "not the coordinator" in wait.last
        refused = str((await asked)["g"])
    assert "has refused for 3 s; last: " in refused
    assert refused.endswith("No node has taken the group over: do the nodes reach their store? Their logs say why")
    assert longest() is None
