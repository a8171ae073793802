"""A record's key, value and headers, as commands print them: in lines for people, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kip932.printable import printable
from sharegroups.admin_values import ReadRecord
from sharegroups.cli.dlq.core.dead_letters import Headers
from sharegroups.cli.formatting import json_value

_WIDTH: Final = 12
_HEX_WIDTH: Final = 64


def content_lines(record: ReadRecord, headers: Headers) -> Iterator[str]:
    """Yield key, value and headers of a record: UTF-8 as text, escaped, and anything else as hexadecimal digits."""
    yield from _value("Key", record.key)
    yield from _value("Value", record.value)
    for name, value in headers:
        yield from _value(f"Header {name}", value)


def line(name: str, text: str) -> str:
    """Return one line with a name and its text, escaped."""
    return f"  {name:<{_WIDTH}} {printable(text)}"


def _value(name: str, value: bytes | None) -> Iterator[str]:
    """Yield a value with its size: null, text line by line, or hexadecimal digits."""
    if value is None:
        yield line(name, "null")
        return
    lines, kind = _shown(value)
    size = f"{len(value)} byte{'' if len(value) == 1 else 's'}{kind}"
    if len(lines) == 1 and len(lines[0]) <= _HEX_WIDTH:
        yield line(name, f"{lines[0]}  ({size})" if value else "(0 bytes)")
        return
    yield line(name, f"({size})")
    for text in lines:
        yield f"    {printable(text)}"


def _shown(value: bytes) -> tuple[Sequence[str], str]:
    try:
        return value.decode().split("\n"), ""
    except UnicodeDecodeError:
        digits = value.hex()
        return [digits[at : at + _HEX_WIDTH] for at in range(0, len(digits), _HEX_WIDTH)], ", no UTF-8"


def record_document(record: ReadRecord, headers: Headers) -> dict[str, Any]:
    """Return the fields of a record as JSON has them."""
    return {
        "timestamp_ms": record.timestamp_ms,
        "key": json_value(record.key),
        "value": json_value(record.value),
        "headers": [[name, json_value(value)] for name, value in headers],
    }
