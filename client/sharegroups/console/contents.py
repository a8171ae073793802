"""A record's key, value and headers, as pages show them: text, or hexadecimal digits, cut at a bound (CT-167). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sharegroups.admin_values import ReadRecord
from sharegroups.cli.dlq.core.dead_letters import Headers

#: How many bytes of a value are shown on a page of its own, and in a list.
SHOWN_MAX: Final = 256 * 1024
LISTED_MAX: Final = 200
HEADERS_MAX: Final = 200
_HEX_WIDTH: Final = 64


class Part(NamedTuple):
    """A key, value or header. `lines`: its text; `kind`: what it is; `size`: in bytes, None for null."""

    name: str
    lines: tuple[str, ...]
    kind: str
    size: int | None
    is_cut: bool


class Content(NamedTuple):
    """A record to be shown. `left_out`: how many headers are not."""

    record: ReadRecord
    parts: tuple[Part, ...]
    left_out: int


def content_of(record: ReadRecord, headers: Headers, most: int = SHOWN_MAX) -> Content:
    """Return what is shown of a record."""
    shown: Sequence[tuple[str, bytes | None]] = headers[:HEADERS_MAX]
    parts = [part_of("Key", record.key, most), part_of("Value", record.value, most)]
    parts += [part_of(f"Header {name}", value, most) for name, value in shown]
    return Content(record, tuple(parts), len(headers) - len(shown))


def part_of(name: str, value: bytes | None, most: int = SHOWN_MAX) -> Part:
    """Return one part of a record."""
    if value is None:
        return Part(name, (), "null", None, False)
    cut, is_cut = value[:most], len(value) > most
    try:
        text = cut.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(cut) - 3:
            digits = cut.hex()
            lines = tuple(digits[at : at + _HEX_WIDTH] for at in range(0, len(digits), _HEX_WIDTH))
            return Part(name, lines, "bytes, not UTF-8", len(value), is_cut)
        text = cut[: error.start].decode()
    return Part(name, tuple(text.split("\n")), "text", len(value), is_cut)


def brief(value: bytes | None) -> str:
    """Return the beginning of a key or value in one line."""
    part = part_of("", value, LISTED_MAX)
    if part.size is None:
        return "null"
    return " ".join(part.lines) + ("…" if part.is_cut else "")
