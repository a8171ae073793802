"""The name of a process that was given none; and when it is told to stop: by the pipe of a parent that has ended."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from shard_runtime.config.process_settings import load_settings
from share_node import serve
from share_node.serve import StopSignal, node_name


@pytest.mark.rule("CM-1")
def test_a_name_is_the_one_given_or_made_of_host_roles_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "host-1")
    given = {"listen.port": "7932", "node.roles": "group_coordinator,partition_leader"}
    assert node_name(load_settings(given)) == "host-1-group_coordinator+partition_leader-7932"
    assert node_name(load_settings({**given, "node.name": "pod-0"})) == "pod-0"


def test_the_end_of_the_parent_is_the_end_of_its_pipe_and_what_it_writes_is_not(
    parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "PARENT_GONE_GRACE_S", 3_600)

    async def story() -> tuple[bool, int]:
        stop = StopSignal()
        stop.with_parent()
        os.write(parent, b"alive")
        for _ in range(10):
            await asyncio.sleep(0)
        early = stop.received.is_set()
        os.close(parent)
        await stop.received.wait()
        return early, stop.status

    assert asyncio.run(story()) == (False, 0)
