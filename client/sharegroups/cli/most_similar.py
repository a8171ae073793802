"""Finds the name that a user may have meant: of a config, a topic or a group."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def most_similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to this one; None when none is similar."""
    return next(iter(difflib.get_close_matches(name, list(known), 1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'orders'?` with the most similar known name; empty when none is similar."""
    found = most_similar(name, known)
    return "" if found is None else f" Did you mean {found!r}?"
