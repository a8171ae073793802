"""The loop of `sharegroups consume`: writes each record, acknowledges it, shuts down cleanly (CT-32, CT-80)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import click

from sharegroups.cli.interrupts import GRACE_S, LEAVE_S, Ended
from sharegroups.cli.output import print_stderr
from sharegroups.cli.stall_warning import warn
from sharegroups.consumer import ShareConsumer
from sharegroups.errors import (
    ConcurrentModificationError,
    GroupAuthorizationFailedError,
    KafkaError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    WakeupError,
)
from sharegroups.messages import AcknowledgeType, Message

#: Time-out of closing, in seconds: the library's default. After a signal it is LEAVE_S.
_CLOSE_S: Final = 30.0


class ConsoleConsumer(ShareConsumer):
    """A share consumer whose fetches can be limited to the number of records still wanted."""

    def want(self, count: int) -> None:
        """Limit later fetches to `count` records."""
        self._engine.limit_records(count)


class Console:
    """Writes and acknowledges records until the limit, the time-out or a signal."""

    def __init__(
        self, write: Callable[[Message], str], done: AcknowledgeType, reject_on_error: bool, limit: int | None
    ) -> None:
        self.processed = 0
        self.ok = True
        #: True once a poll has succeeded after a leader's response.
        self._served = False
        self._stopping = False
        self._writing = False
        self._write = write
        self._done = done
        self._reject_on_error = reject_on_error
        self._limit = limit

    def run(self, consumer: ConsoleConsumer, timeout_ms: int | None) -> None:
        """Consume until the limit is reached or no record has arrived for `timeout_ms`. Raises KafkaError.

        A right that is missing from the start is such an error; one that is taken away later is only printed (CL-143).
        """
        patience_s = float("inf") if timeout_ms is None else timeout_ms / 1000
        last = time.monotonic()
        while self.goes_on and time.monotonic() - last < patience_s:
            if self._limit is not None:
                consumer.want(self._limit - self.processed)
            try:
                messages = consumer.poll(min(1.0, max(0.0, patience_s - (time.monotonic() - last))))
            except WakeupError:
                break
            except SaslAuthenticationFailedError as error:
                if not self._served:
                    raise
                warn(f"records arrive again once a token or password is accepted: {error.name}: {error.message}")
                continue
            except (GroupAuthorizationFailedError, TopicAuthorizationFailedError) as error:
                if not self._served:
                    raise
                warn(f"a right was taken away; records arrive again when it is back: {error.name}: {error.message}")
                continue
            self._served = self._served or consumer.acquisition_lock_timeout_ms() is not None
            if messages:
                last = time.monotonic()
            for message in messages:
                self._handle(consumer, message)
        with suppress(WakeupError):
            if not self._stopping:
                consumer.commit_sync()

    @contextmanager
    def closing(self, consumer: ShareConsumer) -> Iterator[None]:
        """Close the consumer after the block, which sends its acknowledgements; after a signal, it gets less time for
        that."""
        try:
            yield
        finally:
            consumer.close(LEAVE_S if self._stopping else _CLOSE_S)

    def leave(self, consumer: ShareConsumer, ended: Ended) -> None:
        """Make `run` end after the current record, release the records that were not written, and leave the group.

        It takes a bounded time. If the output blocks, the current record is released too, since it is not fully
        written.
        """
        self._stopping = True
        consumer.wakeup()
        if ended(GRACE_S) or (not self._writing and ended(LEAVE_S)):
            return
        try:
            consumer.close(LEAVE_S)
        except (KafkaError, ConcurrentModificationError) as error:
            warn(f"could not leave the group cleanly, so its records are redelivered when their locks end: {error}")
        said = f"Processed a total of {self.processed} messages"
        click.echo(f"{said}; standard output took no more" if self._writing else said, err=True)

    @property
    def goes_on(self) -> bool:
        """True while more records are wanted: the limit is not reached, none has failed, and no signal was received."""
        return self.ok and not self._stopping and (self._limit is None or self.processed < self._limit)

    def _handle(self, consumer: ShareConsumer, message: Message) -> None:
        if not self.goes_on:
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
            return
        self._writing = True
        try:
            if (error := message.error()) is not None:
                raise error
            line = self._write(message).encode("utf-8", "surrogateescape")  # bytes that are not UTF-8 stay unchanged
        except Exception as problem:  # a user's formatter may raise anything
            where = f"{message.topic()}-{message.partition()} offset {message.offset()}"
            print_stderr(f"Error: {where} cannot be written: {problem}")
            self.ok = self._reject_on_error
            self._writing = False
            kind = AcknowledgeType.REJECT if self._reject_on_error else AcknowledgeType.RELEASE
            consumer.acknowledge(message, kind, reason=f"sharegroups consume cannot write it: {problem}")
            return
        click.echo(line, nl=False)
        self._writing = False
        consumer.acknowledge(message, self._done)
        self.processed += 1
