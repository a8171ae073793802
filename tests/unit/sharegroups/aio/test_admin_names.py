"""A string in place of a list of names is refused before anything is sent, since its letters would be names (CL-45)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sharegroups.aio import Admin
from sharegroups.messages import TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.create_topics("orders"),
        lambda admin: admin.delete_topics("orders"),
        lambda admin: admin.list_topics("orders"),
        lambda admin: admin.describe_share_groups("workers"),
        lambda admin: admin.delete_share_groups("workers"),
        lambda admin: admin.delete_share_group_offsets("workers", "orders"),
        lambda admin: admin.describe_configs("orders"),
        lambda admin: admin.delete_topics(7),
    ],
    ids=[
        "create_topics", "delete_topics", "list_topics", "describe_share_groups", "delete_share_groups",
        "delete_share_group_offsets", "describe_configs", "a number",
    ],
)  # fmt: skip
@pytest.mark.asyncio
async def test_a_text_is_no_list_of_names(call: Callable[[Any], Awaitable[Any]]) -> None:
    async with Admin({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 500}) as admin:
        with pytest.raises(ValueError, match=r"needs a list of .*, found"):
            await call(admin)


def test_a_partition_is_shown_as_people_write_it() -> None:
    partition = TopicIdPartition("orders", 3, bytes(16))
    assert f"{ {partition: None} }" == "{orders-3: None}"


@on_fake_cluster()
async def test_a_list_of_names_is_sent(fake: FakeCluster) -> None:
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        reported = await admin.delete_share_group_offsets("g", ["orders", "invoices"])
    assert set(reported) == {"orders", "invoices"}
