"""The admin clients and the tool show records whose delay has not ended, whether or not their partition is loaded, and
do not include them in the backlog that members could take."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from click.testing import CliRunner

from kip932.ids import TopicPartition
from sharegroups import AcknowledgeType, Admin, aio
from sharegroups.cli.main import main
from tests.integration.scenarios.clients import EXPLICIT, World, first
from tests.support.node import Cluster


def reported(cluster: Cluster, group: str, *words: str) -> str:
    where = ("--bootstrap-server", cluster.bootstrap, "--group", group)
    result = CliRunner().invoke(main, ["groups", "describe", *where, *words])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def numbers(entry: Any) -> tuple[int | None, ...]:
    return entry.lag, entry.in_flight, entry.waiting, entry.delayed


async def asked_by_asyncio(cluster: Cluster, group: str) -> Any:
    async with aio.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        return (await admin.list_share_group_offsets({group: None}, backlog=True))[group]


@pytest.mark.rule("PL-938", "GC-109")
def test_delayed_records_are_reported_while_a_member_has_the_partition_and_afterwards(cluster: Cluster) -> None:
    world = World(cluster)
    world.produce(*"abcdef")
    place = TopicPartition(world.topic, 0)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:

        def described(backlog: bool = True) -> Any:
            found = admin.list_share_group_offsets({world.group: None}, backlog)[world.group]
            assert isinstance(found, dict)
            return found[place]

        with world.consumer(EXPLICIT, share_acquire_mode="record_limit", max_poll_records=4) as consumer:
            got = list(first(consumer))
            assert [message.offset() for message in got] == [0, 1, 2, 3]
            consumer.acknowledge(got[0], AcknowledgeType.RELEASE, delay=600)
            consumer.acknowledge(got[1], AcknowledgeType.ACCEPT)
            consumer.acknowledge(got[2], AcknowledgeType.RELEASE, delay=600)
            consumer.commit_sync()
            assert numbers(described()) == (5, 1, 2, 2)
            assert numbers(asyncio.run(asked_by_asyncio(cluster, world.group))[place]) == (5, 1, 2, 2)
            header, row = reported(cluster, world.group, "--verbose").split("\n")[1:3]
            shown = dict(zip(header.split(), row.split(), strict=False))
            assert (shown["IN-FLIGHT"], shown["WAITING"], shown["DELAYED"]) == ("1", "2", "2")
            ((entry,),) = [
                one["offsets"] for one in json.loads(reported(cluster, world.group, "--verbose", "--output", "json"))
            ]
            assert (entry["waiting"], entry["delayed"]) == (2, 2)
            assert described(backlog=False).delayed is None, "not asked for"
        deadline = time.monotonic() + 30
        while admin.explain_record(world.group, place, 0).loaded:
            assert time.monotonic() < deadline, "the share-partition of a group without members was not unloaded"
            time.sleep(0.1)
        assert numbers(described()) == (5, 0, 3, 2), (
            "the records that the member held are free, the delayed ones are not"
        )
        (fate, *_) = admin.explain_record(world.group, place, 0).records
        assert (fate.state, fate.obstacle, fate.delivery_count) == ("available", "delayed", 1)
