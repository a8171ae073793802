"""Decides how a backup reads: in which order, how much at once, and when the read data has a gap (CM-141). Pure.

The order makes the cut consistent: data is read before the data that it refers to. (For transactions, see
`transactions`.) Share-partition state names offsets, so it is read before the topics that hold them. It has state
epochs that its group gave, so it is read before the groups. All of them name topics, so the metadata is read last.
"""

from __future__ import annotations

from typing import Final

from kip932.ids import topic_id_text
from shard_runtime.cluster.metadata import MetadataImage
from shard_runtime.hosting.replay import predecessor
from shard_runtime.record_log.protocol import ShardId, ShardKind, StreamId

#: The kinds of shards in the order in which they are read; the metadata log comes after them.
ORDER: Final = (ShardKind.SHARE_STATE, ShardKind.GROUP, ShardKind.TOPIC)
#: How many times a stream is read from its beginning at most, when it is trimmed during the read.
ATTEMPTS_MAX: Final = 10

_PAGE_BYTES: Final = 1024 * 1024
_ENTRIES_FIRST: Final = 16
_ENTRIES_MAX: Final = 500


class PageSize:
    """The number of entries to read at once: XRANGE has no byte limit, so the largest entry so far determines it.

    It begins low and at most doubles, so that the first page of large entries does not have five hundred of them.
    """

    __slots__ = ("_largest", "count")

    def __init__(self) -> None:
        self.count = _ENTRIES_FIRST
        self._largest = 1

    def learn(self, largest: int) -> None:
        """Note the bytes of a page's largest entry."""
        self._largest = max(self._largest, largest)
        self.count = max(1, min(_PAGE_BYTES // self._largest, self.count * 2, _ENTRIES_MAX))


class Reading:
    """One stream read from `start` through `through`, both inclusive, page by page.

    `trims_matter`: an entry trimmed before it was read is missing, because the replay begins at `start`. False for a
    topic log: only records below the log start are trimmed there, and the control log, which is read later, has that
    start.

    `overtaken`: `start` is after the end that was seen, so the owner has compacted the stream since: read it again.
    """

    __slots__ = ("_held", "_trims_matter", "after", "done", "overtaken", "through")

    def __init__(self, start: StreamId, through: StreamId, *, trims_matter: bool) -> None:
        self.through = through
        self.after = predecessor(start)
        self.done = start > through
        self.overtaken = trims_matter and start > through
        self._held = start
        self._trims_matter = trims_matter

    def page(self, first: StreamId, ids: tuple[StreamId, StreamId] | None) -> bool:
        """Note a page. `first`: the oldest id in the stream right after the page was read. `ids`: the page's first and
        last id.

        Returns whether nothing is missing before or in this page. When something is missing, read the stream again.
        """
        if self._trims_matter and first > self._held:
            return False
        if ids is None:
            self.done = True
            return not self._trims_matter or self.after >= self.through
        self.after = self._held = ids[1]
        self.done = self.after >= self.through
        return True


def topic_shards(image: MetadataImage) -> list[ShardId]:
    """The partitions of all topics, in order."""
    return [
        ShardId(ShardKind.TOPIC, f"{topic_id_text(topic.topic_id)}:{number}")
        for topic in image.topics.values()
        for number in range(topic.partitions)
    ]


def deleted_meanwhile(listed: MetadataImage, last: MetadataImage) -> list[str]:
    """Return the ids, as text, of topics that were listed and that the metadata of the backup no longer has: their
    records are left out on restore."""
    return sorted(topic_id_text(topic_id) for topic_id in listed.by_id if topic_id not in last.by_id)


def pause_s(done_bytes: int, elapsed_s: float, bytes_per_s: float | None) -> float:
    """Return how long to wait before the next page, s, so that at most `bytes_per_s` are read; None means no limit."""
    return 0.0 if bytes_per_s is None else max(0.0, done_bytes / bytes_per_s - elapsed_s)
