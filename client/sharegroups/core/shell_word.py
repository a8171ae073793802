"""Quotes a name as one word of a command that a message recommends. Pure."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")


def quote(name: str) -> str:
    """Return the name as one word for a POSIX shell: unchanged when it is plain, else in single quotes."""
    return name if _PLAIN.fullmatch(name) else "'" + name.replace("'", "'\"'\"'") + "'"
