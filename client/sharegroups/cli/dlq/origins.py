"""Finds the original record of a headers-only dead letter, while its topic still has it (CT-124, CT-125)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kip932.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kip932.ids import TopicPartition, topic_id_text
from sharegroups.admin import Admin
from sharegroups.admin_values import ReadRecord, RecordsRead
from sharegroups.cli.dlq.core.dead_letters import Origin
from sharegroups.cli.dlq.reading import SKEW_MS

#: How many pages of origin topics are cached. Dead letters are mostly in the order of their origins, with partitions
#: interleaved.
_PAGES_MAX: Final = 4


class Origins:
    """Finds records by partition and offset. It reads whole pages and caches a few."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._pages: OrderedDict[TopicPartition, tuple[int, RecordsRead]] = OrderedDict()
        self._topic = ("", "")  # the topic of the last query, and its id

    def find(self, origin: Origin, topic_id: str, stored_ms: int) -> ReadRecord | str:
        """Return the record, or why it is missing. `topic_id`: the topic id in the dead letter, or ""; `stored_ms`:
        when the letter was stored. Raises KafkaError when the partition cannot be read now."""
        if topic_id and (now_id := self._topic_id(origin.topic)) not in ("", topic_id):
            return (
                f"{origin.topic} was deleted and created again: the letter is about the topic with id {topic_id}, and "
                f"the one of that name has id {now_id}"
            )
        return self._found(origin, stored_ms)

    def _found(self, origin: Origin, stored_ms: int) -> ReadRecord | str:
        place = TopicPartition(origin.topic, origin.partition)
        try:
            read = self._page(place, origin.offset)
        except UnknownTopicOrPartitionError:
            return f"{place.topic} has no partition {place.partition}, or there is no such topic any more"
        except OffsetOutOfRangeError:
            return f"{place.topic}-{place.partition} does not have offset {origin.offset} any more"
        for lost in read.unreadable:
            if lost.first_offset <= origin.offset <= lost.last_offset:
                return str(lost.error)
        found = next((record for record in read.records if record.offset == origin.offset), None)
        if found is None:
            return f"{place.topic}-{place.partition} has no record at offset {origin.offset}"
        if found.append_time_ms is not None and found.append_time_ms >= stored_ms + SKEW_MS:
            return (
                f"{place.topic}-{place.partition} has another record at offset {origin.offset}, newer than the "
                "letter: the topic was made again"
            )
        return found

    def _topic_id(self, name: str) -> str:
        """Return the id of the topic that has this name now; "" if there is none."""
        if self._topic[0] != name:
            found = self._admin.list_topics([name])[name]
            self._topic = (name, "" if found.error is not None else topic_id_text(found.topic_id))
        return self._topic[1]

    def _page(self, place: TopicPartition, offset: int) -> RecordsRead:
        held = self._pages.get(place)
        if held is not None and held[0] <= offset < held[1].next_offset:
            self._pages.move_to_end(place)
            return held[1]
        read = self._admin.read_records(place, offset)
        self._pages[place] = (offset, read)
        self._pages.move_to_end(place)
        if len(self._pages) > _PAGES_MAX:
            self._pages.popitem(last=False)
        return read


def origin_of(admin: Admin, origin: Origin, topic_id: str, stored_ms: int) -> ReadRecord | str:
    """Find a single record, like `Origins.find`. When it cannot be read, return the error's message."""
    try:
        return Origins(admin).find(origin, topic_id, stored_ms)
    except KafkaError as error:
        return error.message
