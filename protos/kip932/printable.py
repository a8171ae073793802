"""Text that others gave, as a terminal may be shown it: no character in it moves the cursor or hides what follows."""

from __future__ import annotations

import re
from typing import Final

#: Control characters, line and paragraph separators, what turns the direction of writing, and bytes that are no text.
_UNSHOWN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    r"""The text with such characters as `\x1b` or `\u202e`, but for those in `keep`.

    A byte that is no text, as `surrogateescape` gives it, is shown as the byte it is.
    """
    return _UNSHOWN.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def printable_json(text: str) -> str:
    r"""JSON text with the same characters escaped where JSON itself lets them stand; it means what it meant."""
    return _UNSHOWN.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
