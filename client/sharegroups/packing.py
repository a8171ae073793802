"""How a producer compresses its batches: `compression.type`, and the level for that type (CL-112, CM-116)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final, NamedTuple, Protocol

from kip932.compression.kinds import Compression, frames_of
from kip932.errors import UnsupportedCompressionTypeError
from sharegroups.errors import ConfigError

TYPE: Final = "compression.type"
#: The setting for the level of each compression that has levels.
LEVELS: Final = {
    Compression.GZIP: "compression.gzip.level",
    Compression.LZ4: "compression.lz4.level",
    Compression.ZSTD: "compression.zstd.level",
}


class Settings(Protocol):
    """A producer's checked settings."""

    def __getitem__(self, name: str) -> Any:
        """The value of a setting."""
        ...


class Packing(NamedTuple):
    """A compression and its level; the level is None for a compression without levels."""

    kind: Compression
    level: int | None = None

    def pack(self, data: bytes) -> bytes:
        """Compress `data` into one frame. Do not call this for uncompressed batches."""
        return frames_of(self.kind).compress(data, self.level)


PLAIN: Final = Packing(Compression.NONE)


def packing_of(config: Settings) -> Packing:
    """Return how a producer with these settings compresses."""
    kind = Compression[config[TYPE].upper()]
    return Packing(kind, config[LEVELS[kind]] if kind in LEVELS else None)


def check_packing(config: Settings, given: Container[str]) -> None:
    """Refuse settings that would fail at the first send, or have no effect. `given`: the names of the settings that
    were given.

    Raises ConfigError for a compression whose library is not installed, a level of another compression, and gzip's
    level 0.
    """
    kind = packing_of(config).kind
    for other, name in LEVELS.items():
        if name in given and other is not kind:
            raise ConfigError(
                f"{name} is set, but {TYPE} is {kind.label!r}, so it would have no effect; leave it out, or set "
                f"{TYPE}={other.label}"
            )
    if kind is Compression.GZIP and config[LEVELS[kind]] == 0:
        raise ConfigError(f"{LEVELS[kind]} is 0; expected 1 to 9, or -1 for zlib's default, 6")
    if kind is not Compression.NONE:
        try:
            frames_of(kind)
        except UnsupportedCompressionTypeError as error:
            raise ConfigError(f"{TYPE} is {kind.label!r}, and {error}") from None
