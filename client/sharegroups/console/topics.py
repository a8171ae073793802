"""The pages of topics, of their records, and of the nodes that lead them (CT-167)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from kip932.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin
from sharegroups.admin_values import ReadRecord, TopicDescription, UnreadableRecords
from sharegroups.console.contents import brief, content_of
from sharegroups.console.visit import Page, RefusedError, Visit, sliced

TOPICS_PER_PAGE: Final = 50
PARTITIONS_PER_PAGE: Final = 100
RECORDS_PER_PAGE: Final = 25
#: How many bytes of records one page reads, about; at least one batch.
_PAGE_BYTES: Final = 256 * 1024


class LogRow(NamedTuple):
    """A partition: its leader, the bounds of its log, and why they are not known."""

    number: int
    leader: int
    start: int | None
    end: int | None
    trouble: str


def topics_page(visit: Visit) -> Page:
    """The topics by name."""
    wanted = visit.text("find").lower()
    found = visit.admin.list_topics()
    names = sorted(name for name in found if wanted in name.lower())
    shown, part = sliced(visit, names, TOPICS_PER_PAGE)
    rows = [found[name] for name in shown]
    return Page("topics.html", {"rows": rows, "part": part, "find": visit.text("find")})


def topic_page(visit: Visit) -> Page:
    """The partitions of a topic."""
    topic = described(visit.admin, visit.required("topic"))
    shown, part = sliced(visit, topic.partitions, PARTITIONS_PER_PAGE)
    bounds = _bounds(visit.admin, [TopicPartition(topic.name, each.partition) for each in shown])
    rows = [LogRow(each.partition, each.leader, *bounds[each.partition]) for each in shown]
    return Page("topic.html", {"topic": topic, "rows": rows, "part": part})


def described(admin: Admin, name: str) -> TopicDescription:
    """Return a topic. Raises KafkaError; RefusedError with the most similar name if there is none."""
    found = admin.list_topics([name])[name]
    if isinstance(found.error, UnknownTopicOrPartitionError):
        raise RefusedError(f"Topic {name} not found.{did_you_mean(name, admin.list_topics())}", 404)
    if found.error is not None:
        raise found.error
    return found


def _bounds(admin: Admin, places: list[TopicPartition]) -> dict[int, tuple[int | None, int | None, str]]:
    starts = admin.list_offsets(dict.fromkeys(places, OFFSET_EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(places, OFFSET_LATEST))
    found: dict[int, tuple[int | None, int | None, str]] = {}
    for place in places:
        start, end = starts[place], ends[place]
        trouble = next((each.message for each in (start, end) if isinstance(each, KafkaError)), "")
        found[place.partition] = (
            start if isinstance(start, int) else None,
            end if isinstance(end, int) else None,
            trouble,
        )
    return found


def record_counts(admin: Admin, names: Sequence[str]) -> dict[str, int]:
    """Return how many offsets the logs of these topics have together; a topic that cannot be read, or only in part, is
    left out. Raises KafkaError if no node answers."""
    found = admin.list_topics(names) if names else {}
    places = {
        name: [TopicPartition(name, part.partition) for part in topic.partitions]
        for name, topic in found.items()
        if topic.error is None
    }
    asked = [place for each in places.values() for place in each]
    starts = admin.list_offsets(dict.fromkeys(asked, OFFSET_EARLIEST)) if asked else {}
    ends = admin.list_offsets(dict.fromkeys(asked, OFFSET_LATEST)) if asked else {}
    counts: dict[str, int] = {}
    for name, each in places.items():
        bounds = [(starts[place], ends[place]) for place in each]
        known = [end - start for start, end in bounds if isinstance(start, int) and isinstance(end, int)]
        if len(known) == len(bounds):
            counts[name] = sum(known)
    return counts


class RecordRow(NamedTuple):
    """A record of a list."""

    record: ReadRecord
    key: str
    value: str


def records_page(visit: Visit) -> Page:
    """Records of a partition from an offset on; no group is involved."""
    place = visit.partition()
    start, end, trouble = _bounds(visit.admin, [place])[place.partition]
    if start is None or end is None:
        described(visit.admin, place.topic)
        raise RefusedError(f"{place.topic}-{place.partition}: {trouble}", 404)
    last_page = max(start, end - RECORDS_PER_PAGE)
    offset = visit.number("offset", last_page if visit.text("newest") else start)
    if end > start and not start <= offset < end:
        raise RefusedError(f"{place.topic}-{place.partition} has no offset {offset}; it has {start} to {end - 1}.", 404)
    rows, lost, following = _read(visit.admin, place, offset, end)
    values = {
        "place": place, "start": start, "end": end, "offset": offset, "rows": rows, "lost": lost,
        "following": following if following < end else None,
        "before": max(start, offset - RECORDS_PER_PAGE) if offset > start else None,
    }  # fmt: skip
    return Page("records.html", values)


def _read(
    admin: Admin, place: TopicPartition, offset: int, end: int
) -> tuple[list[RecordRow], list[UnreadableRecords], int]:
    """Return a page of records, what cannot be decoded, and the offset that follows."""
    if offset >= end:
        return [], [], end
    try:
        read = admin.read_records(place, offset, _PAGE_BYTES)
    except OffsetOutOfRangeError as error:
        raise RefusedError(f"{error.message} Records were deleted meanwhile; reload the page.", 404) from error
    shown = read.records[:RECORDS_PER_PAGE]
    following = read.records[RECORDS_PER_PAGE].offset if len(read.records) > RECORDS_PER_PAGE else read.next_offset
    if following <= offset:
        following = end
    rows = [RecordRow(record, brief(record.key), brief(record.value)) for record in shown]
    return rows, [lost for lost in read.unreadable if lost.first_offset < following], following


def record_page(visit: Visit) -> Page:
    """One record in full."""
    place, offset = visit.partition(), visit.number("offset")
    try:
        read = visit.admin.read_records(place, offset, 1)
    except OffsetOutOfRangeError as error:
        raise RefusedError(error.message, 404) from error
    found = next((record for record in read.records if record.offset == offset), None)
    if found is None:
        raise RefusedError(
            f"{place.topic}-{place.partition} has no record at offset {offset}; the next one may be at "
            f"{read.next_offset}.",
            404,
        )
    return Page("record.html", {"place": place, "content": content_of(found, found.headers)})


def nodes_page(visit: Visit) -> Page:
    """The live nodes, what they do, and how many partitions each leads."""
    cluster = visit.admin.describe_cluster()
    topics = visit.admin.list_topics()
    led = Counter(part.leader for topic in topics.values() for part in topic.partitions)
    alive = {node.node_id for node in cluster.nodes}
    alone = [
        f"{name}-{part.partition}"
        for name, topic in sorted(topics.items())
        for part in topic.partitions
        if part.leader not in alive
    ]
    values = {"cluster": cluster, "led": led, "alone": alone[:20], "alone_count": len(alone), "topics": len(topics)}
    return Page("nodes.html", values)
