"""Makes untrusted text safe for a terminal: no character in it can move the cursor or hide the text that follows."""

from __future__ import annotations

import re
from typing import Final

#: Control characters, line and paragraph separators, characters and marks that change the writing direction, and
#: surrogates.
_UNSHOWN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    r"""The text with unsafe characters escaped as `\x1b` or `\u202e`, except for those in `keep`.

    A byte that `surrogateescape` could not decode is shown as that byte, such as `\xff`.
    """
    return _UNSHOWN.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def printable_json(text: str) -> str:
    r"""JSON text with the unsafe characters that JSON permits escaped as `\u202e`; its meaning does not change."""
    return _UNSHOWN.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
