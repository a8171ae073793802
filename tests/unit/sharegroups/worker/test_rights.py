"""A worker that lacks a permission logs it once, keeps trying, and works as soon as the permission is granted."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from kip932.errors import GroupAuthorizationFailedError
from sharegroups import aio
from sharegroups.worker import Worker, checks, runner
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster, produce
from tests.support.virtual_time import now_s

READ_T, DESCRIBE_T, READ_G, DESCRIBE_G = (
    f"{operation} on {resource}" for resource in ("topic 't'", "group 'g'") for operation in ("READ", "DESCRIBE")
)


@pytest.mark.rule("CL-143", "CL-125")
@pytest.mark.parametrize("denied", [{READ_G}, {READ_G, DESCRIBE_G}, {READ_T}, {READ_T, DESCRIBE_T}])
@on_fake_cluster()
async def test_a_right_that_is_missing_or_taken_away_is_logged_once_for_each_change(
    fake: FakeCluster, denied: set[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "ShareConsumer", partial(aio.ShareConsumer, transport=fake.transport()))
    monkeypatch.setattr(checks, "Admin", partial(aio.Admin, transport=fake.transport()))
    done: list[bytes] = []
    worker = Worker(bootstrap_servers=fake.bootstrap, group_id="g", grace=1)

    @worker.job("t")
    async def job(value: bytes) -> None:
        done.append(value)

    def logged() -> list[str]:
        found = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        return [line for line in found if "configs of group" not in line]

    def returned() -> list[str]:
        found = [one.getMessage() for one in caplog.records if one.levelno == logging.INFO]
        return [
            line for line in found if line.startswith("this consumer may ") and line.endswith(" again, and continues")
        ]

    caplog.set_level(logging.INFO)
    fake.denied = set(denied)
    produce(fake)
    serving = asyncio.create_task(worker.serve())
    await asyncio.sleep(60)
    (line,) = logged()
    assert line.startswith("this worker lacks a permission; it keeps trying: ")
    assert "_AUTHORIZATION_FAILED: User:alice has no right to " in line
    assert line.endswith("--worker --topic t --group g --command-config FILE")
    fake.denied = set()
    await asyncio.sleep(3)
    assert done == [b"v0"]
    assert len(returned()) == 1
    fake.denied = set(denied)
    await asyncio.sleep(30)
    assert len(logged()) == 2
    began = now_s()
    worker.stop()
    await serving
    assert now_s() - began < 1
    assert len(returned()) == 1, "leaving is always allowed, and so says nothing about the right to consume"


@pytest.mark.rule("CL-164")
@on_fake_cluster()
async def test_every_line_about_a_missing_right_proposes_the_command_that_is_enough_for_a_worker(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "ShareConsumer", partial(aio.ShareConsumer, transport=fake.transport()))
    monkeypatch.setattr(checks, "Admin", partial(aio.Admin, transport=fake.transport()))
    worker = Worker(bootstrap_servers=fake.bootstrap, group_id="g", grace=1)

    @worker.job("t")
    async def job(value: bytes) -> None:
        del value

    fake.denied = {READ_T, DESCRIBE_T, READ_G, DESCRIBE_G}
    fake.errors["describe_configs"].append(GroupAuthorizationFailedError.code)
    serving = asyncio.create_task(worker.serve())
    await asyncio.sleep(10)
    worker.stop()
    await serving
    lines = [
        one.getMessage() for one in caplog.records if "uthorised" in one.getMessage() or "right" in one.getMessage()
    ]
    assert [line.partition(" ")[0] for line in lines] == ["the", "this"], lines
    for line in lines:
        assert "acls add --allow-principal User:NAME --worker --topic t --group g --command-config FILE" in line
        assert line.count("acls add") == 1
