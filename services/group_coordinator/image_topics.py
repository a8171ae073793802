"""The node's metadata image as group shards see it (`core.views.TopicsView`)."""

from __future__ import annotations

from collections.abc import Callable

from group_coordinator.core.views import Topic
from shard_runtime.cluster.metadata import MetadataImage


class ImageTopics:
    """One version of the image. `complete`: see `TopicsView`; its value when this version was taken."""

    __slots__ = ("complete", "image")

    def __init__(self, image: MetadataImage, complete: bool) -> None:
        self.image = image
        self.complete = complete

    def by_name(self, name: str) -> Topic | None:
        """The topic of that name."""
        found = self.image.topics.get(name)
        return None if found is None else Topic(found.topic_id, found.name, found.partitions)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with that id."""
        found = self.image.by_id.get(topic_id)
        return None if found is None else Topic(found.topic_id, found.name, found.partitions)

    def is_deleted(self, topic_id: bytes) -> bool:
        """Return whether the image records that the topic was deleted."""
        return topic_id in self.image.deleted


def newest_topics(image: Callable[[], MetadataImage], sound: Callable[[], bool]) -> Callable[[], ImageTopics]:
    """Return the function with which group shards get the newest image. It returns the same object until the image
    or its completeness changes, so that memos stay valid. `sound`: returns whether the image is complete."""
    last = ImageTopics(image(), sound())
    taken = image()

    def newest() -> ImageTopics:
        nonlocal last, taken
        now, complete = image(), sound()
        if now is not taken or complete is not last.complete:
            last, taken = ImageTopics(now, complete), now
        return last

    return newest
