"""The metadata log in this process: read into an image, changed by compare-and-set (CM-20).

Every read begins with the entry at the image's own version. If another entry is there, or none, then the store lost or
replaced its tail, and the image is rebuilt. Entries become part of the image only when they can no longer be lost;
otherwise a process could remove a topic's streams and a fail-over could then undo the topic's deletion. A store that
belongs to another cluster, or to none, is never read as an empty log.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from shard_runtime.clock import Clock
from shard_runtime.cluster.metadata import Change, MetadataImage, ScramCredentialSet, image_of
from shard_runtime.cluster.metadata_codec import MetadataEntry, decode, encode_changes, encode_snapshot
from shard_runtime.record_log.cluster_store import NO_ENTRY, ClusterStore, StoredMetadata, metadata_digest
from shard_runtime.record_log.protocol import DamagedEntryError, LogError, StoreUnavailableError

log = structlog.get_logger(__name__)

WAKE_METADATA: Final = "metadata"
SNAPSHOT_EVERY: Final = 1_000
_PAGE: Final = 500
_ATTEMPTS_MAX: Final = 50

Listener = Callable[[MetadataImage, MetadataImage], None]


class MetadataLogError(LogError):
    """The metadata log cannot be used: a version is missing, or the store belongs to another cluster."""


class MetadataDamagedError(DamagedEntryError):
    """An entry of the metadata log is not what was written, or no build can read it; the message names the entry.
    Restore the store, or let nodes skip the entry (CM-103)."""


class _Basis(NamedTuple):
    """The entries an image was built from: the last one's digest, the newest snapshot's version, and the version of the
    newest one that this build cannot read in full."""

    tip: str = NO_ENTRY
    snapshot_version: int = 0
    unknown_version: int = 0


class MetadataLog:
    """Follows the metadata log and appends to it. While the store cannot be read, `image` stays the last good one.

    `complete_since_ms`: `image` holds all that was in the log at this time (`now_ms` clock); −1 before the first read.
    """

    def __init__(self, store: ClusterStore, clock: Clock, cluster_id: str, *, poll_ms: int = 1_000) -> None:
        self.image = MetadataImage()
        self.cluster_id = cluster_id
        self.sound = False
        self.complete_since_ms = -1
        self._store = store
        self._clock = clock
        self._poll_ms = poll_ms
        self._basis = _Basis()
        self._listeners: list[Listener] = []
        self._lock = asyncio.Lock()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(new, old)` after each change of the image. It must not block."""
        self._listeners.append(listener)

    async def load(self) -> MetadataImage:
        """Read the log to its end. Raises LogError."""
        async with self._lock:
            await self._read_on()
        return self.image

    def start(self) -> None:
        """Start following the log."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Read now instead of at the next poll: a wake was published, or the wake connection is new."""
        self._woken.set()

    async def stop(self) -> None:
        """Stop following the log."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def change(self, decide: Callable[[MetadataImage], Sequence[Change]]) -> MetadataImage:
        """Change the metadata. `decide` gets the newest image; it is called again when another change came first.

        Returns the image with the change, which is then durable; without changes, the newest image. Raises what
        `decide` raises. Raises StoreUnavailableError when the outcome is unknown (read the image before trying again),
        or when other changes came first too often (try again).
        """
        async with self._lock:
            for _ in range(_ATTEMPTS_MAX):
                # Read first: an append on an old image would fail by itself, but a refusal, or no change, appends
                # nothing and must be right for the newest image, too.
                await self._read_on()
                changes = tuple(decide(self.image))
                if not changes:
                    return self.image
                payload = encode_changes(changes, secrets.token_bytes(16), self._clock.wall_ms())
                if await self._append(self.image.version + 1, payload):
                    basis = self._basis._replace(tip=metadata_digest(payload))
                    self._step(self.image.apply(self.image.version + 1, changes), basis)
                    await self._write_snapshot()
                    break
            else:
                raise StoreUnavailableError(f"{_ATTEMPTS_MAX} other changes of the metadata came first; try again")
        await self._publish()
        return self.image

    # ---- following

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_ms / 1000):
                    await self._woken.wait()
            self._woken.clear()
            try:
                async with self._lock:
                    await self._read_on()
                self._trouble = ""
            except LogError as error:
                if str(error) != self._trouble:  # log it once: the next read, a second later, may fail the same way
                    log.warning("metadata_log_read_failed", cause=str(error))
                self._trouble = str(error)
            except Exception:
                log.exception("metadata_image_update_failed")

    async def _read_on(self) -> None:
        """Bring the image up to the log's end; rebuild it when the log no longer has the entries it was built from."""
        began_ms = self._clock.now_ms()
        await self._check_cluster()
        entries = await self._store.read_metadata(max(self.image.version - 1, 0), _PAGE)
        if self.image.version and not _joins(self.image, self._basis, entries):
            log.error(
                "metadata_log_replaced",
                version=self.image.version,
                cause="the log no longer has the entries from which this node's image was built",
                effect="the image is rebuilt",
            )
            await self._apply_pages(MetadataImage(), _Basis(), await self._store.read_metadata(0, _PAGE))
            self.complete_since_ms = began_ms
            return
        await self._apply_pages(self.image, self._basis, entries)
        self.complete_since_ms = began_ms

    async def _check_cluster(self) -> None:
        found = await self._store.cluster_id()
        if found != self.cluster_id:
            self.sound = False
            raise MetadataLogError(
                f"the store belongs to cluster {found or '(none)'}, this node to {self.cluster_id}; it may have been "
                "wiped or replaced. Point store.url at the right store, or restore its data."
            )

    async def _apply_pages(self, image: MetadataImage, basis: _Basis, entries: Sequence[StoredMetadata]) -> None:
        """Apply a page and all later ones. Then require that enough replicas have the last entry, and so all before
        it."""
        newest = None
        while True:
            image, basis = await self._apply_entries(image, basis, entries)
            newest = entries[-1] if entries else newest
            if len(entries) < _PAGE:
                break
            entries = await self._store.read_metadata(image.version - 1, _PAGE)
            if not _joins(image, basis, entries):
                raise StoreUnavailableError(
                    f"metadata version {image.version} was replaced while it was read; read it again"
                )
        seen = self.image.version, self._basis.tip
        if (
            newest is not None
            and (image.version, basis.tip) != seen
            and not await self._store.confirm_metadata(newest.version, newest.data)
        ):
            raise StoreUnavailableError(
                f"metadata version {newest.version} was replaced while it was read; read it again"
            )
        self._step(image, basis)
        self.sound = True

    async def _apply_entries(
        self, image: MetadataImage, basis: _Basis, entries: Sequence[StoredMetadata]
    ) -> tuple[MetadataImage, _Basis]:
        for stored in entries:
            version = stored.version
            if version <= image.version:
                continue
            entry = await self._entry(stored)
            if entry.unknown:
                basis = basis._replace(unknown_version=version)
                log.warning(
                    "newer_metadata_skipped", version=version, unknown=entry.unknown, try_next="upgrade this node"
                )
            if entry.snapshot is not None:
                image = image_of(version, entry.snapshot)
                basis = basis._replace(snapshot_version=version)
            elif version != image.version + 1 and version not in await self._store.skipped_metadata():
                self.sound = False
                raise MetadataLogError(
                    f"metadata log: version {version} follows {image.version} without a snapshot; entries are missing. "
                    "Restore the store from a copy, or go on without them: sharegroups state skip --kind meta --entry "
                    f"1-{version}"
                )
            else:
                image = image.apply(version, entry.changes)
            basis = basis._replace(tip=metadata_digest(stored.data))
        return image, basis

    async def _entry(self, stored: StoredMetadata) -> MetadataEntry:
        """Decode an entry. If it cannot be read and an operator has allowed nodes to skip it, return an empty one
        (CM-103).

        Raises MetadataDamagedError.
        """
        try:
            return _decoded(stored)
        except MetadataDamagedError as error:
            if stored.version in await self._store.skipped_metadata():
                log.warning(
                    "damaged_metadata_skipped",
                    version=stored.version,
                    cause=str(error),
                    effect="skipped, as an operator decided",
                )
                return MetadataEntry(b"")
            self.sound = False
            raise

    def _step(self, image: MetadataImage, basis: _Basis) -> None:
        previous, self.image, self._basis = self.image, image, basis
        if image is previous:
            return
        for listener in self._listeners:
            try:
                listener(image, previous)
            except Exception:
                log.exception("metadata_listener_failed", version=image.version)

    # ---- writing

    async def _append(self, version: int, payload: bytes) -> bool:
        try:
            return await self._store.append_metadata(version, payload, self._basis.tip)
        except StoreUnavailableError:
            self.sound = False  # the entry may be in the log: the next read shows it
            raise

    async def _write_snapshot(self) -> None:
        """Fold old entries into a snapshot entry. When that fails, the next change tries again.

        Does nothing while entries have parts that this build cannot read: its snapshot would lose these parts.
        """
        basis = self._basis
        if self.image.version - basis.snapshot_version <= SNAPSHOT_EVERY:
            return
        if basis.unknown_version and basis.unknown_version >= basis.snapshot_version:
            return
        version = self.image.version + 1
        payload = encode_snapshot(self.image.snapshot(), secrets.token_bytes(16), self._clock.wall_ms())
        try:
            if await self._append(version, payload):
                basis = self._basis._replace(tip=metadata_digest(payload), snapshot_version=version)
                self._step(self.image.apply(version, ()), basis)
                await self._store.trim_metadata(version)
                await self._warn_older_builds()
        except LogError as error:
            log.warning("metadata_snapshot_failed", cause=str(error), effect="the next change tries again")

    async def _warn_older_builds(self) -> None:
        """After a snapshot with passwords, append a change that repeats one. A build that has no passwords does not see
        them in the snapshot, and folds only while nothing after the snapshot is unknown to it."""
        if not self.image.credentials:
            return
        repeated = (ScramCredentialSet(next(iter(self.image.credentials.values()))),)
        version, payload = (
            self.image.version + 1,
            encode_changes(repeated, secrets.token_bytes(16), self._clock.wall_ms()),
        )
        if await self._append(version, payload):
            self._step(self.image.apply(version, repeated), self._basis._replace(tip=metadata_digest(payload)))

    async def _publish(self) -> None:
        with contextlib.suppress(LogError):
            await self._store.wake(WAKE_METADATA)


def _decoded(stored: StoredMetadata) -> MetadataEntry:
    if stored.damage:
        raise _damaged(stored, f"is damaged: {stored.damage}")
    try:
        return decode(stored.data)
    except (ValueError, KeyError) as error:
        raise _damaged(stored, f"cannot be read: {error}") from error


def _damaged(stored: StoredMetadata, what: str) -> MetadataDamagedError:
    return MetadataDamagedError(
        f"metadata log: entry 1-{stored.version} of {{meta}}:log ({len(stored.data)} bytes) {what}. Running nodes "
        "keep the metadata they have, and none can start. Restore the store from a copy, or go on without the entry "
        f"and its change: sharegroups state skip --kind meta --entry 1-{stored.version}"
    )


def _joins(image: MetadataImage, basis: _Basis, entries: Sequence[StoredMetadata]) -> bool:
    """Return whether `entries` begin with the image's own last entry, or with a snapshot if that one was trimmed."""
    if not entries:
        return False
    first = entries[0]
    if first.version == image.version:
        return metadata_digest(first.data) == basis.tip
    return first.version > image.version and _decoded(first).snapshot is not None
