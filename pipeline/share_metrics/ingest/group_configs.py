"""Stores, in an ingest's directory, which groups have configs of their own, and their dead-letter topics (PM-99).

group-configs.json      {group: topic of its dead letters, or ""}

Only the metadata log has these, and its store may be gone when a page is made.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from share_metrics.reader import Store
from share_metrics.reader.streams import group_configs

_NOTE: Final = "group-configs.json"
_LETTERS: Final = "errors.deadletterqueue.topic.name"


def note_group_configs(store: Store, data: Path) -> None:
    """Store the groups that have configs now. The caller must own the directory.

    Raises OSError, or what `Store.call` raises.
    """
    now = {group: configs.get(_LETTERS, "") for group, configs in sorted(group_configs(store).items())}
    if now != noted_group_configs(data):
        new = (data / _NOTE).with_suffix(".new")
        new.write_text(json.dumps(now), encoding="utf-8")
        new.replace(data / _NOTE)


def noted_group_configs(data: Path) -> dict[str, str]:
    """The stored groups, with the topics of their dead letters ("": none); no group if nothing was stored, as in the
    directory of an earlier build."""
    with suppress(OSError, ValueError):
        found: dict[str, str] = json.loads((data / _NOTE).read_text(encoding="utf-8"))
        return found
    return {}
