"""A store that serves no requests for a while, because it is loading its data or running a script (CM-182)."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from shard_runtime.clock import StoreTime, SystemClock
from shard_runtime.config.process_settings import load_settings
from shard_runtime.record_log.protocol import STREAM_START
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.startup_checks import StoreCheckError, StoreNeeds, check_store
from shard_runtime.record_log.redis.store_watch import StoreWatch
from shard_runtime.record_log.redis.stream_copies import StreamCopies
from shard_runtime.record_log.redis.topology import open_store
from share_metrics.reader import Store, StoreUnreachableError
from share_metrics.reader.store import StoreLoadingError
from share_node.store.cluster_init import init_cluster
from tests.contracts.world import GROUP, Process, flush
from tests.support.refusing_store import GREETINGS, RefusingStore
from tests.support.stores import Server, until

LOADING = "LOADING Valkey is loading the dataset in memory"
BUSY = "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
#: More refusals than fit, 100 ms apart, into the 2 s of a check or a call.
MANY = 25
ENDLESS = "while true do end"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    made = Server("--busy-reply-threshold", "1")
    await made.start()
    await init_cluster(load_settings({"store.url": f"redis://127.0.0.1:{made.port}"}))
    yield made
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


async def cluster_id(server: Server) -> str:
    return str((await server.run(("GET", "{meta}:cluster")))[0].decode())


@pytest.mark.asyncio
@pytest.mark.rule("CM-182")
async def test_a_store_that_answers_everything_with_loading_is_waited_for_beyond_the_bound(server: Server) -> None:
    """This proxy refuses even the greeting and INFO, which a loading Valkey answers."""
    with RefusingStore(server.port, LOADING, MANY) as refusing, capture_logs() as lines:
        assert await check_store(open_store(refusing.url), await cluster_id(server), 0, wait_ms=2_000) == []
    assert len(refusing.refused) == MANY
    assert [line["event"] for line in lines] == ["store_loading"]


@pytest.mark.asyncio
@pytest.mark.rule("CM-182")
@pytest.mark.parametrize("only", [b"INFO", b"CONFIG", b"GET"])
async def test_what_a_busy_store_refuses_at_the_start_is_asked_again(server: Server, only: bytes) -> None:
    """Before the fix, this was taken for missing permissions, a missing append-only file, or a wiped store."""
    with RefusingStore(server.port, BUSY, 3, spared=GREETINGS, only=only) as refusing:
        assert await check_store(open_store(refusing.url), await cluster_id(server), 0) == []
    assert refusing.refused == [only] * 3


@pytest.mark.asyncio
@pytest.mark.rule("CM-182", "CM-130")
async def test_a_store_that_stays_busy_is_named_so_at_the_end_of_the_wait(server: Server) -> None:
    """A role then keeps waiting; before the fix it exited, since the finding named one of its own settings."""
    with (
        RefusingStore(server.port, BUSY, 1_000_000, spared=GREETINGS) as refusing,
        pytest.raises(StoreCheckError, match="does not serve at present: BUSY") as refused,
    ):
        await check_store(open_store(refusing.url), None, 0, wait_ms=300)
    assert {finding.name for finding in refused.value.findings} == {"unreachable"}


@pytest.mark.asyncio
@pytest.mark.rule("CM-182", "CM-19")
async def test_a_flush_waits_for_a_script_to_end_and_is_written_once(server: Server) -> None:
    """Before the fix, the flush was refused, and so were the caller's records."""
    settings = StoreSettings(cluster_id=await cluster_id(server), backoff_ms=5, backoff_max_ms=20, call_ms=60_000)
    log = StoreRecordLog(open_store(f"redis://127.0.0.1:{server.port}"), settings, SystemClock())
    try:
        await log.open()
        process = Process(log, 1, 1001)
        epoch = (await process.claim()).epoch
        connection = await server.connect()
        script = asyncio.ensure_future(connection.run([("EVAL", ENDLESS, 0)], 60_000))
        while str((await server.run(("PING",)))[0])[:4] != "BUSY":
            pass
        appending = asyncio.ensure_future(log.append(GROUP, epoch, flush(GROUP, epoch, 1, b"once")))
        reading = asyncio.ensure_future(log.read(GROUP.streams[0], STREAM_START, None, 10))
        await until(lambda: not log.available, "the first answer of the busy store")
        assert not appending.done()
        assert not reading.done()
        assert await server.run(("SCRIPT", "KILL")) == [b"OK"]
        await script
        await connection.close()
        appended = await appending
        await reading
        stored = await log.read(GROUP.streams[0], STREAM_START, None, 10)
        assert [entry.record for entry in stored if entry.kind == "S"] == [b"once"]
        assert appended.tip == stored[-1].id
    finally:
        await log.close()


@pytest.mark.asyncio
@pytest.mark.rule("CM-182", "CM-4")
@pytest.mark.parametrize("error", [BUSY, LOADING])
async def test_a_subscription_that_is_refused_is_made_again(server: Server, error: str) -> None:
    """Before the fix, the process considered itself subscribed and never learned that a shard had been released."""
    with RefusingStore(server.port, error, 1, only=b"SUBSCRIBE") as refusing:
        cluster = StoreClusterStore(open_store(refusing.url), StoreSettings(backoff_ms=5))
        wakes = cluster.wakes()
        try:
            assert await asyncio.wait_for(anext(wakes), 20) == "subscribed"
            await cluster.wake("released {gc:7}")
            assert await asyncio.wait_for(anext(wakes), 20) == "released {gc:7}"
            assert refusing.refused == [b"SUBSCRIBE"]
        finally:
            await cluster.close()
            await wakes.aclose()  # type: ignore[attr-defined]  # it is a generator


@pytest.mark.asyncio
@pytest.mark.rule("CM-182", "CM-171")
async def test_the_watch_believes_nothing_that_a_busy_store_refuses_to_say(server: Server) -> None:
    """Before the fix, a refused CONFIG GET was taken for a missing append-only file, and writes stopped."""
    with RefusingStore(server.port, BUSY, 3, only=b"CONFIG") as refusing, capture_logs() as lines:
        log = StoreRecordLog(open_store(refusing.url), StoreSettings(), SystemClock())
        watch = StoreWatch(
            open_store(refusing.url), log, StoreTime(SystemClock(), 10_000), StoreNeeds(), stop_writes=True
        )
        try:
            await watch.check()
            assert watch.unsafe == frozenset()
            await watch.check()
            assert watch.unsafe == frozenset()
        finally:
            await watch.stop()
            await log.close()
    assert refusing.refused == [b"CONFIG"] * 3
    assert lines == []


@pytest.mark.asyncio
@pytest.mark.rule("CM-182", "CM-140")
async def test_a_busy_store_has_no_other_history_for_a_backup(server: Server) -> None:
    """Before the fix, the refused INFO was recorded as another history."""
    with RefusingStore(server.port, BUSY, 2, only=b"INFO") as refusing:
        copies = StreamCopies(open_store(refusing.url), StoreSettings(backoff_ms=5))
        try:
            await copies.begin()
            assert "" not in copies._histories
            assert await copies.tip("{meta}:log") is None
        finally:
            await copies.close()
    assert refusing.refused == [b"INFO"] * 2


@pytest.mark.asyncio
@pytest.mark.rule("CM-182")
@pytest.mark.parametrize("words", ["backup DIR --output json", "state dump --kind sgs", "state check", "init"])
async def test_a_command_waits_for_a_store_that_loads_and_says_so(server: Server, tmp_path: Path, words: str) -> None:
    """Before the fix, `backup` and `state` gave up after 2 s, `init` after 10 s."""
    with RefusingStore(server.port, LOADING, MANY) as refusing:
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "share_node", *words.replace("DIR", str(tmp_path / "b")).split(),
            "--store", refusing.url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, said = await command.communicate()
    assert command.returncode == 0, said.decode()
    assert len(refusing.refused) == MANY
    assert said.decode().count("Warning: waiting: the store loads its data") == 1
    assert b"loads its data" not in out


@pytest.mark.asyncio
@pytest.mark.rule("CM-182", "PM-14")
async def test_the_pipeline_waits_for_a_store_that_loads(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    paused: list[float] = []
    with RefusingStore(server.port, LOADING, MANY) as refusing, Store(refusing.url, pause=paused.append) as store:
        found = await asyncio.to_thread(store.call, "{meta}:cluster", "GET", "{meta}:cluster")
    assert found.decode() == await cluster_id(server)
    assert len(refusing.refused) == MANY
    assert paused
    assert [record.message for record in caplog.records if "loads its data" in record.message][1:] == []
    assert "waiting up to 600 s: the store loads its data" in caplog.text


@pytest.mark.rule("CM-182", "PM-14")
def test_the_pipeline_waits_for_no_store_for_ever() -> None:
    paused: list[float] = []
    with Store("redis://h:1", pause=paused.append) as store:
        store._run = _loads  # type: ignore  # without a socket and the library's own pauses
        with pytest.raises(StoreUnreachableError, match="does not answer yet"):
            store.call("k", "GET", "k")
    assert paused == [1.0] * 600


def _loads(node: str, commands: object) -> list[Any]:
    raise StoreLoadingError("the store at h:1 does not answer yet: LOADING")


@pytest.mark.asyncio
@pytest.mark.rule("CM-182")
async def test_a_list_of_transactions_is_read_again_after_a_refusal(server: Server) -> None:
    with RefusingStore(server.port, BUSY, 1, only=b"SCAN") as refusing:
        cluster = StoreClusterStore(open_store(refusing.url), StoreSettings(backoff_ms=5))
        try:
            assert (await cluster.transactions.page("")).records == []
        finally:
            await cluster.close()
        assert refusing.refused == [b"SCAN"]
