"""A name that somebody may have meant: of a config, a topic or a group."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is like this one; None when none is."""
    return next(iter(difflib.get_close_matches(name, list(known), 1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'orders'?` when a known name is like this one; else empty."""
    found = nearest(name, known)
    return "" if found is None else f" Did you mean {found!r}?"
