"""Finds the original record of a headers-only dead letter, while its topic still has it (CT-124, CT-125)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kip932.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kip932.ids import TopicPartition, topic_id_text
from sharegroups.admin import Admin
from sharegroups.admin_values import ReadRecord, RecordsRead
from sharegroups.cli.dlq.core.dead_letters import Letter, Origin, content_of
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

    def content(self, letter: Letter, record: ReadRecord, stored_ms: int) -> ReadRecord | str:
        """Return the record that a dead letter is redriven as, which is the copy or the original; or why it is not
        available. `record`: the letter's. The letter must not be garbled."""
        if not letter.is_headers_only:
            return record
        assert letter.origin is not None
        try:
            return self.find(letter.origin, letter.topic_id, stored_ms)
        except KafkaError as error:
            return f"its origin cannot be read: {error.message}"

    def fresh_content(self, letter: Letter, record: ReadRecord, stored_ms: int, *, is_claimed: bool) -> int | None:
        """Return the content of a dead letter's fresh record, whether it already exists or not; None when it is
        unknown.

        The origin of a letter without a copy is read only if a record claims to be its fresh one (`is_claimed`).
        """
        if letter.is_headers_only and not is_claimed:
            return 0
        found = self.content(letter, record, stored_ms)
        if isinstance(found, str):
            return None
        headers = found.headers if letter.is_headers_only else letter.others
        return content_of(found.key, found.value, found.timestamp_ms, headers)

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
                "letter: the topic was created again"
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
