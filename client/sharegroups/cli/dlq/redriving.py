"""The loop of `dlq redrive`: page by page, fresh records are produced and confirmed before the next page (CT-126)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kip932.errors import KafkaError, RetriableError
from sharegroups.admin import Admin
from sharegroups.admin_values import ReadRecord
from sharegroups.cli.dlq.core.dead_letters import fresh_headers, letter_content
from sharegroups.cli.dlq.core.redrive import Fate, Redrive, SettledPrefix
from sharegroups.cli.dlq.origins import Origins
from sharegroups.cli.dlq.reading import Found, Page, Reading, delete_before
from sharegroups.cli.dlq.redrive_report import Report
from sharegroups.cli.dlq.redriven_before import Targets, target_of
from sharegroups.cli.interrupts import GRACE_S, LEAVE_S, Ended
from sharegroups.cli.output import print_stderr
from sharegroups.producer import Producer
from sharegroups.producing.delivery_reports import OnDelivery
from sharegroups.reports import DeliveryReport

#: The interval at which the wait for confirmations checks for a signal, in seconds.
_CHECK_S: Final = 0.2
#: A batch stores differences between timestamps, which must fit into 64 bits.
_TIMESTAMP_MAX: Final = 2**62


@dataclass(frozen=True, slots=True)
class RedriveTask:
    """The task of a run. `is_chosen`: whether a dead letter of a partition is to be redriven. `limit`: None for no
    limit.

    `producer`: None in a dry run.
    """

    is_chosen: Callable[[int, Found], bool]
    limit: int | None
    purge: bool
    producer: Producer | None


@dataclass(slots=True)
class _Item:
    """A record of the current page. `content`: from `letter_content`; `fresh`: the content of its fresh record, None
    when unknown. `is_open`: whether it was given to the producer and has no outcome yet."""

    found: Found
    fate: Fate
    content: int = 0
    fresh: int | None = None
    reason: str = ""
    is_open: bool = False


class Redriving:
    """One run over a queue. `open`: how many dead letters the producer has that are neither confirmed nor failed.

    `is_purged`: False once a deletion has failed.
    """

    def __init__(self, admin: Admin, reading: Reading, targets: Targets, wish: RedriveTask, report: Report) -> None:
        self.open = 0
        self.is_purged = True
        self._admin, self._reading, self._targets, self._task, self._report = admin, reading, targets, wish, report
        self._decisions = Redrive(targets.before)
        self._origins = Origins(admin)
        self._prefixes: dict[int, SettledPrefix] = {}
        self._deleted: dict[int, int] = {}
        self._left = wish.limit
        self._stopping = self._closed = self._said = False

    def run(self) -> None:
        """Redrive until all dead letters are done, the limit is reached, or a signal is received. Raises KafkaError."""
        producer = self._task.producer
        try:
            for page in self._reading.pages():
                self._take(page)
                if self._is_over:
                    break
        finally:
            if producer is not None:
                self._closed = True
                producer.close(0)

    def stop(self) -> None:
        """Stop sending; `run` then returns after a bounded wait for the confirmations of what was sent."""
        self._stopping = True

    def leave(self, ended: Ended) -> None:
        """Stop sending, and wait a bounded time for the confirmations of what was sent (CT-80)."""
        self.stop()
        if not ended(GRACE_S + LEAVE_S):
            self.print_totals()

    def print_totals(self) -> None:
        """Print the totals; a second call does nothing."""
        if not self._said:
            self._said = True
            starts = self._reading.queue.partitions
            wanted = self._task.purge and self._task.producer is None
            ends = {number: prefix.end for number, prefix in self._prefixes.items() if wanted}
            self._report.end(self.open, {number: end for number, end in ends.items() if end > starts[number].start})

    @property
    def _is_over(self) -> bool:
        return self._stopping or self._left == 0

    def _take(self, page: Page) -> None:
        items: list[_Item] = []
        for found in page.found:
            if self._is_over:
                break
            items.append(self._begin(page.partition, found))
        self._confirm()
        self._end(page, items)

    # One dead letter.

    def _begin(self, partition: int, found: Found) -> _Item:
        chosen = found.letter is not None and self._task.is_chosen(partition, found)
        letter, record = found.letter, found.record
        content, fresh = 0, None
        if letter is not None and chosen and not letter.is_garbled:
            content = letter_content(letter, record.key, record.value, record.timestamp_ms)
            fresh = self._origins.fresh_content(
                letter, record, found.stored_ms, is_claimed=self._decisions.is_claimed(letter)
            )
        fate = self._decisions.decide(letter, chosen, content, fresh)
        item = _Item(found, fate, content, fresh)
        if item.fate is Fate.FAILED:
            item.reason = "its headers are garbled: sharegroups dlq show names them"
        elif item.fate is Fate.SENT:
            self._send(partition, item)
        return item

    def _send(self, partition: int, item: _Item) -> None:
        letter = item.found.letter
        assert letter is not None
        target = target_of(letter)
        content = self._targets.faults.get(target) or self._origins.content(
            letter, item.found.record, item.found.stored_ms
        )
        if isinstance(content, ReadRecord) and abs(content.timestamp_ms) >= _TIMESTAMP_MAX:
            content = f"its timestamp {content.timestamp_ms} is not a time that a record may have"
        if isinstance(content, str):
            self._fail(item, content)
            return
        if self._left is not None:
            self._left -= 1
        producer = self._task.producer
        if producer is None:
            return
        headers = content.headers if letter.is_headers_only else letter.others
        place = self._reading.queue.place(partition, item.found.record.offset)
        on_delivery: OnDelivery = partial(self._delivered, item)
        if producer.tracing.on:
            on_delivery = producer.tracing.redriven(target.topic, headers, on_delivery)
        try:
            producer.produce(
                target.topic,
                content.value,
                content.key,
                target.partition,
                on_delivery,
                headers=fresh_headers(headers, letter, place),
                timestamp=content.timestamp_ms,
            )
        except (KafkaError, ValueError) as error:
            self._refused(item, error)
        else:
            item.is_open = True
            self.open += 1

    def _delivered(self, item: _Item, error: KafkaError | None, _report: DeliveryReport) -> None:
        if self._closed:
            return  # the producer was closed, so the outcome is unknown
        item.is_open = False
        self.open -= 1
        if error is not None:
            self._refused(item, error)

    def _refused(self, item: _Item, error: KafkaError | ValueError) -> None:
        assert item.found.letter is not None
        target = target_of(item.found.letter)
        if isinstance(error, RetriableError):  # the producer has retried it until its time-out
            place = f"{target.topic}-{target.partition}"
            self._targets.faults.setdefault(target, f"{place} took nothing before, so this was not tried")
        self._fail(item, f"{error.name}: {error.message}" if isinstance(error, KafkaError) else str(error))

    def _fail(self, item: _Item, reason: str) -> None:
        assert item.found.letter is not None
        item.fate, item.reason = Fate.FAILED, reason
        self._decisions.failed(item.found.letter, item.content)

    # One page.

    def _confirm(self) -> None:
        """Wait until every dead letter has an outcome; after a signal, for a bounded time."""
        producer = self._task.producer
        if producer is None:
            return
        while not self._stopping and producer.flush(_CHECK_S):
            pass
        if self._stopping:
            producer.flush(LEAVE_S)

    def _end(self, page: Page, items: Sequence[_Item]) -> None:
        queue, number = self._reading.queue, page.partition
        prefix = self._prefixes.setdefault(number, SettledPrefix(queue.partitions[number].start))
        for item in items:
            offset, letter = item.found.record.offset, item.found.letter
            if page.unreadable < offset:
                prefix.meet(page.unreadable, is_settled=False)
            settled = self._decisions.is_settled(letter, item.fate, item.content, item.fresh)
            prefix.meet(offset, not item.is_open and settled)
            if item.is_open or letter is None or item.fate is Fate.LEFT:
                continue
            if item.fate is Fate.FAILED:
                self._report.fail(f"{queue.topic}-{number} offset {offset}", letter, item.reason)
            else:
                self._report.count(letter, item.fate)
        if len(items) < len(page.found):
            prefix.meet(page.found[len(items)].record.offset, is_settled=False)
        if page.unreadable < page.next_offset:
            prefix.meet(page.unreadable, is_settled=False)
        prefix.reach(page.next_offset)
        last = items[-1].found.record.offset if items else page.next_offset - 1
        self._report.end_page(number, last, self._purge(number, prefix))

    def _purge(self, number: int, prefix: SettledPrefix) -> int | None:
        """Delete the settled dead letters, and return the partition's new start offset; None when nothing was
        deleted."""
        before = self._deleted.get(number, self._reading.queue.partitions[number].start)
        if not self._task.purge or self._task.producer is None or prefix.end <= before:
            return None
        queue = self._reading.queue
        try:
            found = delete_before(self._admin, queue, {number: prefix.end})[number]
        except KafkaError as error:
            found = error
        if isinstance(found, KafkaError):
            self.is_purged = False
            print_stderr(f"Error: {queue.topic}-{number} was not deleted before offset {prefix.end}: {found.message}")
            return None
        self._deleted[number] = found
        return found
