"""Writes the dead letters of a process in rounds, one round at a time per share-partition, until all are written (§9).

The core decides where dead letters go and when they are retried; the post reads the source records, packs the dead
letters, waits for the append, and notifies the senders. If a round fails, its dead letters wait for a retry or are
given up (PL-907, PL-917, PL-918). If a crash interrupts it, the records are still stored as Archiving, and the next
leader sends their dead letters again (PL-611).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, Protocol

import structlog

from kip932.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidRequestError,
    KafkaError,
    MessageTooLargeError,
    ThrottlingQuotaExceededError,
)
from kip932.ids import SharePartitionKey, TopicIdPartition, topic_id_text
from partition_leader.dead_letters.carriers import NodeSenders
from partition_leader.dead_letters.core.destination import (
    ENABLE_CONFIG,
    GIVEN_UP,
    TRANSIENT,
    Destination,
    Failure,
    QueueTopic,
    Reason,
    View,
    circling,
    destination,
)
from partition_leader.dead_letters.core.waiting import DROP_ATTEMPTS, Stretch, WaitingLetters, by_letter, pause_ms
from partition_leader.dead_letters.left_behind import LeftBehindLetters
from partition_leader.dead_letters.letter_codec import Origin, Packed, packed
from partition_leader.dead_letters.preparing import LetterBuilder, Prepared
from partition_leader.dead_letters.reports import LetterReports, Reported, Who
from partition_leader.share_partition.core.effects import DeadLetter
from partition_leader.share_partition.dead_letter_port import LetterSender, LettersWaiting
from partition_leader.share_partition.deadlines import Deadlines
from shard_runtime.clock import Clock
from shard_runtime.record_log.protocol import LogError
from shard_runtime.tracing import tracing

log = structlog.get_logger(__name__)

#: How many rounds are read and packed at the same time; each may hold a decompressed source batch.
ROUNDS_AT_ONCE: Final = 4
_REFUSALS: Final = (MessageTooLargeError, InvalidRecordError, CorruptMessageError, InvalidRequestError)
_SOURCE_ADVICE: Final = "see why the topic's log cannot be read; the dead letters wait"
_TOO_LARGE_ADVICE: Final = "raise max.message.bytes of the dead-letter topic"
_REFUSED_ADVICE: Final = "see why the dead-letter topic's leader refuses the record"
_UNREACHABLE_ADVICE: Final = "see whether the leader of the dead-letter topic's partition and its store are up"


class LetterFacts(Protocol):
    """The cluster's metadata about dead-letter queues, as last seen."""

    def view(self, group_id: str) -> View:
        """Return a group's dead-letter configs, and the topic that they name."""
        ...

    def name(self, topic_id: bytes) -> str:
        """Return a topic's name; "" when it is not known."""
        ...

    def takes_letters(self, topic_id: bytes) -> bool:
        """Return whether the topic is enabled as a dead-letter topic, so that its records may be dead letters."""
        ...

    async def create(self, name: str) -> None:
        """Create a dead-letter topic (PL-908), or accept one that exists already. Raises KafkaError."""
        ...


class _Outbox:
    """The dead letters of one share-partition object."""

    __slots__ = ("gone", "leaving", "letters", "post", "reported", "sender", "task")

    def __init__(self, post: LetterPost, sender: LetterSender) -> None:
        self.post = post
        self.sender = sender
        self.letters = WaitingLetters()
        self.reported = Reported()
        self.leaving = False
        self.gone = False
        self.task: asyncio.Task[None] | None = None

    def due(self, _: int) -> None:
        """Start the next round."""
        self.post.begin(self)


class LetterPost:
    """Writes the dead letters of all share-partitions of a process; implements `DeadLetterPost`."""

    def __init__(
        self,
        facts: LetterFacts,
        carriers: NodeSenders,
        reports: LetterReports,
        deadlines: Deadlines,
        *,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._facts = facts
        self._carriers = carriers
        self._reports = reports
        self._deadlines = deadlines
        self._clock = clock
        self._rng = rng
        self.left: Final = LeftBehindLetters(deadlines, clock)
        self._outboxes: dict[LetterSender, _Outbox] = {}  # by sender: the key's next object may exist already
        self._by_key: dict[SharePartitionKey, _Outbox] = {}
        self._places = asyncio.Semaphore(ROUNDS_AT_ONCE)
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what senders and metrics call

    def send(self, sender: LetterSender, letter: DeadLetter) -> None:
        """Write these dead letters."""
        box = self._outboxes.get(sender)
        if box is None:
            box = self._outboxes[sender] = self._by_key[sender.key] = _Outbox(self, sender)
        since_ms, now_ms = self.left.taken(sender.key), self._clock.now_ms()
        box.letters.add(letter, now_ms, since_ms)
        self._check_bound(box)
        self._arm(box)

    def leave(self, sender: LetterSender) -> None:
        """Postpone the dead letters that failed, because the sender retires (PL-921)."""
        box = self._outboxes.get(sender)
        if box is not None:
            box.leaving = True
            self._postpone(box, box.letters.take_failed())

    def forget(self, sender: LetterSender) -> None:
        """Drop the dead letters of a sender that has ended."""
        box = self._outboxes.pop(sender, None)
        if box is not None:
            box.gone = True
            if box.leaving:  # it ran out of time before all were tried
                self._note_left(box, box.letters.all())
            self._deadlines.set(box.due, None)
            if self._by_key.get(sender.key) is box:
                del self._by_key[sender.key]
            if box.task is not None:
                box.task.cancel()

    def loaded(self, key: SharePartitionKey, error: KafkaError | None) -> None:
        """Note that a share-partition was loaded, or could not be."""
        self.left.loaded(key, error)

    def waiting(self, key: SharePartitionKey) -> LettersWaiting | None:
        """Return the unwritten dead letters of a share-partition; None if there are none."""
        box, left, now_ms = self._by_key.get(key), self.left.get(key), self._clock.now_ms()
        topic = self._facts.view(key.group_id).queue.topic
        if box is not None and (oldest := box.letters.oldest_ms) is not None:
            found = box.letters
            due_ms = None if found.due_ms is None else max(0, found.due_ms - now_ms)
            reason = "" if found.failure is None else found.failure.with_advice
            return LettersWaiting(found.count, max(0, now_ms - oldest), found.attempts, topic, reason, due_ms)
        return None if left is None else left.waiting(topic, now_ms)

    def all_waiting(self) -> Iterable[tuple[str, int, bool]]:
        """Yield, for each share-partition with unwritten dead letters: its group, the age of the oldest (ms), and
        whether they have reached the bound."""
        now_ms = self._clock.now_ms()
        for box in self._outboxes.values():
            oldest = box.letters.oldest_ms
            if oldest is not None:
                yield box.sender.key.group_id, now_ms - oldest, box.sender.letters_full()
        for key, left in self.left.items():
            yield key.group_id, now_ms - left.oldest_ms, False

    def retry(self) -> None:
        """Retry failed dead letters now, because topics or configs changed (PL-912)."""
        now_ms = self._clock.now_ms()
        for box in list(self._outboxes.values()):
            box.letters.hurry(now_ms)
            self._check_bound(box)
            self._arm(box)
        self.left.retry()

    async def close(self) -> None:
        """Cancel every round. Call this after the share-partitions have been dropped."""
        tasks = [*self._tasks, *self._creating.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._carriers.close()
        self._reports.close()

    # --- rounds

    def _arm(self, box: _Outbox) -> None:
        due_ms = box.letters.due_ms
        if box.gone or box.task is not None or due_ms is None:
            return
        if due_ms <= self._clock.now_ms():
            self.begin(box)
        else:
            self._deadlines.set(box.due, due_ms)

    def begin(self, box: _Outbox) -> None:
        """Start the next round of this share-partition, unless one is running."""
        if box.gone or box.task is not None:
            return
        self._deadlines.set(box.due, None)
        box.task = asyncio.get_running_loop().create_task(self._rounds(box), name="dead-letters")
        self._tasks.add(box.task)
        box.task.add_done_callback(self._tasks.discard)

    async def _rounds(self, box: _Outbox) -> None:
        try:
            while not box.gone and (stretches := box.letters.take(self._clock.now_ms())):
                await self._round(box, stretches)
                self._check_bound(box)
        finally:
            box.task = None
            self._arm(box)

    async def _round(self, box: _Outbox, stretches: list[Stretch]) -> None:
        """Run one round. An unexpected error is handled like any other failure of a round."""
        try:
            where = await self._destination(box)
            if isinstance(where, Failure):
                self._failed(box, stretches, where)
            else:
                await self._write(box, stretches, *where)
        except asyncio.CancelledError:
            box.letters.end(stretches)
            raise
        except Exception as error:
            log.exception("dead_letter_round_failed", share_partition=box.sender.key.text)
            self._failed(box, stretches, Failure(Reason.REFUSED, repr(error), "report this; the dead letters wait"))

    async def _destination(self, box: _Outbox) -> tuple[Destination, QueueTopic] | Failure:
        """Return where the dead letters go, after creating the topic if necessary, or why they cannot be written."""
        key = box.sender.key
        name = ""
        for _ in range(2):
            found = destination(self._facts.view(key.group_id), self._name(key), box.letters.oldest_ms or 0)
            if isinstance(found, Failure):
                return found
            if found.topic is not None:
                return found, found.topic
            name = found.name
            try:
                await self._create(name)
            except KafkaError as error:
                text = f"topic {name!r} could not be created: {error.message}"
                return Failure(Reason.NOT_CREATED, text, f"create it by hand, with {ENABLE_CONFIG}=true")
        return Failure(Reason.NOT_CREATED, f"topic {name!r} was created, but is not visible here yet", "nothing")

    async def _create(self, name: str) -> None:
        """Create a topic; concurrent calls for the same name share one creation."""
        task = self._creating.get(name)
        if task is None:
            task = self._creating[name] = asyncio.get_running_loop().create_task(self._facts.create(name))
            task.add_done_callback(lambda _: self._creating.pop(name, None))
        await asyncio.shield(task)

    async def _write(self, box: _Outbox, stretches: list[Stretch], where: Destination, topic: QueueTopic) -> None:
        making = LetterBuilder(
            self._origin(box),
            box.sender.log,
            topic.max_message_bytes,
            self._clock.wall_ms(),
            copies=where.copies,
            counts_hops=self._facts.takes_letters(box.sender.key.topic_id),
        )
        async with self._places:
            try:
                prepared = await making.prepare(stretches)
            except (KafkaError, LogError) as error:
                text = f"the source records cannot be read now: {error}"
                self._failed(box, stretches, Failure(Reason.SOURCE_UNREADABLE, text, _SOURCE_ADVICE))
                return
        failure = await self._carry(box, prepared, where, topic) if prepared.letters else None
        if failure is None:
            self._written(box, prepared, topic, self._who(box, where.name))
        elif failure.reason is Reason.REFUSED:
            self._refused(box, prepared, where, failure)
        else:
            self._failed(box, stretches, failure)

    async def _carry(self, box: _Outbox, prepared: Prepared, where: Destination, topic: QueueTopic) -> Failure | None:
        partition = TopicIdPartition(topic.topic_id, box.sender.key.partition % topic.partitions)
        failure: Failure | None = None
        try:
            load = packed(prepared.letters, topic.max_message_bytes)
            if tracing.on:
                await self._carry_traced(box, prepared, where.name, partition, load)
            else:
                await self._carriers.carry(partition, load)
        except ThrottlingQuotaExceededError as error:
            return Failure(Reason.BUSY, error.message, "nothing: it continues when they have responses")
        except _REFUSALS as error:
            failure = Failure(Reason.REFUSED, error.message, _REFUSED_ADVICE)
        except (KafkaError, LogError) as error:
            failure = Failure(Reason.UNREACHABLE, str(error), _UNREACHABLE_ADVICE)
        self._reports.meter.letter_request(box.sender.key.group_id, failure is not None)
        return failure

    async def _carry_traced(
        self, box: _Outbox, prepared: Prepared, topic: str, partition: TopicIdPartition, load: Packed
    ) -> None:
        """Send one round under a span, if the trace of one of its records is sampled (CM-216)."""
        contexts = [found.context for found in prepared.letters]
        with tracing.letters(contexts, topic, partition.partition, box.sender.key.group_id) as span:
            await self._carriers.carry(partition, load, span)

    def _written(self, box: _Outbox, prepared: Prepared, topic: QueueTopic, who: Who) -> None:
        """Note that the round's dead letters are in their topic. Those that were too large are handled on their own;
        those beyond the byte limit of a round are due at once."""
        letters = box.letters
        if prepared.letters:
            letters.succeeded()
            self._reports.written(who, len(prepared.letters), box.reported)
        if prepared.without_copy:
            self._reports.without_copy(who, prepared.without_copy, topic.max_message_bytes)
        letters.end(prepared.left)
        self._notify_done(box, prepared.taken)
        if prepared.too_large:
            text = f"even without a copy it is larger than max.message.bytes ({topic.max_message_bytes})"
            self._alone(box, prepared.too_large, Failure(Reason.TOO_LARGE, text, _TOO_LARGE_ADVICE))
        if prepared.circling:
            self._give_up(box, prepared.circling, circling(who.topic, who.queue))

    def _refused(self, box: _Outbox, prepared: Prepared, where: Destination, failure: Failure) -> None:
        """Find the record at fault: send the dead letters one by one, then the refused one without its copy; if that is
        refused too, it waits. It never shares a round again, since its refusal would break up that round."""
        taken, rest = prepared.taken, [*prepared.left, *prepared.too_large, *prepared.circling]
        if len(prepared.letters) > 1:
            box.letters.end([*rest, *(single for found in taken for single in found.singles())])
        elif where.copies and not taken[0].bare:
            box.letters.end([*rest, *taken[0].singles(bare=True)])
        else:
            box.letters.end(rest)
            self._alone(box, taken[0].singles(), failure)

    # --- failures

    def _failed(self, box: _Outbox, stretches: list[Stretch], failure: Failure) -> None:
        """Handle a failure that affects all dead letters of this share-partition: they are retried, postponed or given
        up."""
        letters, now_ms = box.letters, self._clock.now_ms()
        letters.failed(failure)
        if failure.reason in GIVEN_UP or self._drops(box, failure, letters.attempts):
            letters.end(())
            self._give_up(box, [*stretches, *letters.take_all()], failure)
        elif box.leaving:
            letters.end(())
            self._postpone(box, [*stretches, *letters.take_all()])
        else:
            pause = pause_ms(letters.pace, self._rng.random())
            letters.end(stretches)
            letters.put_off(now_ms + pause)
            if failure.reason is not Reason.METADATA:  # metadata failures have log lines of their own
                who = self._who(box)
                self._reports.failed(who, letters, failure, reported=box.reported, now_ms=now_ms, pause_ms=pause)

    def _alone(self, box: _Outbox, stretches: Sequence[Stretch], failure: Failure) -> None:
        """Handle dead letters that failed on their own; no others have to wait for them."""
        if self._drops(box, failure, DROP_ATTEMPTS):
            self._give_up(box, stretches, failure)
        elif box.leaving:
            self._postpone(box, stretches)
        else:
            now_ms = self._clock.now_ms()
            again = [found.failed(now_ms + pause_ms(found.attempts + 1, self._rng.random())) for found in stretches]
            box.letters.failure = failure
            box.letters.end(again)
            pause = again[0].due_ms - now_ms
            self._reports.failed(
                self._who(box), box.letters, failure, reported=box.reported, now_ms=now_ms, pause_ms=pause
            )

    def _drops(self, box: _Outbox, failure: Failure, attempts: int) -> bool:
        """Return whether the group's policy gives up dead letters now (PL-907)."""
        if failure.reason is Reason.METADATA or not self._facts.view(box.sender.key.group_id).queue.drops:
            return False
        return failure.reason not in TRANSIENT or attempts >= DROP_ATTEMPTS

    def _give_up(self, box: _Outbox, stretches: Sequence[Stretch], failure: Failure) -> None:
        spans = sorted((found.first, found.last) for found in stretches)
        self._reports.given_up(self._who(box), spans, failure)
        self._notify_done(box, stretches)

    def _postpone(self, box: _Outbox, stretches: Sequence[Stretch]) -> None:
        self._note_left(box, stretches)
        for number, spans in by_letter(stretches).items():
            box.sender.letters_postponed(number, spans)

    def _note_left(self, box: _Outbox, stretches: Sequence[Stretch]) -> None:
        self.left.note(
            self._who(box), stretches, "" if box.letters.failure is None else box.letters.failure.with_advice
        )

    def _notify_done(self, box: _Outbox, stretches: Iterable[Stretch]) -> None:
        if not box.gone:
            for number, spans in by_letter(stretches).items():
                box.sender.letters_done(number, spans)

    # --- helpers

    def _check_bound(self, box: _Outbox) -> None:
        full = not box.gone and box.sender.letters_full()
        if full != box.reported.full:
            box.reported.full = full
            self._reports.full(self._who(box), full, box.letters.count)

    def _name(self, key: SharePartitionKey) -> str:
        return self._facts.name(key.topic_id) or topic_id_text(key.topic_id)

    def _origin(self, box: _Outbox) -> Origin:
        key = box.sender.key
        return Origin(key.group_id, self._name(key), key.partition, topic_id_text(key.topic_id))

    def _who(self, box: _Outbox, queue: str | None = None) -> Who:
        key = box.sender.key
        return Who(key, self._name(key), self._facts.view(key.group_id).queue.topic if queue is None else queue)
