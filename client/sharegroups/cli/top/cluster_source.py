"""Asks the cluster for what the screens of `sharegroups top` show (CT-157, CT-158)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kip932.errors import KafkaError, OffsetOutOfRangeError
from kip932.ids import EXPLAINED_OFFSETS_MAX, OFFSET_LATEST, PROGRESS_ROWS_MAX, TopicPartition
from sharegroups.admin_values import (
    ConfigResource,
    ListGroupsResult,
    RecordsExplained,
    ShareGroupDescription,
)
from sharegroups.aio.admin import Admin
from sharegroups.cli.dlq.core.letter_tally import Tally
from sharegroups.cli.dlq.reading import TOPIC_NAME, Bounds, found_of
from sharegroups.cli.dlq.rows import reason_line
from sharegroups.cli.dlq.times import time_text
from sharegroups.cli.groups.explain import offsets_to_ask, unfinished_of
from sharegroups.cli.top.views import Failures, GroupView, Memory, Overview, RecordView
from sharegroups.cli.topic_sizes import TopicSizes, store_rows, topics_by_size
from sharegroups.insight.rows import rows_of
from sharegroups.share_progress import ProgressPage, ShareProgress

#: How much longer than the leaders the coordinators may take, in seconds; then the figures are shown without members.
LISTED_S: Final = 1.0
#: At most this many dead letters are read for one screen, and this many partitions explained.
LETTERS_MAX: Final = 10_000
STRIPS_MAX: Final = 12
_DAY_MS: Final = 86_400_000


class ClusterSource:
    """Asks by an admin client. `wall_ms`: the time in ms since 1970."""

    def __init__(self, admin: Admin, wall_ms: Callable[[], float] = lambda: time.time() * 1_000) -> None:
        self._admin = admin
        self._wall_ms = wall_ms
        self._starts: dict[tuple[str, TopicPartition], int] = {}

    async def overview(self) -> Overview:
        """Ask every leader and every coordinator once. Coordinators that answer late or not at all leave the members
        unknown."""
        listing = asyncio.ensure_future(self._admin.list_groups(None, ["share"]))
        try:
            page = await self._admin.list_share_progress(limit=PROGRESS_ROWS_MAX)
            await asyncio.wait({listing}, timeout=LISTED_S)
        finally:
            if not listing.done():
                listing.cancel()
            outcome = (await asyncio.gather(listing, return_exceptions=True))[0]
        listed, problems = None, _silent(page)
        if isinstance(outcome, ListGroupsResult):
            listed = outcome
            problems += [f"The list of groups is not complete. {error.message}" for error in outcome.errors()]
        elif isinstance(outcome, KafkaError):
            problems.append(f"The groups' members are not known: {outcome.message}")
        elif isinstance(outcome, asyncio.CancelledError):
            problems.append("The groups' members are not known: their coordinators have not answered yet.")
        else:
            raise outcome
        return Overview(rows_of(page, listed), max(page.total - len(page.rows), 0), problems)

    async def group(self, group: str, partitions: Sequence[TopicPartition]) -> GroupView:
        """Describe the group, and explain the first records of at most STRIPS_MAX of its partitions."""
        wanted = partitions[:STRIPS_MAX]
        described, page, *answers = await asyncio.gather(
            self._admin.describe_share_groups([group]),
            self._admin.list_share_progress([group], by_partition=True, limit=PROGRESS_ROWS_MAX),
            *(self._explained(group, partition) for partition in wanted),
            return_exceptions=True,
        )
        problems: list[str] = []
        description, found = None, ProgressPage((), 0, ())
        if isinstance(described, Mapping):
            each = described[group]
            description = each if isinstance(each, ShareGroupDescription) else None
            problems += [each.message] if isinstance(each, KafkaError) else []
        if isinstance(page, ProgressPage):
            found = page
            problems += _silent(page)
        for outcome in (described, page, *answers):
            if isinstance(outcome, KafkaError):
                problems.append(outcome.message)
            elif isinstance(outcome, BaseException):
                raise outcome
        if description is None and isinstance(page, KafkaError):
            raise page
        explained = {
            partition: answer
            for partition, answer in zip(wanted, answers, strict=True)
            if isinstance(answer, RecordsExplained)
        }
        return GroupView(group, description, _progress(found, description), explained, list(dict.fromkeys(problems)))

    async def _explained(self, group: str, partition: TopicPartition) -> RecordsExplained:
        """Return what the leader knows of the first records from the group's start offset on. They are asked for from
        the offset that was the start the last time, so mostly by one request."""
        key = (group, partition)
        first = self._starts.get(key, 0)
        while True:
            answer = await self._admin.explain_record(group, partition, first, first + EXPLAINED_OFFSETS_MAX - 1)
            start = max(answer.start_offset or 0, answer.log_start_offset)
            if len(self._starts) >= PROGRESS_ROWS_MAX:
                self._starts.clear()
            self._starts[key] = start
            if first <= start < first + EXPLAINED_OFFSETS_MAX // 2 or start == first:
                return answer
            first = start

    async def record(self, group: str, partition: TopicPartition, offset: int | None) -> RecordView:
        """Explain a record, and read it."""
        if offset is None:
            first, last = offsets_to_ask(await self._admin.explain_record(group, partition, 0, 0))
            answer = await self._admin.explain_record(group, partition, first, last)
            left = unfinished_of(answer.records)
            offset = left[0].first_offset if left else first
        answer = await self._admin.explain_record(group, partition, offset, offset)
        try:
            read = await self._admin.read_records(partition, offset, 1)
        except OffsetOutOfRangeError:
            return RecordView(answer, offset, None, "The log has no record at this offset.")
        except KafkaError as error:
            return RecordView(answer, offset, None, f"It cannot be read: {error.name}: {error.message}")
        for record in read.records:
            if record.offset == offset:
                return RecordView(answer, offset, record)
        lost = [str(each.error) for each in read.unreadable if each.first_offset <= offset <= each.last_offset]
        return RecordView(answer, offset, None, lost[0] if lost else "The log has no record at this offset.")

    async def failures(self, group: str) -> Failures:
        """Read the group's dead letters of the last 24 hours, at most LETTERS_MAX of its topic's."""
        resource = ConfigResource.group(group)
        configs = (await self._admin.describe_configs([resource]))[resource]
        if isinstance(configs, KafkaError):
            raise configs
        entry = configs.get(TOPIC_NAME)
        if entry is None or not entry.value:
            return Failures(group, "", (), 0, False, f"It has no dead-letter topic: its config {TOPIC_NAME} is empty.")
        described = (await self._admin.list_topics([entry.value]))[entry.value]
        if described.error is not None:
            raise described.error
        places = [TopicPartition(entry.value, part.partition) for part in described.partitions]
        since_ms = int(self._wall_ms()) - _DAY_MS
        firsts = await self._admin.list_offsets(dict.fromkeys(places, since_ms))
        ends = await self._admin.list_offsets(dict.fromkeys(places, OFFSET_LATEST))
        tally, left, is_cut = Tally(), LETTERS_MAX, False
        for place in places:
            first, end = firsts[place], ends[place]
            for bound in (first, end):
                if isinstance(bound, KafkaError):
                    raise bound
            assert isinstance(first, int)
            assert isinstance(end, int)
            if first >= 0:
                is_cut |= end - first > left
                chosen = Bounds(first, max(first, min(end, first + left)))
                left -= chosen.end - chosen.start
                await self._tally(tally, group, place, chosen)
        rows = [(row.letters, cause, reason, time_text(row.last_ms)) for (cause, reason), row in tally.rows()]
        if tally.others.letters:
            rows.append((tally.others.letters, "-", "(others)", time_text(tally.others.last_ms)))
        return Failures(group, entry.value, rows, tally.letters, is_cut)

    async def memory(self) -> Memory:
        """Ask every leader for the sizes of its logs and for its store."""
        sizes = TopicSizes()
        sizes.add(await self._admin.describe_log_dirs())
        return Memory(store_rows(sizes), topics_by_size(sizes, int(self._wall_ms())), sizes.unknown)

    async def _tally(self, tally: Tally, group: str, place: TopicPartition, bounds: Bounds) -> None:
        """Count the group's dead letters within these offsets."""
        first, end = bounds
        while first < end:
            read = await self._admin.read_records(place, first)
            for record in read.records:
                letter = found_of(record).letter if record.offset < end else None
                if letter is not None and letter.group == group:
                    tally.add((letter.cause or "-", reason_line(letter)), found_of(record).stored_ms)
            if read.next_offset <= first:
                return
            first = read.next_offset


def _silent(page: ProgressPage) -> list[str]:
    return [f"Node {address} did not answer; sums without its partitions are marked ≥." for address in page.missing]


def _progress(
    page: ProgressPage, description: ShareGroupDescription | None
) -> dict[TopicPartition, ShareProgress | None]:
    counted: dict[TopicPartition, ShareProgress | None] = {
        TopicPartition(row.topic, row.partition): row for row in page.rows
    }
    for member in description.members if description else ():
        for topic, numbers in member.assignment.items():
            for number in numbers:
                counted.setdefault(TopicPartition(topic, number), None)
    return dict(sorted(counted.items()))
