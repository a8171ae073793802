"""The log of a process of the services: structlog, in the form of all programs (`kip932.log_lines`), with the context
bound around a call.

The event of a line is a fixed name in snake case, for searches and alerts. Fields explain it to a person: `cause`, what
happens now (`effect`), and what the reader can do (`try_next`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Final, TextIO

import structlog

from kip932.log_lines import is_text, json_line, text_line
from shard_runtime.call_ids import with_call_ids
from shard_runtime.record_log.store_url import masked
from shard_runtime.topic_names import TOPIC_NAMES
from shard_runtime.tracing import tracing

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

#: Leaves out the values of local variables: they may be records or tokens, which must not be logged (CM-61).
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


#: The maximum number of lines that wait; one more ends the wait.
_WAITING_MAX: Final = 200


class _Waiting:
    """Lines below a warning that wait until a program has printed its first screen."""

    def __init__(self, out: TextIO, waits: bool) -> None:
        self._out = out
        self._lines: list[str] | None = [] if waits else None

    def takes(self, line: str) -> bool:
        """Keep the line for later if lines wait; return whether it was kept."""
        if self._lines is None:
            return False
        self._lines.append(line)
        if len(self._lines) > _WAITING_MAX:
            self.end()
        return True

    def end(self) -> None:
        """Write the lines that wait; later ones do not wait. Does nothing the second time."""
        lines, self._lines = self._lines or [], None
        for line in lines:
            self._out.write(line + "\n")
        self._out.flush()


def configure_logs(
    level: str = "info",
    form: str = "auto",
    stream: TextIO | None = None,
    *,
    service: str = "",
    waits: bool = False,
) -> Callable[[], None]:
    """Set up structlog for this process. `form`: a value of `log.format`; `service`: the process's name in each line,
    for programs that read the lines of several.

    `waits`: lines of level info are written only once the function that is returned is called, unless the level is
    debug.
    """
    out = stream or sys.stderr
    text = is_text(form, out)
    waiting = _Waiting(out, waits and level != "debug")

    def rendered(_logger: object, _name: str, event: structlog.typing.EventDict) -> str:
        """Render a line; passwords in URLs are masked in all of it, exceptions included (CM-61)."""
        if service and not text:
            event = {"service": service, **event}
        line = masked(text_line(event) if text else json_line(event))
        if event["level"] == "info" and waiting.takes(line):
            raise structlog.DropEvent
        return line

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            TOPIC_NAMES,
            with_call_ids,
            _trace_ids,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if text else _TRACEBACKS,
            rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    return waiting.end


def _trace_ids(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Add the ids of the current span, if there is one (CM-217)."""
    return {**event, **tracing.ids()} if tracing.on else event
