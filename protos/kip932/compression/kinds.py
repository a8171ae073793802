"""The compression types of record batches: Kafka's ids and names, and which this process can use (CM-116).

gzip needs no library. snappy, lz4 and zstd need one each, which an extra of this package installs; without it a batch
of that kind can be passed on, but neither made nor read.
"""

from __future__ import annotations

import importlib
from enum import IntEnum
from functools import cache
from typing import cast

from kip932.compression.frames import Frames
from kip932.errors import UnsupportedCompressionTypeError


class Compression(IntEnum):
    """Kafka's number of each compression. The name in lower case is what `compression.type` takes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Its value of `compression.type`."""
        return self.name.lower()


KNOWN_TEXT = ", ".join(f"{kind.value} ({kind.label})" for kind in Compression)


def frames_of(kind: Compression) -> Frames:
    """The module that compresses and decompresses batches of this kind.

    Raises UnsupportedCompressionTypeError, which says what to install, when its library is missing.
    """
    found = _found(kind)
    if isinstance(found, ImportError):
        raise UnsupportedCompressionTypeError(
            f"this Python has no library for {kind.label} ({found}). Try: {install_command(kind)}"
        )
    return found


def readable() -> tuple[Compression, ...]:
    """The kinds that this process can decompress, `NONE` included, ascending."""
    return tuple(kind for kind in Compression if kind is Compression.NONE or not isinstance(_found(kind), ImportError))


def install_command(kind: Compression) -> str:
    """The command that installs the library of this kind."""
    return f"pip install 'sharegroups[{kind.label}]'"


@cache
def _found(kind: Compression) -> Frames | ImportError:
    """The module of this kind, or the error of its import."""
    try:
        return cast("Frames", importlib.import_module(f"kip932.compression.{kind.label}_frames"))
    except ImportError as error:
        return error
