"""One shape for log lines: structlog, JSON when not written to a terminal, with the context bound around a call."""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

import structlog

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

#: Without the values of local variables: they hold records, tokens and whatever else a log must not (CM-61).
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure_logs(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Set up structlog for this process: `form` is json, console, or auto (console on a terminal)."""
    out = stream or sys.stderr
    console = form == "console" or (form == "auto" and out.isatty())
    renderers: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer()] if console else [_TRACEBACKS, structlog.processors.JSONRenderer()]
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
