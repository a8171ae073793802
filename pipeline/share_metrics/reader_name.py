"""The name under which the job of a directory says how far it is (PM-12). It lies by the positions it belongs to."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

_NOTE: Final = "reader-name"


def reader_name(data: Path) -> str:
    """The name of the job that ingests into `data`, made when it is first asked for; the caller owns the directory.

    No two directories have one name, or the slower of their jobs would not be waited for.
    """
    note = data / _NOTE
    known = note.read_text(encoding="utf-8").strip() if note.exists() else ""
    if not known:
        known = f"ingest-{secrets.token_hex(4)}"
        new = note.with_suffix(".new")
        new.write_text(known, encoding="utf-8")
        new.replace(note)
    return known
