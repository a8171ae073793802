"""The name under which the job of a directory publishes its positions (PM-12); stored beside them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

_NOTE: Final = "reader-name"


def reader_name(data: Path) -> str:
    """The name of the job that ingests into `data`, generated at the first call. The caller must own the directory.

    Two directories never have the same name: otherwise owners of streams would not wait for the slower job.
    """
    note = data / _NOTE
    known = note.read_text(encoding="utf-8").strip() if note.exists() else ""
    if not known:
        known = f"ingest-{secrets.token_hex(4)}"
        new = note.with_suffix(".new")
        new.write_text(known, encoding="utf-8")
        new.replace(note)
    return known
