"""The form of log lines of every program: JSON in files and pipes, plain text on a terminal, with one order of fields.

The time comes first, then the level, the event, where it happened, and all other fields by name. No character of a
field can move a terminal's cursor or forge a line. The services use it with structlog, clients and the pipeline with
the standard library's `logging`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from kip932.printable import printable, printable_json

#: The values of the setting `log.format`: JSON, text (by two names), or text on a terminal and JSON elsewhere.
FORMS: Final = ("auto", "json", "text", "console")
JSON: Final = "json"
_TEXT: Final = frozenset({"text", "console"})
#: The variable that has this setting, for the services and for a worker.
FORM_VARIABLE: Final = "SHAREGROUPS_LOG_FORMAT"
#: The fields that come first, in this order, where a line has them.
FIRST: Final = (
    "timestamp", "level", "event", "service", "group", "topic", "partition", "offset", "delivery_count",
)  # fmt: skip
#: The field of a traceback, which comes last.
_TRACEBACK: Final = "exception"
_PLACES: Final = {name: place for place, name in enumerate(FIRST)}
#: Text that needs no quotes as the value of a field.
_BARE: Final = re.compile(r"[\w.,:;/@%+\-{}\[\]<>()*?!#$&|~^]+")


def is_text(form: str, stream: TextIO) -> bool:
    """Return whether lines on this stream are plain text, by a value of `log.format`."""
    return form in _TEXT or (form == "auto" and stream.isatty())


def timestamp(seconds: float) -> str:
    """Return a time since 1970 as it is logged: UTC, to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def ordered(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a line in the order of all lines."""

    def place(name: str) -> tuple[int, str]:
        return (len(FIRST) + 1, "") if name == _TRACEBACK else (_PLACES.get(name, len(FIRST)), name)

    return {name: fields[name] for name in sorted(fields, key=place)}


def json_line(fields: Mapping[str, Any]) -> str:
    """Return a line of JSON. A value that JSON cannot hold is given as its representation."""
    return printable_json(json.dumps(ordered(fields), default=repr, ensure_ascii=False))


def text_line(fields: Mapping[str, Any]) -> str:
    """Return a line of text: time, level, event, and each field as name=value; a traceback follows on lines of its
    own."""
    rest = ordered(fields)
    trace = str(rest.pop(_TRACEBACK, ""))
    words = [str(rest.pop("timestamp", "")), str(rest.pop("level", "")).upper(), str(rest.pop("event", ""))]
    words += [f"{name}={_shown(value)}" for name, value in rest.items()]
    line = " ".join(printable(word) for word in words if word)
    return line + "\n" + printable(trace, keep="\n\t") if trace else line


def _shown(value: Any) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value):
        return value
    return repr(value)


class LineFormatter(logging.Formatter):
    """Formats the records of `logging`, as `text` or as JSON with the name of the `service`.

    The event is the first line of the message; what follows it is a traceback. JSON also has the mapping that a record
    has as `fields`, which are in the text of the message already.
    """

    def __init__(self, *, text: bool, service: str) -> None:
        super().__init__()
        self._text = text
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        event, _, trace = super().format(record).partition("\n")
        line: dict[str, Any] = {"timestamp": timestamp(record.created), "level": record.levelname.lower()}
        line["event"] = event
        if not self._text:
            line |= {"service": self._service, "logger": record.name, **getattr(record, "fields", {})}
        if trace:
            line[_TRACEBACK] = trace
        return text_line(line) if self._text else json_line(line)
