"""A role whose store or cluster appears later: it stays alive, logs what it waits for, and then continues."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from shard_runtime.config.process_settings import load_settings
from shard_runtime.ownership.placement import ROLES
from shard_runtime.rpc.server import LIVENESS, READINESS, STARTUP
from share_node.health import status_of
from share_node.store.cluster_init import init_cluster
from tests.support.node import BOUND_S, StartedProcess
from tests.support.ports import free_port
from tests.support.stores import Server

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store() -> AsyncIterator[Server]:
    """A store that has not been started yet."""
    server = Server()
    yield server
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


class Role:
    """One role as Kubernetes starts it: a fixed port, settings in its environment, JSON on standard error."""

    def __init__(self, folder: Path, store: Server, role: str = "group_coordinator", **settings: str) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        given = {
            "STORE_URL": f"redis://127.0.0.1:{store.port}",
            "LISTEN_PORT": str(self.port),
            "DATA_DIR": str(folder / "data"),
            "LOG_FORMAT": "json",
            "NODE_NAME": "pod-0",
            **settings,
        }
        environment = {f"SHAREGROUPS_{name}": text for name, text in given.items()}
        self.process = StartedProcess(["share_node", "serve", role], folder, environment)

    @property
    def alive(self) -> bool:
        return self.process._process.poll() is None

    def lines(self, event: str) -> list[dict[str, object]]:
        found = [json.loads(line) for line in self.process.errors.splitlines()]
        return [line for line in found if line["event"] == event]

    def waits_for(self) -> list[str]:
        return [str(line["waits_for"]) for line in self.lines("dependency_missing")]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        for _ in range(BOUND_S * 20):
            if condition():
                return
            assert self.alive, f"it ended before {what}:\n{self.process.errors}"
            await asyncio.sleep(0.05)
        raise AssertionError(f"{what} did not come:\n{self.process.errors}")

    async def until_serving(self, service: str) -> None:
        for _ in range(BOUND_S * 20):
            if await status_of(self.address, service) == "SERVING":
                return
            assert self.alive, f"it ended before {service} was SERVING:\n{self.process.errors}"
            await asyncio.sleep(0.05)
        raise AssertionError(f"{service} did not come:\n{self.process.errors}")

    async def health(self) -> dict[str, str]:
        return {name: await status_of(self.address, name) for name in (STARTUP, LIVENESS, READINESS)}


@contextlib.asynccontextmanager
async def running(*arguments: object, **settings: str) -> AsyncIterator[Role]:
    role = Role(*arguments, **settings)  # type: ignore[arg-type]  # passed on unchanged
    try:
        yield role
    finally:
        await asyncio.to_thread(role.process.kill)


WAITING = {STARTUP: "NOT_SERVING", LIVENESS: "SERVING", READINESS: "NOT_SERVING"}
READY = dict.fromkeys((STARTUP, LIVENESS, READINESS), "SERVING")


async def make_cluster(store: Server) -> None:
    _, made = await init_cluster(load_settings({"store.url": f"redis://127.0.0.1:{store.port}"}))
    assert made


@pytest.mark.rule("CM-130", "CM-20")
@pytest.mark.parametrize("role", sorted(ROLES))
async def test_a_role_waits_for_its_store_then_for_a_cluster_and_goes_on(
    tmp_path: Path, store: Server, role: str
) -> None:
    """Without this rule, it ended: 11 s after its start if there was no store, and after 1 s if there was no
    cluster."""
    async with running(tmp_path, store, role) as pod:
        await pod.until_serving(LIVENESS)
        assert await pod.health() == WAITING
        await pod.until(pod.waits_for, "word of what it waits for")
        await store.start()
        await pod.until(lambda: "a cluster in the store" in pod.waits_for(), "word that a cluster is missing")
        assert await pod.health() == WAITING
        causes = pod.waits_for()  # on a busy machine the store may be polled while it starts: another cause
        assert (causes[0], causes[-1]) == ("store: unreachable", "a cluster in the store")
        assert len(causes) == len(set(causes)), "once for each cause"
        assert await store.run(("DBSIZE",)) == [0], "a store without a cluster is never taken for a new one"
        await make_cluster(store)
        await pod.until_serving(READINESS)
        assert await pod.health() == READY
        assert len(pod.lines("dependency_available")) == 1
        assert await asyncio.to_thread(pod.process.stop) == 0


@pytest.mark.rule("CM-130")
async def test_a_call_to_a_node_that_waits_sends_its_caller_elsewhere(tmp_path: Path, store: Server) -> None:
    """The node's name is already in the DNS. UNIMPLEMENTED would be taken for an old release, and the caller would give
    up."""
    async with running(tmp_path, store) as pod:
        await pod.until_serving(LIVENESS)
        async with grpc.aio.insecure_channel(pod.address) as channel:
            call: Any = channel.unary_unary("/kip932.api.v1.ClusterService/FindCoordinator")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"", timeout=BOUND_S)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.rule("CM-130", "CM-4")
async def test_sigterm_ends_a_wait_at_once_and_in_good_order(tmp_path: Path, store: Server) -> None:
    async with running(tmp_path, store) as pod:
        await pod.until_serving(LIVENESS)
        began = time.monotonic()
        assert await asyncio.to_thread(pod.process.stop) == 0
        # The attempt in progress would have lasted ten seconds.
        assert time.monotonic() - began < 8
        assert "Traceback" not in pod.process.errors
    # Its node name is free: the next process starts without waiting for it.
    async with running(tmp_path, store) as pod:
        await pod.until_serving(LIVENESS)


@pytest.mark.rule("CM-130")
async def test_a_store_that_loads_its_data_is_waited_for(tmp_path: Path, store: Server) -> None:
    await store.start()
    await make_cluster(store)
    for start in range(0, 8_000, 1_000):
        await store.run(*[("SET", f"filler:{number}", "x") for number in range(start, start + 1_000)])
    store.stop()
    # The store replies every 1,024 commands; each takes 1.5 ms to load, so all of them take about 12 s.
    store._options = ("--key-load-delay", "1500")
    loading = asyncio.create_task(store.start())
    try:
        async with running(tmp_path, store) as pod:
            await pod.until_serving(LIVENESS)
            assert not loading.done(), "it would have to be still loading"
            assert await pod.health() == WAITING
            await loading
            await pod.until_serving(READINESS)
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


@pytest.mark.rule("CM-130", "CM-20")
async def test_a_wiped_store_is_waited_for_and_never_taken_for_a_new_one(tmp_path: Path, store: Server) -> None:
    await store.start()
    await make_cluster(store)
    (cluster,) = await store.run(("GET", "{meta}:cluster"))
    async with running(tmp_path, store) as pod:
        await pod.until_serving(READINESS)
        assert await asyncio.to_thread(pod.process.stop) == 0
    await store.run(("FLUSHALL",))
    async with running(tmp_path, store) as pod:
        await pod.until(pod.waits_for, "word of what it waits for")
        assert pod.waits_for() == ["store: cluster-id"]
        assert await pod.health() == WAITING
        assert await store.run(("DBSIZE",)) == [0]
        await store.run(("SET", "{meta}:cluster", cluster))  # its data were restored
        await pod.until_serving(READINESS)


@pytest.mark.rule("CM-130", "CM-20")
async def test_what_only_its_own_settings_can_mend_ends_it_with_the_reason(tmp_path: Path, store: Server) -> None:
    """A restart reads the settings again; waiting would not."""
    await store.start()
    await make_cluster(store)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cluster-id").write_text("another")
    async with running(tmp_path, store) as pod:
        assert await asyncio.to_thread(pod.process.ended) == 1
        (line,) = pod.lines("process_failed")
        assert "expected another: correct store.url" in str(line["cause"])
    await store.run(("CONFIG", "SET", "requirepass", "secret"))
    async with running(tmp_path, store, STORE_URL=f"redis://:wrong@127.0.0.1:{store.port}") as pod:
        assert await asyncio.to_thread(pod.process.ended) == 1
        (line,) = pod.lines("process_failed")
        assert "WRONGPASS" in str(line["cause"])


@pytest.mark.rule("CM-130")
async def test_a_store_that_is_unfit_is_waited_for_until_it_is_set_right(tmp_path: Path, store: Server) -> None:
    await store.start()
    await make_cluster(store)
    await store.run(("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"))
    async with running(tmp_path, store) as pod:
        await pod.until(pod.waits_for, "word of what it waits for")
        assert pod.waits_for() == ["store: maxmemory-policy"]
        assert "CONFIG SET maxmemory-policy noeviction" in str(pod.lines("dependency_missing")[0]["cause"])
        await store.run(("CONFIG", "SET", "maxmemory-policy", "noeviction"))
        await pod.until_serving(READINESS)


@pytest.mark.rule("CM-130", "CM-1")
async def test_the_name_of_a_predecessor_without_a_shared_directory_is_waited_for(
    tmp_path: Path, store: Server
) -> None:
    """As after a forced deletion of a pod: its successor has another volume, and the name lapses after a lease."""
    await store.start()
    await make_cluster(store)
    async with running(tmp_path, store, DATA_DIR=str(tmp_path / "a")) as first:
        await first.until_serving(READINESS)
        async with running(tmp_path, store, DATA_DIR=str(tmp_path / "c")) as twin:
            assert await asyncio.to_thread(twin.process.ended) == 1, "a living process keeps its name"
            assert "is held by incarnation" in str(twin.lines("process_failed")[0]["cause"])
    async with running(tmp_path, store, DATA_DIR=str(tmp_path / "b")) as second:
        await second.until_serving(READINESS)
