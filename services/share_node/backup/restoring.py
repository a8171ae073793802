"""Restores a backup: checks all of it, then writes it into an empty store (CM-143).

It writes the data that the store held and nothing else: no owners, no leases, no node list. So nodes claim every shard
again, with epochs above all restored ones.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shard_runtime.cluster.node import SHARDS_FIXED
from shard_runtime.record_log.protocol import STREAM_START, LogError, StreamId
from shard_runtime.record_log.redis.keys import META_LOG, META_SKIP, NODE_NAMES, NODE_NEXT_ID
from shard_runtime.record_log.redis.restored_streams import RestoredStreams
from share_node.backup.format import Item, StoredHash, StoredString, StreamPage
from share_node.backup.manifest import Manifest
from share_node.backup.segments import BackupFilesError, items, read_manifest
from share_node.backup.taking import Progress

_STREAM: Final = re.compile(
    r"\{(gc|sgs):\d{1,9}\}:log|\{tp:[A-Za-z0-9_-]{22}:\d{1,9}\}:(log|ctl)|" + re.escape(META_LOG)
)
_HASH: Final = re.compile(
    r"\{(gc|sgs):\d{1,9}\}:skip|" + re.escape(META_SKIP) + "|" + re.escape(NODE_NAMES) + r"|\{txn:.{1,255}\}", re.DOTALL
)
_STRINGS: Final = frozenset({NODE_NEXT_ID, *(key for key, _ in SHARDS_FIXED)})
_TIPS_AT_ONCE: Final = 256


@dataclass(slots=True)
class StreamTotal:
    """A stream of a backup: its number of entries, and its last id."""

    entries: int = 0
    last: StreamId = STREAM_START


@dataclass(slots=True)
class Checked:
    """A backup that was read to its end and found whole. `streams`: those that are restored."""

    directory: Path
    manifest: Manifest
    streams: dict[str, StreamTotal] = field(default_factory=dict)
    items: int = 0

    def all_items(self) -> Iterator[Item]:
        """Yield the items to restore, in order. Raises BackupFilesError when a file has changed since."""
        left_out = frozenset(self.manifest.left_out)
        for segment in self.manifest.segments:
            for item in items(self.directory, segment):
                if not _of_topics(item.key, left_out):
                    yield item


def check(directory: Path, progress: Progress) -> Checked:
    """Read a whole backup and verify it. Blocking, until `progress.given_up` is set. Raises BackupFilesError, which
    names file and place."""
    checked = Checked(directory, read_manifest(directory))
    manifest = checked.manifest
    progress.step, progress.total = "checking segments", len(manifest.segments)
    totals: dict[str, StreamTotal] = {}
    for segment in manifest.segments:
        for item in items(directory, segment):
            if progress.given_up:
                raise BackupFilesError("the check was given up")
            _require_known(directory / segment.name, item)
            if isinstance(item, StreamPage):
                _count(directory / segment.name, totals.setdefault(item.key, StreamTotal()), item)
        progress.done += 1
        progress.bytes += segment.bytes
    found = len(totals), sum(total.entries for total in totals.values())
    if found != (manifest.streams, manifest.entries):
        raise BackupFilesError(
            f"{directory}: its segments hold {found[0]} streams and {found[1]} entries, the manifest says "
            f"{manifest.streams} and {manifest.entries}"
        )
    left_out = frozenset(manifest.left_out)
    checked.streams = {key: total for key, total in totals.items() if not _of_topics(key, left_out)}
    return checked


async def restore(checked: Checked, streams: RestoredStreams, cluster_id: str, progress: Progress) -> str:
    """Write a checked backup into a store. Returns the cluster id that the store has now.

    An interrupted restore leaves the store marked; running the same restore again continues it. Raises LogError,
    BackupFilesError.
    """
    backup_id = checked.manifest.backup_id
    progress.step, progress.done, progress.total = "entries", 0, sum(each.entries for each in checked.streams.values())
    progress.bytes = 0
    in_force = await streams.begin(backup_id, cluster_id)
    source = checked.all_items()
    while (item := await asyncio.to_thread(next, source, None)) is not None:
        await _write(streams, item)
        if isinstance(item, StreamPage):
            progress.done += len(item.entries)
    await streams.require_marked(backup_id)  # without the mark, nodes may have trimmed entries
    await _require_all(checked, streams)
    await streams.finish(backup_id, in_force)
    return in_force


async def _write(streams: RestoredStreams, item: Item) -> None:
    if isinstance(item, StreamPage):
        await streams.append(item.key, item.entries)
    elif isinstance(item, StoredHash):
        await streams.put_hash(item.key, item.fields)
    else:
        await streams.put_string(item.key, item.value)


async def _require_all(checked: Checked, streams: RestoredStreams) -> None:
    """Raise LogError unless every stream in the store has all entries of the backup."""
    keys = list(checked.streams)
    for at in range(0, len(keys), _TIPS_AT_ONCE):
        some = keys[at : at + _TIPS_AT_ONCE]
        tips = await asyncio.gather(*(streams.tip(key) for key in some))
        for key, tip in zip(some, tips, strict=True):
            total = checked.streams[key]
            found = (tip.length, tip.last) if tip is not None else (0, STREAM_START)
            if found != (total.entries, total.last):
                raise LogError(
                    f"{key}: the store holds {found[0]} entries up to {found[1]}, the backup {total.entries} up to "
                    f"{total.last}; another process wrote to the store. Empty it and restore again"
                )


def _count(path: Path, total: StreamTotal, page: StreamPage) -> None:
    """Count a page's entries. Raises BackupFilesError when they do not ascend: the store would refuse them."""
    for entry in page.entries:
        if entry.id <= total.last:
            raise BackupFilesError(f"{path}: entry {entry.id} of {page.key} comes after {total.last}")
        if not entry.fields or len(entry.fields) % 2:
            raise BackupFilesError(f"{path}: entry {entry.id} of {page.key} has {len(entry.fields)} words")
        total.last = entry.id
    total.entries += len(page.entries)


def _require_known(path: Path, item: Item) -> None:
    """Raise BackupFilesError for a key that no backup holds: nothing else is written to a store."""
    known = (
        _STREAM.fullmatch(item.key)
        if isinstance(item, StreamPage)
        else _HASH.fullmatch(item.key)
        if isinstance(item, StoredHash)
        else isinstance(item, StoredString) and item.key in _STRINGS
    )
    if not known:
        raise BackupFilesError(f"{path}: it holds {item.key!r}, which no backup of this version has")


def _of_topics(key: str, topic_ids: frozenset[str]) -> bool:
    return key.startswith("{tp:") and key[4 : key.rindex(":", 0, key.index("}"))] in topic_ids
