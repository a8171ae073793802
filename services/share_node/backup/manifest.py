"""The manifest of a backup: its contents, and its files with sizes and checksums (CM-142). Pure.

It is written last. A directory without one holds no backup, or one that was interrupted.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Final

from share_node.backup.format import crc

NAME: Final = "manifest.json"
_FORMAT: Final = "sharegroups-backup"
VERSION: Final = 1
_SEGMENT_NAME: Final = re.compile(r"segment-\d{6,12}")


class ManifestError(ValueError):
    """The text is not a manifest that this build can use; the message says why."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file: its name, its bytes, the CRC-32C of all of them, and the frames in it."""

    name: str
    bytes: int
    crc32c: str
    frames: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a backup.

    Times are by the clock of the machine that made it, ms. `began_ms`: everything confirmed before this time is in the
    backup. `left_out`: ids of topics that were deleted meanwhile; their records are in the segments and are not
    restored. `damaged`: how many entries were damaged in the store already (CM-101).
    """

    backup_id: str
    cluster_id: str
    began_ms: int
    ended_ms: int
    made_by: str
    streams: int
    entries: int
    topics: int
    damaged: int
    left_out: tuple[str, ...]
    segments: tuple[Segment, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all segments."""
        return sum(segment.bytes for segment in self.segments)


def encode(manifest: Manifest) -> bytes:
    """Return the manifest's text."""
    document = {"format": _FORMAT, "version": VERSION, **asdict(manifest)}
    return json.dumps(document | {"checksum": _checksum(document)}, indent=1).encode() + b"\n"


def decode(data: bytes) -> Manifest:
    """Return the manifest of a text. Raises ManifestError."""
    try:
        document = json.loads(data)
        checksum = document.pop("checksum")
        kind, version = document.pop("format"), document.pop("version")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"it is not a manifest of a backup, or damaged ({error!r})") from error
    if kind != _FORMAT:
        raise ManifestError(f"its format is {kind!r}, expected {_FORMAT!r}")
    if version != VERSION:
        raise ManifestError(f"its version is {version}, but this build reads {VERSION}: restore it with a newer build")
    expected = _checksum({"format": kind, "version": version, **document})
    if checksum != expected:
        raise ManifestError(f"it is damaged: its checksum is {checksum}, but its content gives {expected}")
    try:
        return _manifest(document)
    except (KeyError, TypeError) as error:
        raise ManifestError(f"a part of it is missing or not known ({error})") from error


def _manifest(document: dict[str, Any]) -> Manifest:
    segments = tuple(Segment(**each) for each in document.pop("segments"))
    for segment in segments:
        if not _SEGMENT_NAME.fullmatch(segment.name):
            raise ManifestError(f"it names a file {segment.name!r}, expected segment-000001 and so on")
    left_out = tuple(document.pop("left_out"))
    return Manifest(segments=segments, left_out=left_out, **document)


def _checksum(document: dict[str, Any]) -> str:
    plain = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"{crc(plain.encode()):08x}"
