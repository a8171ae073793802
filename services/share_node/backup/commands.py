"""`sharegroups backup` and `sharegroups restore` (CM-140…CM-145)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import click

import share_node.grpc_library  # noqa: F401 - before anything imports grpc
from shard_runtime.clock import SystemClock
from shard_runtime.record_log.protocol import LogError
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import Store, StoreSettings
from shard_runtime.record_log.redis.restored_streams import RestoredStreams
from shard_runtime.record_log.redis.startup_checks import ALLOWABLE, StoreCheckError, check_store
from shard_runtime.record_log.redis.stream_copies import StreamCopies
from shard_runtime.record_log.redis.topology import open_store
from shard_runtime.record_log.store_url import masked, masked_url
from share_node.backup.manifest import Manifest
from share_node.backup.restoring import Checked, check, restore
from share_node.backup.segments import BackupFilesError, SegmentWriter
from share_node.backup.taking import BackupRun, Progress
from share_node.backup.textfile import check_textfile, write_textfile
from share_node.node.process_store import CLUSTER_MEMO
from share_node.node.serve import StopSignal, run, unless_stopped
from share_node.store.data_directory import DataDirectory, DataDirectoryError, default_data
from share_node.store.embedded_store import EmbeddedStore, EmbeddedStoreError
from share_node.store.store_option import StoreChoice, which_store
from share_node.store.stored_copy import readable, warn
from sharegroups.cli.interrupts import status_of
from sharegroups.cli.output import print_stderr

_MIB: Final = 1024 * 1024
_PROGRESS_EVERY_S: Final = 5.0
#: A page of large batches may take long on a slow link; it is also the longest wait for a store that does not answer.
_SETTINGS: Final = StoreSettings(call_ms=60_000, reply_ms=30_000)
#: Errors of the store, whose texts do not all say which store it is.
_OF_STORE: Final = (LogError, StoreCheckError, EmbeddedStoreError)
_ERRORS: Final = (*_OF_STORE, BackupFilesError, DataDirectoryError, ValueError)

_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
_output = click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
                       help="How the result is printed, on standard output.")  # fmt: skip
_quiet = click.option("--quiet", is_flag=True, help="No progress on standard error.")


@click.command()
@_directory
@which_store
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="MIB",
              help="Read at most so many MiB a second from the store; default as fast as it goes.")  # fmt: skip
@click.option("--textfile", type=click.Path(path_type=Path),
              help="Write when this backup began, and its size, as metrics for Prometheus' node exporter.")  # fmt: skip
@_output
@_quiet
def backup(
    *, directory: Path, where: StoreChoice, rate: float | None, textfile: Path | None, output: str, quiet: bool
) -> None:
    """Save all topics, groups and share state of a cluster, which may run, to the new directory DIR.

    Without --store, --config and --data it saves the store of SHAREGROUPS_STORE_URL, without that the one of a
    `sharegroups up` without --data, and says so.

    Everything confirmed before the start is in it. Exit status: 0 when DIR holds a backup now, else 1.
    """
    named = _named(where)
    if not where.is_given:
        where, named = _by_default(where)
        if not quiet:
            unheeded = " SHAREGROUPS_BOOTSTRAP does not choose it." if os.environ.get("SHAREGROUPS_BOOTSTRAP") else ""
            click.echo(f"Saving the store of {named}; --store or --data names another.{unheeded}", err=True)

    async def body() -> dict[str, object]:
        began_s = time.monotonic()
        if textfile is not None:
            check_textfile(textfile)
        writer = SegmentWriter(directory)  # before a store is copied or read: the directory may be refused
        saved = False
        try:
            async with readable(where) as store:
                manifest = await _take(store, writer, None if rate is None else rate * _MIB, _progress_printer(quiet))
            saved = True
        finally:
            if not saved:
                writer.discard()
        if textfile is not None:
            try:
                write_textfile(textfile, manifest)
            except BackupFilesError as error:  # it is no failure of the backup, which is there
                warn(str(error))
        return _summary(directory, manifest) | {"seconds": round(time.monotonic() - began_s, 3)}

    _end(body, output, _saved, lambda: f"{directory} holds no backup", store=named)


@click.command(name="restore")
@_directory
@which_store
@click.option("--dry-run", is_flag=True, help="Check all of the backup, write nothing; needs no store.")
@click.option("--keep-cluster-id", is_flag=True,
              help="The cluster keeps its id; only when its former store is gone for good.")  # fmt: skip
@click.option("--allow", multiple=True, type=click.Choice(ALLOWABLE), help="Accept what a check of the store found.")
@_output
@_quiet
def restore_command(
    *, directory: Path, where: StoreChoice, dry_run: bool, keep_cluster_id: bool, allow: tuple[str, ...], output: str,
    quiet: bool,
) -> None:  # fmt: skip
    """Check the backup in DIR and write it into an empty store, on which nodes start then.

    Where to must be said, by --store, --config or --data: what is restored is a cluster of its own.

    Exit status: 0 when all of it is restored (or, with --dry-run, whole), else 1. If it was interrupted, run it again.
    """
    if not dry_run and not where.is_named:  # the environment alone does not choose what is written
        raise click.UsageError(
            "give either --store URL or --data DIR, or --config FILE with store.url; --dry-run needs none. Without "
            f"--data `sharegroups up` uses {default_data()}, which must hold no data"
        )
    if not dry_run:
        where.checked()

    writing = False

    async def body() -> dict[str, object]:
        nonlocal writing
        began_s = time.monotonic()
        printing = _progress_printer(quiet)
        progress = Progress()
        try:
            async with printing(progress):
                checked = await asyncio.to_thread(check, directory, progress)
        finally:
            progress.given_up = True  # after Ctrl-C the thread would otherwise read to the end
        found = _summary(directory, checked.manifest)
        if not dry_run:
            writing = True
            async with _writable(where) as (store, remember):
                found |= await _restore(store, checked, keep_cluster_id=keep_cluster_id, allow=allow, printing=printing)
                remember(str(found["cluster_id"]))
        return found | {"restored": not dry_run, "seconds": round(time.monotonic() - began_s, 3)}

    def interrupted() -> str:
        return "run the same restore again, and it continues" if writing else "nothing is changed"

    _end(body, output, _restored, interrupted, store="" if dry_run else _named(where))


def _named(where: StoreChoice) -> str:
    """Return how errors name the store that options choose, "" without any."""
    return "" if not where.is_given else str(where.data) if where.data is not None else masked_url(where.url())


def _by_default(where: StoreChoice) -> tuple[StoreChoice, str]:
    """Return the store when no option names one, and how to name it: that of the environment, else that in the data
    directory that `up` uses by default, if it holds one. Raises UsageError, ClickException."""
    if url := where.url():
        return where, masked_url(url)
    path = default_data()
    if not (path / "store").is_dir():
        raise click.UsageError(
            f"give either --store URL or --data DIR; {path}, where `sharegroups up` keeps its data by default, has none"
        )
    return StoreChoice(data=path), str(path)


_ProgressPrinter = Callable[[Progress], contextlib.AbstractAsyncContextManager[None]]


async def _take(store: Store, writer: SegmentWriter, bytes_per_s: float | None, printing: _ProgressPrinter) -> Manifest:
    cluster = StoreClusterStore(store, StoreSettings())
    try:
        cluster_id = await cluster.cluster_id()
    finally:
        await cluster.close()
    if cluster_id is None:
        raise LogError("the store holds no cluster, so there is nothing to save; give the store that the nodes use")
    copies = StreamCopies(store, _SETTINGS)
    try:
        work = BackupRun(copies, writer, SystemClock(), bytes_per_s=bytes_per_s, on_damage=warn)
        async with printing(work.progress):
            return await work.take(cluster_id, _made_by())
    finally:
        await copies.close()


async def _restore(
    store: Store, checked: Checked, *, keep_cluster_id: bool, allow: tuple[str, ...], printing: _ProgressPrinter
) -> dict[str, object]:
    await check_store(store, None, 0, allow=allow, show=warn)
    streams = RestoredStreams(store, _SETTINGS)
    progress = Progress()
    wanted = checked.manifest.cluster_id if keep_cluster_id else secrets.token_urlsafe(16)
    try:
        async with printing(progress):
            cluster_id = await restore(checked, streams, wanted, progress)
    finally:
        await streams.close()
    if keep_cluster_id and cluster_id != wanted:
        warn(f"the cluster id is {cluster_id}: a restore without --keep-cluster-id began this one")
    if streams.unreplicated:
        warn("a replica of the store was late; the restore is complete on the masters")
    return {"cluster_id": cluster_id}


@contextlib.asynccontextmanager
async def _writable(where: StoreChoice) -> AsyncIterator[tuple[Store, Callable[[str], None]]]:
    """Yield the chosen store, and a function that stores its cluster id. A data directory's own store is
    started for this.

    Raises EmbeddedStoreError, DataDirectoryError; the latter while `up` runs on the directory.
    """
    data = where.checked().data
    if data is None:
        yield where.opened(), lambda _: None
        return
    directory = DataDirectory(data)
    lock = directory.lock("up")
    lock.acquire("sharegroups restore", 1.0)
    try:
        embedded = EmbeddedStore(directory)
        await embedded.start()
        try:
            yield open_store(embedded.url), lambda cluster_id: directory.remember(CLUSTER_MEMO, cluster_id)
        finally:
            await embedded.stop()
    finally:
        lock.release()


def _progress_printer(quiet: bool) -> _ProgressPrinter:
    """Return a context manager that prints progress on standard error from time to time, unless `quiet`."""

    @contextlib.asynccontextmanager
    async def printing(progress: Progress) -> AsyncIterator[None]:
        task = asyncio.create_task(_print_progress(progress)) if not quiet else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()

    return printing


async def _print_progress(progress: Progress) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_EVERY_S)
        size = f", {progress.bytes / _MIB:.0f} MiB read" if progress.bytes else ""
        click.echo(f"{progress.step}: {progress.done} of {progress.total}{size}", err=True)


def _made_by() -> str:
    try:
        return f"sharegroups {version('sharegroups')}"
    except PackageNotFoundError:
        return "sharegroups"


def _summary(directory: Path, manifest: Manifest) -> dict[str, object]:
    return {
        "directory": str(directory),
        "backup_id": manifest.backup_id,
        "cluster_id": manifest.cluster_id,
        "began_ms": manifest.began_ms,
        "topics": manifest.topics,
        "streams": manifest.streams,
        "entries": manifest.entries,
        "bytes": manifest.bytes,
        "damaged": manifest.damaged,
        "left_out": list(manifest.left_out),
    }


def _saved(found: dict[str, object]) -> str:
    return (
        f"Saved {found['topics']} topics, {found['entries']} entries of {found['streams']} streams in {found['bytes']} "
        f"bytes to {found['directory']}, in {found['seconds']} s."
    )


def _restored(found: dict[str, object]) -> str:
    what = f"{found['topics']} topics, {found['entries']} entries of {found['streams']} streams"
    if not found["restored"]:
        return f"The backup in {found['directory']} is whole: {what}."
    return (
        f"Restored {what} in {found['seconds']} s. The store holds cluster {found['cluster_id']} now; start the nodes."
    )


def _end(
    body: Callable[[], Awaitable[dict[str, object]]],
    output: str,
    words: Callable[[dict[str, object]], str],
    interrupted: Callable[[], str],
    *,
    store: str,
) -> None:
    """Run a command's body, print its result or its error, and end the process: with 1 after an error, after Ctrl-C and
    SIGTERM with 130 and 143 (CT-80), when the body has cleaned up. `interrupted` returns the text to print after an
    interruption. `store`: its name for errors that concern it."""
    status, found, ended = 1, None, False

    async def guarded() -> None:
        nonlocal status, found, ended
        stop = StopSignal()  # in the loop: an exception inside a callback would be mistaken for a store error
        try:
            found = await unless_stopped(stop.received, body())
        except _ERRORS as error:
            which = f"the store of {store}: " if store and isinstance(error, _OF_STORE) else ""
            print_stderr(f"Error: {which}{masked(str(error))}", keep="\n")
        else:
            status = 0 if found is not None else 128 + stop.number
            if found is None:
                print_stderr(f"Interrupted: {interrupted()}")
        ended = True

    try:
        run(guarded)
    except KeyboardInterrupt as interrupt:  # before the loop handled signals, or after it had ended
        if not ended:
            status = status_of(interrupt)
            print_stderr(f"Interrupted: {interrupted()}")
    if found is not None:
        click.echo(json.dumps(found) if output == "json" else words(found))
    sys.exit(status)
