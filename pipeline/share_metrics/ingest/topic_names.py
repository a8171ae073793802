"""Stores, in an ingest's directory, which topics had which name and when, since the metadata log forgets it (PM-39).

topics.json      every topic that was in the metadata log since the first ingest, including deleted ones
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from share_metrics.reader import Store
from share_metrics.reader.streams import TopicLife, topic_lives

_NOTE: Final = "topics.json"
#: Columns of group records that name topics (PM-17).
_NAMING: Final = ("initializing", "initialized", "deleting")
#: The columns of kind `group` that `lives_named` needs.
NEEDED: Final = ("record_type", "ts", *_NAMING)


def note_topics(store: Store, data: Path) -> None:
    """Store the topics of the store's metadata log; topics stored before are kept. The caller must own the directory.

    Raises OSError, or what `Store.call` raises.
    """
    known = noted_topics(data)
    now = merged(topic_lives(store), known)
    if now != known:
        new = (data / _NOTE).with_suffix(".new")
        new.write_text(json.dumps([life._asdict() for life in now]), encoding="utf-8")
        new.replace(data / _NOTE)


def noted_topics(data: Path) -> list[TopicLife]:
    """The stored topics, the newest first; none in the directory of an earlier build."""
    note = data / _NOTE
    return [TopicLife(**life) for life in json.loads(note.read_text(encoding="utf-8"))] if note.exists() else []


def merged(*sources: Iterable[TopicLife]) -> list[TopicLife]:
    """Each topic once, from the first of `sources` that has it; the newest first."""
    found: dict[str, TopicLife] = {}
    for lives in sources:
        for life in lives:
            found.setdefault(life.topic_id, life)
    return sorted(found.values(), key=lambda life: -life.created_ms)


def lives_named(rows: Iterable[dict[str, Any]]) -> list[TopicLife]:
    """The topics that rows of kind `group` name (PM-19), as created when they are first named, and as never deleted.

    That time is early enough: a group's record names a topic before any of its state is written.
    """
    first: dict[str, tuple[int, str]] = {}
    for row in rows:
        if row["record_type"] != "state" or row["ts"] is None:
            continue
        for topic in (topic for column in _NAMING for topic in row[column] or ()):
            seen = (_ms(row["ts"]), topic["topic_name"])
            first[topic["topic_id"]] = min(first.get(topic["topic_id"], seen), seen)
    return merged(TopicLife(topic_id, name, at_ms) for topic_id, (at_ms, name) in sorted(first.items()))


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
