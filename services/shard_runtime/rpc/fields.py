"""Counts the fields of a request in its bytes before it is parsed, so that its size in memory is bounded (CM-181).

An empty list entry is two bytes, and takes 70 or more once it is parsed. `count` scans the bytes once, skips the
content of texts and byte strings, and stops at the first field too many.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

#: Requests of fewer bytes are not scanned: even the largest of these stays small once parsed.
COUNTED_FROM_BYTES: Final = 4096
#: The maximum number of fields in one request, those of its entries included. The largest request that all other bounds
#: allow, a Produce of 10,000 batches for as many partitions, has 100,000; scanning that many takes about 30 ms.
FIELDS_MAX: Final = 150_000
#: Up to this many fields are counted on the event loop; more are counted in a thread.
COUNTED_AT_ONCE: Final = 5_000
#: The maximum memory that an entry (a message, a text or a byte string) takes once parsed, beyond its own bytes.
ENTRY_BYTES: Final = 128

_VARINT, _FIXED64, _LENGTH, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_MORE: Final = 0x80


class Counted(NamedTuple):
    """The result of `count`. `fields` is `fields_max` + 1 when there are more fields than `fields_max`."""

    fields: int
    entries: int


class Shape(dict[int, "Shape"]):
    """Field number → shape of its message, for the fields of a message type that are messages with entries of their
    own."""


def count(  # noqa: PLR0912 - one loop: a call for each field would double its cost
    data: bytes, shape: Shape, fields_max: int = FIELDS_MAX
) -> Counted:
    """Count a request's fields and entries, up to `fields_max` fields. If the bytes are malformed, count those
    that a parser would parse before it refuses the request."""
    fields = entries = at = 0
    end, outer = len(data), list[tuple[int, Shape]]()
    try:
        while at < end or outer:
            if at >= end:
                if at > end:
                    break  # an entry that is longer than the one that contains it
                end, shape = outer.pop()
                continue
            if fields >= fields_max:
                return Counted(fields + 1, entries)
            fields += 1
            tag = data[at]
            at += 1
            if tag >= _MORE:
                tag, at = _varint(data, at - 1)
            kind = tag & 7
            if kind == _LENGTH:
                entries += 1
                size = data[at]
                at += 1
                if size >= _MORE:
                    size, at = _varint(data, at - 1)
                inner = shape.get(tag >> 3)
                if inner is None:
                    at += size
                elif size:
                    outer.append((end, shape))
                    if at + size > end:
                        break
                    end, shape = at + size, inner
            elif kind == _VARINT:
                while data[at] >= _MORE:
                    at += 1
                at += 1
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            elif kind > _FIXED32:
                break
    except IndexError:
        pass  # the bytes end inside a field
    return Counted(fields, entries)


@cache
def shape_of(descriptor: Descriptor) -> Shape:
    """Return the shape of a message type. Messages that hold only numbers are left out: each counts as one entry."""
    found: dict[str, Shape] = {}
    _add(descriptor, found)
    return found[descriptor.full_name]


def _add(descriptor: Descriptor, found: dict[str, Shape]) -> None:
    shape = found[descriptor.full_name] = Shape()
    for field in descriptor.fields:
        kind = field.message_type
        if kind is not None and any(_has_length(inner) for inner in kind.fields):
            if kind.full_name not in found:
                _add(kind, found)
            shape[field.number] = found[kind.full_name]


def _has_length(field: FieldDescriptor) -> bool:
    return field.message_type is not None or field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < _MORE:
            return value, at
        shift += 7
