"""Finds in the leaders' logs, as an operator would, which share-partitions they dropped, and when."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from partition_leader.share_partition.host import DROPPED_LINE
from tests.chaos.history import Dropped, now_ms


def drops(logs: Mapping[str, str], group: str, topics: Mapping[str, str]) -> Iterator[Dropped]:
    """Yield the drops of a group's share-partitions in these topics; logs name a topic by its id."""
    boot_ms = now_ms() - time.time() * 1000
    for node, said in logs.items():
        for line in said.splitlines():
            if DROPPED_LINE not in line:
                continue
            entry: dict[str, Any] = json.loads(line)
            if entry["event"] == DROPPED_LINE and entry["group"] == group and entry["topic_id"] in topics:
                at = datetime.fromisoformat(entry["timestamp"]).timestamp() * 1000
                yield Dropped(node, topics[entry["topic_id"]], entry["partition"], entry["reason"], int(at + boot_ms))
