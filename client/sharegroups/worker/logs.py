"""Sets up logging for `Worker.run()` if the program has not, and drops a repeated warning (CL-125, CL-128, CL-181)."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kip932.log_lines import FORM_VARIABLE, FORMS, LineFormatter, is_text
from sharegroups.connection.core.stall_diagnosis import UNKNOWN, Trouble
from sharegroups.errors import ConfigError

#: The name of a worker in its lines of JSON.
SERVICE: Final = "worker"
#: How long repeats of a warning are dropped, in seconds. The consumer first checks its topics 2 s after its start,
#: which takes up to 2 s.
_FIRST_CHECK_S: Final = 10.0
_WATCH: Final = logging.getLogger("sharegroups.consuming.stall_watch")


def log_form() -> str:
    """Return the form of the log that the environment chooses. Raises ConfigError."""
    form = os.environ.get(FORM_VARIABLE) or FORMS[0]
    if form not in FORMS:
        raise ConfigError(f"{FORM_VARIABLE} is {form!r}; expected one of {', '.join(FORMS)}")
    return form


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Inside the block, log to standard error, unless the program has set up logging. Raises ConfigError."""
    ours = logging.getLogger("sharegroups")
    if logging.getLogger("sharegroups.worker").hasHandlers():
        yield
        return
    root, level = logging.getLogger(), ours.level
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(text=is_text(log_form(), sys.stderr), service=SERVICE))
    root.addHandler(handler)
    if level == logging.NOTSET:
        ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(level)


@contextmanager
def missing_topics_logged_once(topics: frozenset[str], clock_s: Callable[[], float]) -> Iterator[None]:
    """Inside the block, drop the consumer's first warning that `topics` do not exist, but not its later ones."""
    until_s = clock_s() + _FIRST_CHECK_S

    def is_new(record: logging.LogRecord) -> bool:
        trouble = getattr(record, "trouble", None)
        known = isinstance(trouble, Trouble) and trouble.kind == UNKNOWN and topics == frozenset(trouble.topics)
        return not known or clock_s() > until_s

    _WATCH.addFilter(is_new)
    try:
        yield
    finally:
        _WATCH.removeFilter(is_new)
