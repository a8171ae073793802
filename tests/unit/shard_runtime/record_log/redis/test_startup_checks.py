"""A process that waits for a store logs this before a person mistakes the silence for a fault."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from shard_runtime.record_log.redis import startup_checks
from shard_runtime.record_log.redis.connection import ConnectionLostError, Store
from shard_runtime.record_log.redis.startup_checks import StoreCheckError, check_store
from tests.support.virtual_time import run


class NoStore:
    """A store that refuses connections or, if `silent`, does not respond."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent

    async def refresh(self) -> None:
        if self._silent:
            await asyncio.sleep(3600)
        raise ConnectionLostError("127.0.0.1:6379: connection refused")


@pytest.mark.parametrize(("silent", "why"), [(False, "connection refused"), (True, "it did not answer")])
def test_a_store_that_cannot_be_reached_is_reported_after_a_second(silent: bool, why: str) -> None:
    async def story() -> None:
        checking = asyncio.create_task(check_store(cast(Store, NoStore(silent)), None, 0))
        await asyncio.sleep(0.9)
        assert said == []
        await asyncio.sleep(0.2)
        (reported,) = said
        assert reported["event"] == "store_unreachable"
        assert why in reported["cause"]
        with pytest.raises(StoreCheckError, match="no connection within 10000 ms"):
            await checking
        assert len(said) == 1

    with capture_logs() as said:
        run(story())


def test_a_person_reads_the_same_in_words() -> None:
    async def story() -> None:
        with pytest.raises(StoreCheckError):
            await check_store(cast(Store, NoStore(False)), None, 0, show=shown.append)

    shown: list[str] = []
    with capture_logs() as logged:
        run(story())
    assert logged == []
    assert shown == [
        "the store cannot be reached yet; still trying (why: 127.0.0.1:6379: connection refused, tries_for_s: 10.0)"
    ]


class Connection:
    async def close(self) -> None:
        return


def test_replicas_that_are_missing_are_reported_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = startup_checks.Finding("replicas", "store a:1: 0 replicas are connected; expected 1")

    async def reached(*_: Any) -> tuple[Any, str]:
        return Connection(), "a:1"

    async def loaded(*_: Any) -> None:
        return

    async def found(*_: Any) -> list[startup_checks.Finding]:
        return [missing]

    for name, stand_in in (("_reach", reached), ("_loaded", loaded), ("node_findings", found)):
        monkeypatch.setattr(startup_checks, name, stand_in)

    async def story() -> None:
        with pytest.raises(StoreCheckError, match="replicas"):
            await check_store(cast(Store, SimpleNamespace(nodes=())), None, 1)

    with capture_logs() as said:
        run(story())
    assert [(line["event"], line["cause"]) for line in said] == [("store_replicas_awaited", missing.message)]


@pytest.mark.rule("CM-247")
@pytest.mark.parametrize(
    ("fields", "all_of_it"),
    [
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "10.0.0"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.1"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.9"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "unstable"}, False),
        ({"redis_version": "7.0.15"}, False),
        ({"redis_version": "9.1.2"}, False),
    ],
)
def test_only_a_server_that_was_seen_to_load_everything_is_not_asked(fields: dict[str, str], all_of_it: bool) -> None:
    assert startup_checks.loads_all(fields) is all_of_it
