"""The checksum that every stored entry carries in its field `c` (CM-100), by CRC-32C.

It covers the stream's key, the type, the record and the entry's id, in that order: it detects an entry that was moved
to another place as well as a changed byte. The id comes last, because the store chooses the id of a claim and then
extends the checksum that the caller computed. An entry with a batch carries a second checksum, which extends the first
over the batch: reads that leave batches out verify only the first.
"""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c

if google_crc32c.implementation != "c":
    raise ImportError(
        f"google-crc32c is installed without its C library (found: {google_crc32c.implementation}), which takes "
        "milliseconds for each batch. Expected a wheel for this platform: "
        "pip install --force-reinstall --only-binary :all: google-crc32c"
    )

_ID: Final = struct.Struct(">QQ")
_ONE: Final = struct.Struct(">I")
_BOTH: Final = struct.Struct(">II")
_extend = google_crc32c.extend
_value = google_crc32c.value


def unplaced(stream: str, kind: str, record: bytes) -> int:
    """The checksum of an entry without its id; `placed` extends it when the id is known."""
    return int(_extend(_value(f"{stream}\0{kind}\0".encode()), record))


def placed(so_far: int, at: tuple[int, int]) -> bytes:
    """Field `c` of an entry without a batch, from `unplaced` and its id."""
    return _ONE.pack(_extend(so_far, _ID.pack(*at)))


def checksum(stream: str, at: tuple[int, int], kind: str, record: bytes, batch: bytes = b"") -> bytes:
    """Field `c` of the entry with the id `at` (epoch, sequence): four bytes, most significant first; eight with a
    batch."""
    head = _extend(unplaced(stream, kind, record), _ID.pack(*at))
    return _BOTH.pack(head, _extend(head, batch)) if batch else _ONE.pack(head)


def damage(
    stream: str, at: tuple[int, int], kind: str, record: bytes, *, batch: bytes | None, found: bytes | None
) -> str:
    """What is wrong with an entry, in words; "" for an intact one, and for one that was written without a checksum.

    `found` is its field `c`, None without one. `batch` None: the batch was not read, so only the first checksum is
    verified.
    """
    if found is None:
        return ""
    head = _extend(unplaced(stream, kind, record), _ID.pack(*at))
    if batch is None:
        if found[:4] == _ONE.pack(head) and len(found) in {4, 8}:
            return ""
        return f"its checksum is {found[:4].hex()}, its bytes give {head:08x}"
    expected = _BOTH.pack(head, _extend(head, batch)) if batch else _ONE.pack(head)
    return "" if found == expected else f"its checksum is {found.hex()}, its bytes give {expected.hex()}"
