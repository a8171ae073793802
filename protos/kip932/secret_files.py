"""Finds files with a private key or a password that every user of the machine can read (CM-204)."""

from __future__ import annotations

import stat
from pathlib import Path


def readable_by_all(path: Path | str) -> str:
    """Return a sentence about a file that every user of this machine can read; "" if they cannot, because of its mode
    or of a folder above it, or if that cannot be found out."""
    try:
        found = Path(path).resolve(strict=True)
        mode = found.stat().st_mode
        open_to_all = mode & stat.S_IROTH and all(folder.stat().st_mode & stat.S_IXOTH for folder in found.parents)
    except (OSError, RuntimeError):
        return ""
    if not open_to_all:
        return ""
    return f"every user of this machine can read {path} (mode {stat.S_IMODE(mode):04o}); expected 0600 or 0640"
