"""How many topics, partitions or other items a request names (KL-19)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def items_named(request: Any) -> int:
    """Return how many items a request names: those of its lists, or those of the lists in these, whichever are more.

    Lists below those, as of acknowledged ranges, have bounds of their own.
    """
    outer = _listed([request])
    return max(len(outer), len(_listed(outer)))


def _listed(structs: Iterable[Any]) -> list[Any]:
    """Return the items of all lists of these structs; numbers and strings have none."""
    found: list[Any] = []
    for struct in structs:
        for name in getattr(struct, "__slots__", ()):
            value = getattr(struct, name)
            if isinstance(value, list):
                found += value
    return found
