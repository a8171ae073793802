"""A cluster is created in a store once, whichever process asks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner

from shard_runtime.config.process_settings import load_settings
from shard_runtime.record_log.redis.startup_checks import Finding, StoreCheckError
from share_node.store import cluster_init


class Store:
    """A store whose cluster id is set by a test."""

    held: str | None = None
    faster: str | None = None
    closed = 0

    def __init__(self, *_: Any) -> None:
        """Ignore the store and its settings."""

    async def cluster_id(self) -> str | None:
        return Store.held

    async def init_cluster(self, mine: str) -> str:
        Store.held = Store.faster or mine
        return Store.held

    async def close(self) -> None:
        Store.closed += 1


async def _usable(*_: Any, **__: Any) -> None:
    """Let the check of the store pass."""


@pytest.mark.parametrize(("held", "faster", "made"), [(None, None, True), ("c", None, False), (None, "other", False)])
def test_a_cluster_is_made_only_where_there_is_none(
    held: str | None, faster: str | None, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_init, "check_store", _usable)
    monkeypatch.setattr(cluster_init, "StoreClusterStore", Store)
    monkeypatch.setattr(Store, "held", held)
    monkeypatch.setattr(Store, "faster", faster)
    monkeypatch.setattr(Store, "closed", 0)
    found = asyncio.run(cluster_init.init_cluster(load_settings({"store.url": "redis://h:1"})))
    assert found == (Store.held, made)
    assert found[0] == (held or faster or found[0])
    assert Store.closed == 1


def test_the_command_says_what_it_found_and_its_status_whether_the_store_has_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unusable(*_: Any, **__: Any) -> None:
        raise StoreCheckError([Finding("appendonly", "it keeps nothing")])

    monkeypatch.setattr(cluster_init, "check_store", _usable)
    monkeypatch.setattr(cluster_init, "StoreClusterStore", Store)
    monkeypatch.setattr(Store, "held", None)

    def said() -> tuple[int, str, str]:
        done = CliRunner().invoke(cluster_init.init, ["--store", "redis://u:secret@h:1"], env={})
        return done.exit_code, done.stdout, done.stderr

    status, reported, wrong = said()
    assert (status, reported, wrong) == (0, f"Made cluster {Store.held}.\n", "")
    assert said() == (0, f"The store holds cluster {Store.held} already.\n", "")
    monkeypatch.setattr(cluster_init, "check_store", unusable)
    status, reported, wrong = said()
    assert (status, reported) == (1, "")
    assert wrong.startswith("Error: ")
    assert "it keeps nothing" in wrong
