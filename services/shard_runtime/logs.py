"""One form for log lines: structlog, JSON unless written to a terminal, with the context bound around a call.

The event of a line is a fixed name in snake case, for searches and alerts. Fields explain it to a person: `cause`, what
happens now (`effect`), and what the reader can do (`try_next`).

Lines contain names that clients chose for themselves and their groups. Control characters in these are written as
escapes in both forms: unescaped they could move a terminal's cursor or forge lines.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable
from typing import Any, Final, TextIO

import structlog

from kip932.printable import printable
from shard_runtime.record_log.store_url import masked

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

#: Leaves out the values of local variables: they may be records or tokens, which must not be logged (CM-61).
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def _without_secrets(renderer: Callable[..., str | bytes]) -> structlog.typing.Processor:
    """Wrap a renderer so that passwords in URLs are masked in all lines, exceptions included (CM-61)."""

    def rendered(logger: object, name: str, event: structlog.typing.EventDict) -> str:
        return masked(str(renderer(logger, name, event)))

    return rendered


def configure_logs(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Set up structlog for this process: `form` is json, console, or auto (console on a terminal)."""
    out = stream or sys.stderr
    console = form == "console" or (form == "auto" and out.isatty())
    renderers: list[structlog.typing.Processor] = (
        [_clean, _without_secrets(structlog.dev.ConsoleRenderer(exception_formatter=_plain_traceback))]
        if console
        else [_TRACEBACKS, _without_secrets(structlog.processors.JSONRenderer())]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=True,
    )


def _clean(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape control characters for the terminal's renderer, which prints text as it is; the JSON renderer escapes."""
    return {printable(name): printable(value) if isinstance(value, str) else value for name, value in event.items()}


def _plain_traceback(out: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    """Write a traceback without the values of variables (CM-61), which the renderer shows when rich is installed."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    out.write(printable(text.getvalue(), keep="\n"))
