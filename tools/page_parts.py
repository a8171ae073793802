"""Replaces the generated parts of a page that is otherwise written by hand. Each is between two comments that name
it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path


def page_with(path: Path, parts: Mapping[str, Callable[[], str]]) -> str:
    """Return the page with its parts regenerated. Raises ValueError if it lacks one."""
    page = path.read_text(encoding="utf-8")
    for name, make in parts.items():
        part = f"\n{make()}\n"
        begin, end = f"<!-- made by `make docs`: {name} -->\n", f"<!-- end of {name} -->\n"
        found = re.compile(f"(?<={re.escape(begin)}).*(?={re.escape(end)})", re.DOTALL)
        page, count = found.subn(part.replace("\\", r"\\"), page)
        if count != 1:
            raise ValueError(f"{path.name} has {count} parts {name!r}; expected one, between {begin!r} and {end!r}")
    return page
