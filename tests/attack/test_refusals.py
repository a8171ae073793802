"""All RPCs over a real connection, by a user without permissions: only refusals, which disclose no name (CM-61)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kip932.acls import Operation, ResourceType
from kip932.api.v1 import list_groups_pb2, share_fetch_pb2
from shard_runtime.rpc.table import RPCS
from tests.attack.attacks.refusals import METHODS, Fuzz, refuses
from tests.attack.definition import Target
from tests.attack.principals import ADMIN, Principals
from tests.integration.share_node.test_access import FLAGS, Node, allowed, running

#: RPCs of other programs, or served only at a separate port.
_ELSEWHERE = {path for path in RPCS if path.startswith("/externalscaler.")}
_PAIRS = 2 * len(RPCS)


@asynccontextmanager
async def _attacked(folder: Path) -> AsyncIterator[tuple[Node, Principals, Target]]:
    """A node in this process, with a topic, and a group that has a member."""
    principals = Principals(folder / "certificates")
    async with running({**FLAGS, **principals.node_settings()}) as node:
        admin = node.caller()
        admin.transport = principals.dial(ADMIN).transport()
        topic_id = await admin.create_topic("attacked")
        await admin.join("group-of-a-member", ["attacked"], "the-id-of-the-member")
        target = Target(
            clients={"node": node.address}, internal={"node": node.process.internal_address}, metrics={},
            topic="attacked", topic_id=topic_id, dial=principals.dial("stranger"), admin=principals.dial(ADMIN),
        )  # fmt: skip
        yield node, principals, target


def _asked(target: Target, seed: int, pairs: int) -> int:
    with Fuzz(target, random.Random(seed)) as fuzz:
        paths = list(RPCS)
        for number in range(pairs):
            fuzz.ask(paths[number % len(paths)])
        return sum(fuzz.counts.values())


def test_every_rpc_is_asked() -> None:
    assert METHODS.keys() | _ELSEWHERE == RPCS.keys()


@pytest.mark.asyncio
@pytest.mark.rule("CM-61")
async def test_a_user_without_a_right_gets_refusals_alone(tmp_path: Path) -> None:
    async with _attacked(tmp_path) as (_, _, target):
        assert await asyncio.to_thread(_asked, target, 1, _PAIRS) == _PAIRS


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("operation", "resource", "name"),
    [
        (Operation.DESCRIBE, ResourceType.TOPIC, "attacked"),
        (Operation.READ, ResourceType.GROUP, "group-of-a-member"),
        (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "taken-transaction"),
        (Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"),
        (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"),
    ],
)
async def test_one_right_more_is_noticed(
    tmp_path: Path, operation: Operation, resource: ResourceType, name: str
) -> None:
    async with _attacked(tmp_path) as (node, _, target):
        await node.allow(allowed("User:stranger", operation, resource, name))
        with pytest.raises(AssertionError, match=r"was granted|shows"):
            await asyncio.to_thread(_asked, target, 2, 100 * _PAIRS)


@pytest.mark.asyncio
async def test_what_an_administrator_gets_is_no_refusal(tmp_path: Path) -> None:
    async with _attacked(tmp_path) as (_, _, target):
        with pytest.raises(AssertionError, match=r"was granted|shows"):
            await asyncio.to_thread(_asked, replace(target, dial=target.admin), 3, _PAIRS)


def test_what_is_a_refusal() -> None:
    refused, granted = (share_fetch_pb2.ShareFetchResponse() for _ in range(2))
    for answer, code in ((refused, 29), (granted, 0)):
        row = answer.responses.add(topic_id=b"sixteen-bytes-id")
        row.partitions.add(partition_index=0, error_code=29)
        row.partitions.add(partition_index=1, error_code=code)
    assert refuses(refused, b"of sixteen-bytes-id")
    assert not refuses(refused, b"of another one"), "the id was not in the request"
    assert not refuses(granted, b"of sixteen-bytes-id")
    listed = list_groups_pb2.ListGroupsResponse()
    assert refuses(listed, b"")
    listed.groups.add(group_id="g")
    assert not refuses(listed, b"")
