"""The page of what fills the memory: the topics by their size, and what each store node has left (CT-167)."""

from __future__ import annotations

from typing import Final

from sharegroups.cli.topic_sizes import TopicSizes, store_rows, topics_by_size
from sharegroups.console.visit import Page, Visit, sliced

TOPICS_PER_PAGE: Final = 50


def page(visit: Visit) -> Page:
    """The topics whose names have a text, the largest first, and the store nodes, the fullest first."""
    sizes = TopicSizes()
    sizes.add(visit.admin.describe_log_dirs())
    wanted = visit.text("find").lower()
    found = [row for row in topics_by_size(sizes, visit.now_ms) if wanted in row.topic.lower()]
    shown, part = sliced(visit, found, TOPICS_PER_PAGE)
    values = {
        "rows": shown, "part": part, "find": visit.text("find"), "stores": store_rows(sizes), "problems": sizes.unknown
    }  # fmt: skip
    return Page("memory.html", values)
