"""Names of topics that outlive the metadata log: noted, merged, and taken from group records."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from share_metrics.ingest.topic_names import lives_named, merged, note_topics, noted_topics
from share_metrics.reader.streams import TopicLife
from tests.unit.share_metrics.reader.memory_store import MemoryStore

FIRST, SECOND = TopicLife("a", "orders", 100, 200), TopicLife("b", "orders", 300)


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def state(ms: int | None, *topics: tuple[str, str], column: str = "initialized") -> dict[str, Any]:
    reported = [{"topic_id": topic_id, "topic_name": name} for topic_id, name in topics]
    empty = dict.fromkeys(("initializing", "initialized", "deleting"))
    return {"record_type": "state", "ts": None if ms is None else at(ms), **empty, column: reported}


@pytest.mark.rule("PM-39")
def test_a_topic_stays_noted_when_the_metadata_log_has_forgotten_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = [FIRST._replace(deleted_ms=None)]
    monkeypatch.setattr("share_metrics.ingest.topic_names.topic_lives", lambda store: log)
    store: Any = MemoryStore
    assert noted_topics(tmp_path) == []
    note_topics(store, tmp_path)
    for reported in ([SECOND, FIRST], [SECOND], []):
        log[:] = reported
        note_topics(store, tmp_path)
        assert noted_topics(tmp_path) == [SECOND, FIRST]
    assert [path.name for path in tmp_path.iterdir()] == ["topics.json"]


def test_what_is_reported_first_of_a_topic_counts_and_the_newest_topic_is_first() -> None:
    assert merged([FIRST], [SECOND, FIRST._replace(deleted_ms=None)]) == [SECOND, FIRST]


@pytest.mark.rule("PM-19", "PM-39")
def test_groups_show_names_from_when_they_are_reported_first() -> None:
    rows = [
        state(500, ("b", "orders"), ("a", "orders")),
        state(400, ("a", "orders"), column="deleting"),
        state(450, ("c", "bills"), column="initializing"),
        state(None, ("d", "lost")),
        state(1, ("e", "no")) | {"record_type": "group"},
    ]
    assert lives_named(rows) == [
        TopicLife("b", "orders", 500), TopicLife("c", "bills", 450), TopicLife("a", "orders", 400)
    ]  # fmt: skip
