"""Reads a settings file: TOML, in which `store.url = "…"` and `url = "…"` under `[store]` are the same setting."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

#: The environment variable that names the file when no option does.
FILE_VARIABLE: Final = "SHAREGROUPS_CONFIG"


def settings_in(path: Path) -> dict[str, str]:
    """Return the file's values as text, by dotted name. Raises ValueError for a file that cannot be read."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"settings file {path} is not TOML: {error}") from error
    return {name: _text(value) for name, value in _flat(tree, "")}


def _flat(tree: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(_text, value)) if isinstance(value, list) else str(value)
