"""What a leader needs of the share coordinators: the stored progress of all groups in some topics (SC-116)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from kip932.state_values import StoredStart

#: topic id → group id → partition → durable progress.
GroupStarts = Mapping[bytes, Mapping[str, Mapping[int, StoredStart]]]


class StartOffsets(Protocol):
    """The share coordinators."""

    async def ask(self, topic_ids: Collection[bytes]) -> GroupStarts:
        """Return every group with state for any partition of these topics, and its durable progress. Raises KafkaError
        unless every coordinator responds."""
        ...
