"""The embedded store: durable, supervised, and never left running without its parent."""

import asyncio
import os
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import redis.asyncio

from share_node.store import embedded_store
from share_node.store.data_directory import DataDirectory, DataDirectoryError, holders
from share_node.store.embedded_store import EmbeddedStore
from share_node.store.store_limit import StoreLimit

_PARENT = """
import asyncio, sys
from pathlib import Path
from share_node.store.data_directory import DataDirectory
from share_node.store.embedded_store import EmbeddedStore

async def main():
    store = EmbeddedStore(DataDirectory(Path(sys.argv[1])))
    await store.start()
    print(store.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def _gone(pid: int, within_s: float = 30.0) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    try:
        assert await asyncio.to_thread(poller.poll, within_s * 1000), f"process {pid} still runs"
    finally:
        os.close(fd)


async def _start_and_stop(directory: Path) -> None:
    store = EmbeddedStore(DataDirectory(directory))
    await store.start()
    await store.stop()


@pytest.mark.rule("CM-70", "SR-20")
@pytest.mark.asyncio
async def test_a_killed_store_comes_back_with_what_it_confirmed(tmp_path: Path) -> None:
    restarted = asyncio.Event()
    store = EmbeddedStore(DataDirectory(tmp_path), on_restart=restarted.set)
    await store.start()
    client = redis.asyncio.Redis(unix_socket_path=str(store.socket_path))
    try:
        assert (await client.config_get("appendfsync"))["appendfsync"] == "always"
        await client.set("k", "v")
        first = store.pid
        os.kill(first, signal.SIGKILL)
        await asyncio.wait_for(restarted.wait(), 30)
        assert store.pid != first
        assert await client.get("k") == b"v"
    finally:
        await client.aclose()
        await store.stop()
    await _gone(store.pid)


@pytest.mark.rule("CM-210")
@pytest.mark.asyncio
async def test_a_store_has_its_memory_limit_after_a_restart_too_and_a_default_one_leaves_room_for_its_data(
    tmp_path: Path,
) -> None:
    restarted = asyncio.Event()
    store = EmbeddedStore(DataDirectory(tmp_path), on_restart=restarted.set)
    await store.start()
    client = redis.asyncio.Redis(unix_socket_path=str(store.socket_path))
    for number in range(8):
        await client.set(f"k{number}", b"x" * (1 << 20))
    used = int((await client.info("memory"))["used_memory"])
    assert (await client.config_get("maxmemory"))["maxmemory"] == "0", "without a limit there is none"
    await client.aclose()
    await store.stop()
    share = StoreLimit.share_of(4 << 20)
    for limit, room in ((StoreLimit(1 << 20), False), (replace(share, memory_bytes=1 << 30), True)):
        store = EmbeddedStore(DataDirectory(tmp_path), on_restart=restarted.set, limit=limit)
        await store.start()
        client = redis.asyncio.Redis(unix_socket_path=str(store.socket_path))
        try:
            for _ in range(2):
                found = int((await client.config_get("maxmemory"))["maxmemory"] or 0)
                assert found == store.limit.limit_bytes
                assert (found > used) == room
                if room:
                    await client.set("k", "v")
                else:
                    with pytest.raises(redis.exceptions.OutOfMemoryError):
                        await client.set("k", "v")
                restarted.clear()
                os.kill(store.pid, signal.SIGKILL)
                await asyncio.wait_for(restarted.wait(), 30)
        finally:
            await client.aclose()
            await store.stop()


@pytest.mark.rule("CM-70")
def test_a_sigkill_of_the_parent_leaves_no_store_behind(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    asyncio.run(_gone(pid))
    asyncio.run(_start_and_stop(tmp_path))  # the files are free again


@pytest.mark.rule("CM-70")
def test_a_store_whose_watcher_was_killed_too_is_ended_by_the_next_start(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        orphan = int(parent.stdout.readline())
    held = [one.pid for one in holders(tmp_path / "store.lock")]
    (watcher,) = set(held) - {orphan, parent.pid}
    os.kill(watcher, signal.SIGSTOP)  # it would otherwise end the store once its parent is gone
    parent.kill()
    parent.wait()
    os.kill(watcher, signal.SIGKILL)
    asyncio.run(_gone(watcher))
    os.kill(orphan, 0)
    asyncio.run(_start_and_stop(tmp_path))
    asyncio.run(_gone(orphan, 0.0))


@pytest.mark.rule("CM-70")
def test_a_process_that_is_no_store_is_not_ended_but_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_store, "STOP_GRACE_S", 0.2)
    lock = DataDirectory(tmp_path).lock("store")
    lock.acquire("an earlier start")
    other = subprocess.Popen(["sleep", "60"], pass_fds=(lock.fd,))
    lock.release()
    try:
        with pytest.raises(DataDirectoryError, match=rf"held by process {other.pid} \(sleep 60\)"):
            asyncio.run(_start_and_stop(tmp_path))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.rule("CM-70")
@pytest.mark.asyncio
async def test_a_copy_of_a_running_data_directory_leaves_the_original_its_socket(tmp_path: Path) -> None:
    original = EmbeddedStore(DataDirectory(tmp_path / "original"))
    await original.start()
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    copy = EmbeddedStore(DataDirectory(tmp_path / "copy"))
    await copy.start()
    try:
        assert copy.socket_path != original.socket_path
        client = redis.asyncio.Redis(unix_socket_path=str(original.socket_path))  # a new connection
        assert await client.ping()
        await client.aclose()
    finally:
        await copy.stop()
        await original.stop()
    assert not copy.socket_path.parent.exists()
    assert not original.socket_path.parent.exists()
