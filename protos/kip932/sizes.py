"""Converts numbers of bytes to human-readable text, and back."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
#: What a person may write; k, M, G and T alone are powers of 1024 too, as in the store's configuration (`1gb`).
_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])(?:i?b)?|b)?", re.IGNORECASE)


def size_text(size: int) -> str:
    """Return a number of bytes in the largest unit of which there is at least one, with one decimal below 10:
    `1.4 GiB`, `812 MiB`, `0 B`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    if round(value) >= 1024 and unit < len(_UNITS) - 1:  # 1023.9 KiB is written as 1.0 MiB
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit and round(value, 1) < 10 else f"{value:.0f} {_UNITS[unit]}"


def size_bytes(text: str) -> int:
    """Return the bytes that a text like `512MiB`, `2g` or `1048576` means. Raises ValueError for any other."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size; expected bytes, or a number with KiB, MiB or GiB, as 512MiB")
    number, unit = found.groups()
    return int(float(number) * 1024 ** ("bkmgtp".index(unit.lower()) if unit else 0))
