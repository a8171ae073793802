"""The loop of `sharegroups verify-consumer`: receives and acknowledges records, and prints each step as an event
(CT-37).

Unlike Kafka's, it never takes more records than the limit, and acknowledges every record that it takes (CT-95).
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, NamedTuple

import click

from kip932.errors import KafkaError
from kip932.printable import printable_json
from sharegroups.cli.console import ConsoleConsumer
from sharegroups.cli.formatting import json_value
from sharegroups.cli.interrupts import GRACE_S, LEAVE_S, Ended
from sharegroups.cli.stall_warning import warn
from sharegroups.errors import ConcurrentModificationError, WakeupError
from sharegroups.messages import AcknowledgeType, Message, TopicIdPartition

#: Time-out of closing, in seconds; after a signal it is LEAVE_S.
_CLOSE_S: Final = 30.0
_POLL_S: Final = 1.0
#: How long confirmations may take before open records are given up, and the interval at which they are checked, in
#: seconds.
_SETTLE_S: Final = 60.0
_CHECK_S: Final = 0.02


class Place(NamedTuple):
    """The position of a record."""

    topic: str
    partition: int
    offset: int


def emit(name: str, **fields: object) -> None:
    """Print one event as a line of JSON."""
    event = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    click.echo(printable_json(json.dumps(event, ensure_ascii=False, separators=(",", ":"))))


class Verification:
    """Takes and acknowledges records until `limit` are acknowledged, or a signal is received.

    `limit`: None for no limit. `mode`: "sync" waits for each batch's confirmation, "async" does not wait, "auto" lets
    the next poll send the acknowledgements. `pattern`: the types of the acknowledgements, record by record, repeated.
    """

    def __init__(
        self, limit: int | None, mode: str, pattern: Sequence[AcknowledgeType], *, verbose: bool, prints_types: bool
    ) -> None:
        self.acknowledged = 0
        self._limit = limit
        self._mode = mode
        self._pattern = pattern
        self._given = count()
        self._verbose = verbose
        self._prints_types = prints_types
        self._stopping = False
        #: The records taken whose acknowledgement is not final, with the last type given.
        self._open: dict[Place, AcknowledgeType] = {}
        #: The open records whose last acknowledgement has no outcome yet.
        self._waiting: set[Place] = set()

    def run(self, consumer: ConsoleConsumer) -> None:
        """Take records until the limit is reached or a signal is received. Raises KafkaError."""
        consumer.set_acknowledgement_commit_callback(self._settled)
        with suppress(WakeupError):
            while self._wants_more:
                left = self._left
                if left == 0:
                    self._settle(consumer)
                    if not self._wants_more:
                        break
                if left is not None:
                    consumer.want(left)
                messages = consumer.poll(0.0 if left == 0 else _POLL_S)
                if messages:
                    self._take(consumer, messages)
                elif left == 0:
                    self._open.clear()  # their locks were lost: they will be delivered again, so others may be taken

    def leave(self, consumer: ConsoleConsumer, ended: Ended) -> None:
        """Make `run` end within a bounded time: it acknowledges the taken records and leaves the group."""
        emit("shutdown_requested")
        self._stopping = True
        consumer.wakeup()
        if ended(GRACE_S) or ended(LEAVE_S):
            return
        try:
            consumer.close(LEAVE_S)
        except (KafkaError, ConcurrentModificationError) as error:
            warn(f"could not leave the group cleanly, so its records are redelivered when their locks end: {error}")

    def close(self, consumer: ConsoleConsumer) -> None:
        """Send the last acknowledgements, print their outcomes, leave the group."""
        consumer.close(LEAVE_S if self._stopping else _CLOSE_S)

    @property
    def _wants_more(self) -> bool:
        return not self._stopping and (self._limit is None or self.acknowledged < self._limit)

    @property
    def _left(self) -> int | None:
        """The number of records that may still be taken; None for any number."""
        return None if self._limit is None else max(0, self._limit - self.acknowledged - len(self._open))

    def _take(self, consumer: ConsoleConsumer, messages: Iterable[Message]) -> None:
        taken: list[Message] = []
        for message in messages:
            place, left = Place(message.topic(), message.partition(), message.offset()), self._left
            if place not in self._open and left == 0:
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
                continue
            kind = self._pattern[next(self._given) % len(self._pattern)]
            self._open[place] = kind
            self._waiting.add(place)
            taken.append(message)
            consumer.acknowledge(message, kind)
            if (error := message.error()) is not None:
                warn(f"{place.topic}-{place.partition} offset {place.offset} cannot be read: {error}")
            if self._verbose:
                emit("record_data", key=json_value(message.key()), value=json_value(message.value()), **place._asdict())
        if taken:
            places = [Place(message.topic(), message.partition(), message.offset()) for message in taken]
            emit("records_consumed", count=len(places), partitions=_partitions(places))
        if self._mode == "sync":
            consumer.commit_sync()
        elif self._mode == "async":
            consumer.commit_async()

    def _settle(self, consumer: ConsoleConsumer) -> None:
        """Wait for the outcomes of sent acknowledgements: for each one refused, another record may be taken."""
        consumer.commit_sync()
        until = time.monotonic() + _SETTLE_S
        while self._waiting and not self._stopping:
            if time.monotonic() > until:
                self._open.clear()
                self._waiting.clear()
            time.sleep(_CHECK_S)
            consumer.commit_async()  # runs the callback

    def _settled(self, offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        """Print the outcomes of acknowledgements, except for records that were released without being taken."""
        kinds: Counter[str] = Counter()
        places: list[Place] = []
        for partition, numbers in offsets.items():
            for offset in sorted(numbers):
                place = Place(partition.topic, partition.partition, offset)
                kind = self._open.get(place)
                if kind is None:
                    continue
                self._waiting.discard(place)
                places.append(place)
                kinds[kind.name.lower()] += 1
                if error is not None or kind is not AcknowledgeType.RENEW:
                    del self._open[place]
                    self.acknowledged += error is None
        if not places:
            return
        fields: dict[str, Any] = {"success": error is None}
        if error is not None:
            fields["error"] = f"{error.name}: {error}"
        if self._prints_types:
            fields["ackTypeCounts"] = dict(sorted(kinds.items()))
        emit("offsets_acknowledged", count=len(places), partitions=_partitions(places), **fields)


def _partitions(places: Iterable[Place]) -> list[dict[str, object]]:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place in places:
        found[place.topic, place.partition].append(place.offset)
    return [
        {"topic": topic, "partition": number, "count": len(offsets), "offsets": sorted(offsets)}
        for (topic, number), offsets in sorted(found.items())
    ]
