"""Formats records for `consume`: by kafka-console-share-consumer's formatter properties (CT-31), or as JSON."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from kip932.printable import printable, printable_json
from sharegroups.cli.output import UsageFailure
from sharegroups.messages import Message

_FLAGS: Final = {
    "print.timestamp": False,
    "print.key": False,
    "print.offset": False,
    "print.delivery": False,
    "print.epoch": False,
    "print.partition": False,
    "print.headers": False,
    "print.value": True,
}
_TEXTS: Final = {"key.separator": "\t", "line.separator": "\n", "headers.separator": ",", "null.literal": "null"}


class Formatter:
    """Writes records as one line of columns. Raises UsageFailure for an unknown property."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        for name in properties:
            if name not in _FLAGS and name not in _TEXTS:
                raise UsageFailure(f"unknown formatter property {name!r}; known: {', '.join([*_FLAGS, *_TEXTS])}")
        self._on = {name: properties.get(name, str(default)).lower() == "true" for name, default in _FLAGS.items()}
        self._on_terminal = sys.stdout.isatty()
        self._text = {name: properties.get(name, default) for name, default in _TEXTS.items()}

    def line(self, message: Message) -> str:
        """Return the record with its line separator. Bytes that are not UTF-8 are decoded with `surrogateescape`.

        For a terminal, control characters are escaped, since the record is foreign data (CT-82).
        """
        columns: dict[str, Callable[[], str]] = {
            "print.timestamp": lambda: f"CreateTime:{message.timestamp()[1]}",
            "print.partition": lambda: f"Partition:{message.partition()}",
            "print.offset": lambda: f"Offset:{message.offset()}",
            "print.delivery": lambda: f"Delivery:{message.delivery_count() or 'NOT_PRESENT'}",
            "print.epoch": lambda: "Epoch:NOT_PRESENT",
            "print.headers": lambda: self._headers(message),
            "print.key": lambda: self._show(message.key()),
            "print.value": lambda: self._show(message.value()),
        }
        parts = [write() for name, write in columns.items() if self._on[name]]
        return self._text["key.separator"].join(parts) + self._text["line.separator"]

    def _headers(self, message: Message) -> str:
        headers = [f"{self._show(name)}:{self._show(value)}" for name, value in message.headers()]
        return self._text["headers.separator"].join(headers) if headers else "NO_HEADERS"

    def _show(self, value: Any) -> str:
        if value is None:
            return self._text["null.literal"]
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
        return printable(text, keep="\n\t") if self._on_terminal else text


def document(message: Message) -> str:
    """Return the record as one line of JSON. Bytes that are not UTF-8 become {"base64": …}."""
    text = json.dumps(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "delivery_count": message.delivery_count(),
            "key": json_value(message.key()),
            "value": json_value(message.value()),
            "headers": [[name, json_value(value)] for name, value in message.headers()],
        },
        ensure_ascii=False,
        default=str,
    )
    return printable_json(text)


def json_value(value: Any) -> Any:
    """Return a key or value for a JSON document: text unchanged, bytes that are not UTF-8 as {"base64": …}."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
