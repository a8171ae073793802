"""Opens a store for reading: that of URL or settings, the embedded one that runs on a data directory, or a copy when
none runs.

Nothing is written to the data directory: a store that is started rewrites its files, so a copy is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from shard_runtime.record_log.redis.connection import Store
from shard_runtime.record_log.redis.startup_checks import await_loaded
from shard_runtime.record_log.redis.topology import open_store
from shard_runtime.record_log.store_url import masked
from share_node.state.dump import embedded_url
from share_node.store.data_directory import DataDirectory, DataDirectoryError
from share_node.store.embedded_store import EmbeddedStore, EmbeddedStoreError
from share_node.store.store_option import StoreChoice
from sharegroups.cli.output import print_stderr


@contextlib.asynccontextmanager
async def readable(where: StoreChoice) -> AsyncIterator[Store]:
    """Yield the chosen store once it has loaded its data. Raises UsageError, ClickException,
    EmbeddedStoreError, DataDirectoryError, ValueError, LogError."""
    data = where.checked().data
    if data is None:
        yield await loaded(where.opened())
        return
    if not (data / "store").is_dir():
        raise EmbeddedStoreError(
            f"{data} holds no data of `sharegroups up`; give the directory that --data names there"
        )
    with tempfile.TemporaryDirectory(prefix="sharegroups-copy-") as folder:
        if not await _copied(data, Path(folder)):
            yield await loaded(open_store(embedded_url(data)))
            return
        embedded = EmbeddedStore(DataDirectory(Path(folder)), "everysec")
        await embedded.start()
        try:
            yield open_store(embedded.url)
        finally:
            await embedded.stop()


async def loaded(store: Store) -> Store:
    """Return the store once it has loaded its data; a warning reports the wait (CM-182). Raises LogError."""
    await await_loaded(store, warn)
    return store


def warn(words: str) -> None:
    """Print a warning on standard error, for the person at the terminal."""
    print_stderr(f"Warning: {masked(words)}")


async def _copied(data: Path, folder: Path) -> bool:
    """Copy a store's files while no process uses them. Returns False when it runs. Raises EmbeddedStoreError without
    room."""
    lock = DataDirectory(data).lock("store")
    try:
        lock.acquire(f"process {os.getpid()}, which copies the store to read it")
    except DataDirectoryError:
        return False
    try:
        source = data / "store"
        size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
        free = shutil.disk_usage(folder).free
        if size > free:
            raise EmbeddedStoreError(
                f"the store of {data} does not run, and a copy of it needs {size} bytes in {folder.parent}, where "
                f"{free} are free. Make room, set TMPDIR to another place, or start `sharegroups up --data {data}`"
            )
        await asyncio.to_thread(shutil.copytree, source, folder / "store")
    finally:
        lock.release()
    return True
