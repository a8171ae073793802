"""Writes and reads the files of a backup (CM-142). Blocking: the hosts call it in a thread.

Every file is written under another name, flushed to disk and then renamed; the manifest comes last. So a directory with
a manifest holds all that the manifest names, however the process that wrote it ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from share_node.backup import manifest as manifests
from share_node.backup.format import FRAME_HEAD, HEADER, FormatError, Item, crc, frame, item_of
from share_node.backup.manifest import Manifest, ManifestError, Segment

_SEGMENT_BYTES: Final = 256 * 1024 * 1024
_PART: Final = ".part"


class BackupFilesError(Exception):
    """The files cannot be written, or are not a backup; the message names file and place, and says what to do."""


class SegmentWriter:
    """Writes one backup into a directory that is empty or does not exist. Raises BackupFilesError.

    After `keep`, `rewind` discards everything written since, when a stream has to be read again; `settle` ends that. In
    between everything goes into one file.
    """

    def __init__(self, directory: Path, segment_bytes: int = _SEGMENT_BYTES) -> None:
        self.directory = directory
        self.segments: list[Segment] = []
        """The files that are finished: all of them after `seal`."""
        self._segment_bytes = segment_bytes
        self._file: IO[bytes] | None = None
        self._bytes = self._crc = self._frames = 0
        self._kept: tuple[int, int, int] | None = None
        self._made: list[Path] = []
        self._made_directory = not directory.exists()
        self._require_empty()

    def add(self, item: Item) -> None:
        """Write one item."""
        data = frame(item)
        with self._explained_errors():
            if self._file is None:
                self._open()
            self._write(data)
            self._frames += 1
            if self._kept is None and self._bytes >= self._segment_bytes:
                self._finish()

    def keep(self) -> None:
        """Mark the point to which `rewind` returns."""
        with self._explained_errors():
            if self._file is None:
                self._open()
        self._kept = self._bytes, self._crc, self._frames

    def rewind(self) -> None:
        """Discard everything written since `keep`."""
        assert self._kept is not None
        assert self._file is not None
        with self._explained_errors():
            self._file.flush()
            self._bytes, self._crc, self._frames = self._kept
            self._file.seek(self._bytes)
            self._file.truncate()

    def settle(self) -> None:
        """Keep everything written since `keep`; `rewind` may no longer be called."""
        self._kept = None

    def seal(self) -> None:
        """Finish the last segment, after which all of them are on disk."""
        with self._explained_errors():
            if self._file is not None:
                self._finish()

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest: from here on the directory holds a backup."""
        with self._explained_errors():
            path = self.directory / manifests.NAME
            self._file = self._create(path)
            self._file.write(manifests.encode(manifest))
            self._rename(path)
            if self._made_directory:
                _sync(self.directory.parent)

    def discard(self) -> None:
        """Remove every file of this writer, and the directory if it made it."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        for path in reversed(self._made):
            with contextlib.suppress(OSError):
                path.unlink()
        if self._made_directory:
            with contextlib.suppress(OSError):
                self.directory.rmdir()

    def _require_empty(self) -> None:
        with self._explained_errors():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            found = next(self.directory.iterdir(), None)
        if found is not None:
            raise BackupFilesError(
                f"{self.directory} is not empty (it holds {found.name}); give a directory that is empty or does not "
                "exist yet, for instance one with the date in its name"
            )

    def _open(self) -> None:
        self._bytes = self._crc = self._frames = 0
        self._file = self._create(self.directory / f"segment-{len(self.segments) + 1:06}")
        self._write(HEADER)

    def _create(self, path: Path) -> IO[bytes]:
        part = path.with_name(path.name + _PART)
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._made.append(part)
        return os.fdopen(descriptor, "w+b")

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self._crc = crc(data, self._crc)
        self._bytes += len(data)

    def _finish(self) -> None:
        path = self.directory / f"segment-{len(self.segments) + 1:06}"
        self._rename(path)
        self.segments.append(Segment(path.name, self._bytes, f"{self._crc:08x}", self._frames))
        self._bytes = 0

    def _rename(self, path: Path) -> None:
        file, self._file = self._file, None
        assert file is not None
        with file:
            file.flush()
            os.fsync(file.fileno())
        self._made[-1].rename(path)
        self._made[-1] = path
        _sync(self.directory)

    @contextlib.contextmanager
    def _explained_errors(self) -> Iterator[None]:
        """Turn an error of the file system into one that says what to do."""
        try:
            yield
        except OSError as error:
            free = ""
            with contextlib.suppress(OSError):
                free = f"; {shutil.disk_usage(self.directory).free} bytes are free there"
            raise BackupFilesError(
                f"cannot write {error.filename or self.directory}: {error.strerror}{free}. Nothing in {self.directory} "
                "is a backup; make room, or give another directory"
            ) from error


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a backup. Raises BackupFilesError."""
    path = directory / manifests.NAME
    try:
        return manifests.decode(path.read_bytes())
    except FileNotFoundError:
        if not directory.exists():
            raise BackupFilesError(
                f"there is no directory {directory}. Pass the one that `sharegroups backup` was given"
            ) from None
        there = next(iter(directory.glob("segment-*")), None) if directory.is_dir() else None
        why = "the backup was interrupted, or is still being made" if there else "it holds no backup"
        raise BackupFilesError(
            f"{directory} has no {manifests.NAME}: {why}. Pass the directory that `sharegroups backup` was given"
        ) from None
    except OSError as error:
        raise BackupFilesError(f"cannot read {path}: {error.strerror}") from error
    except ManifestError as error:
        raise BackupFilesError(f"{path}: {error}") from error


def items(directory: Path, segment: Segment) -> Iterator[Item]:
    """Yield the items of one file, in order, with one item in memory at a time. Raises BackupFilesError, which names
    the byte.

    The checksum of the whole file is compared at its end.
    """
    path = directory / segment.name
    try:
        with path.open("rb") as file:
            yield from _items(path, file, segment)
    except FileNotFoundError:
        raise BackupFilesError(f"{path} is missing; the manifest names it, so this backup is not whole") from None
    except OSError as error:
        raise BackupFilesError(f"cannot read {path}: {error.strerror}") from error


def _items(path: Path, file: IO[bytes], segment: Segment) -> Iterator[Item]:
    size = os.fstat(file.fileno()).st_size
    if size != segment.bytes:
        raise BackupFilesError(
            f"{path} has {size} bytes, but the manifest says {segment.bytes}; this backup is not whole"
        )
    header = file.read(len(HEADER))
    if header != HEADER:
        raise BackupFilesError(f"{path} is damaged at byte 0: it begins with {header!r}, expected {HEADER!r}")
    at, so_far, frames = len(HEADER), crc(header), 0
    while at < size:
        head = file.read(FRAME_HEAD.size)
        length, expected = FRAME_HEAD.unpack(head) if len(head) == FRAME_HEAD.size else (size, 0)
        if at + FRAME_HEAD.size + length > size:
            raise BackupFilesError(f"{path} is damaged at byte {at}: its next frame does not fit in the file")
        body = file.read(length)
        so_far = crc(body, crc(head, so_far))
        try:
            item = item_of(body, expected)
        except FormatError as error:
            raise BackupFilesError(f"{path} is damaged at byte {at}: {error}") from error
        yield item
        frames += 1
        at += FRAME_HEAD.size + length
    if f"{so_far:08x}" != segment.crc32c or frames != segment.frames:
        raise BackupFilesError(
            f"{path} is damaged: {frames} frames with the checksum {so_far:08x}, the manifest says {segment.frames} "
            f"with {segment.crc32c}"
        )
