"""Finds the name that a user may have meant: of a setting, a topic, a group, a role or a command."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

#: The time to compare grows with the square of the length, so a longer name gets no suggestion.
_NAME_MAX: Final = 200


def nearest_name(name: str, known: Iterable[str], similarity_min: float = 0.6) -> str | None:
    """Return the known name most similar to this one; None when none is similar (0 to 1: 1 is the same name)."""
    if len(name) > _NAME_MAX:
        return None
    return next(iter(difflib.get_close_matches(name, list(known), 1, similarity_min)), None)


def did_you_mean(name: str, known: Iterable[str], similarity_min: float = 0.6) -> str:
    """Return ` Did you mean 'orders'?` with the most similar known name, to follow a sentence; empty when none is
    similar."""
    found = nearest_name(name, known, similarity_min)
    return "" if found is None else f" Did you mean {found!r}?"
