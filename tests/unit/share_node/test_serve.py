"""The name of a process that was given none."""

from __future__ import annotations

import socket

import pytest

from shard_runtime.config.process_settings import load_settings
from share_node.serve import node_name


@pytest.mark.rule("CM-1")
def test_a_name_is_the_one_given_or_made_of_host_roles_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "host-1")
    given = {"listen.port": "7932", "node.roles": "group_coordinator,partition_leader"}
    assert node_name(load_settings(given)) == "host-1-group_coordinator+partition_leader-7932"
    assert node_name(load_settings({**given, "node.name": "pod-0"})) == "pod-0"
