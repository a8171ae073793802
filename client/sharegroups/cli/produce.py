"""`sharegroups produce`: sends each line of standard input as a record (CM-72)."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO, Final

import click

from kip932.errors import KafkaError
from sharegroups.cli import clients
from sharegroups.cli.interrupts import GRACE_S, LEAVE_S, Ended, attended
from sharegroups.cli.output import (
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.stall_warning import Warnings, find_trouble
from sharegroups.errors import NotSentError
from sharegroups.producer import Producer
from sharegroups.reports import DeliveryReport

#: The interval at which the wait for confirmations checks whether a signal was received, in seconds.
_CHECK_S: Final = 0.2
#: How many failures of one cause are printed individually; how many causes are counted separately, and what the others
#: share.
_SHOWN_MAX: Final = 10
_CAUSES_MAX: Final = 100
_OTHER_CAUSES: Final = "records were not delivered for other causes"


class _Outcome:
    """Counts deliveries. Prints the first failures of each cause as they occur, and the number of the
    others at the end; for JSON, prints every delivery report."""

    def __init__(self, output: str) -> None:
        self.delivered = 0
        self.failed = 0
        #: The number of records in the buffer that had never been sent when the producer closed.
        self.unsent = 0
        #: True once a signal has ended the wait for confirmations: only the number of unconfirmed records is printed.
        self.giving_up = False
        self._output = output
        self._lock = threading.Lock()
        self._causes: Counter[str] = Counter()

    def give_up(self) -> None:
        """Stop counting and printing failures."""
        self.giving_up = True

    def report(self, line: int, error: KafkaError | None, report: DeliveryReport) -> None:
        with self._lock:  # after a signal two threads may run callbacks
            self.delivered += error is None
            self.failed += error is not None and not self.giving_up
            self.unsent += self.giving_up and isinstance(error, NotSentError)
            shown = error is not None and not self.giving_up and self._is_shown(error, report.topic())
        if error is not None and shown:
            print_stderr(
                f"Error: line {line}: the record for {report.topic()} was not delivered: {error.name}: {error}"
            )
        if self._output == "json":
            document = {"topic": report.topic(), "partition": report.partition(), "offset": report.offset()}
            print_json(document | {"error": error.name if error else None})

    def _is_shown(self, error: KafkaError, topic: str) -> bool:
        """Count a failure. Returns whether its own line is printed, as one of the first of its cause."""
        cause = f"the record for {topic} was not delivered: {error.name}: {error}"
        if cause not in self._causes and len(self._causes) >= _CAUSES_MAX:
            cause = _OTHER_CAUSES
        self._causes[cause] += 1
        return self._causes[cause] <= _SHOWN_MAX

    def print_rest(self) -> None:
        """Print how many failures of each cause were not printed individually."""
        with self._lock:
            rest = {cause: count - _SHOWN_MAX for cause, count in self._causes.items() if count > _SHOWN_MAX}
        for cause, count in rest.items():
            print_stderr(f"Error: … and {count:,} more for the same cause: {cause}")


class _Feed:
    """Reads lines and produces each as a record, until the end of the input or a signal."""

    def __init__(
        self, lines: Iterable[bytes], produce_line: Callable[[Producer, int, bytes], None], give_up: Callable[[], None]
    ) -> None:
        self.taken = 0
        #: How many of the lines that were read have reached the producer's buffer.
        self.accepted = 0
        self._give_up = give_up
        self._lines = lines
        self._produce_line = produce_line
        self._stopping = False
        self._feeding = True

    def run(self, producer: Producer) -> None:
        """Send all lines, and wait until each is delivered or has failed. Raises KafkaError."""
        with closing(producer):
            for line in self._lines:
                if self._stopping:
                    break
                self.taken += 1
                try:
                    self._produce_line(producer, self.taken, line)
                    self.accepted += 1
                except KafkaError as error:
                    raise type(error)(f"line {self.taken} of the input: {error.message}") from error
                except ValueError as error:
                    raise UsageFailure(f"line {self.taken} of the input: {error}") from error
            self._feeding = False
            while not self._stopping and producer.flush(_CHECK_S):
                pass
            if self._stopping:
                self._end(producer)

    def leave(self, producer: Producer, ended: Ended) -> None:
        """Stop reading, and wait a bounded time for the confirmations of the records that were read."""
        self._stopping = True
        if not ended(GRACE_S) and self._feeding:  # `run` waits for input, or for buffer space while no node answers
            self._end(producer)
        else:
            ended(LEAVE_S)

    def _end(self, producer: Producer) -> None:
        producer.flush(LEAVE_S)
        self._give_up()
        producer.close(0)


def _not_empty(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    if text == "":
        raise click.BadParameter("it is empty; leave it out for records without a key")
    return text


@click.command()
@click.argument("topic", type=NAME)
@click.option(
    "--key-separator", callback=_not_empty, help="Text between key and value; without it records have no key."
)
@click.option("--partition", type=click.IntRange(min=0), help="Partition to produce to. When left out, "
              "records with a key go by its hash, those without to all in turn, batch by batch.")  # fmt: skip
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record; repeatable.")
@click.option("--input", "source", type=click.File("rb"), default="-", help="File to read instead of standard input.")
@click.option("--property", "extra", multiple=True, metavar="NAME=VALUE", help="A producer setting; repeatable.")
@connection_options
@output_option
def produce(
    *,
    topic: str,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    source: IO[bytes],
    extra: tuple[str, ...],
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Send every line of standard input as a record to TOPIC.

    If the cluster or the topic is unavailable, it says so and waits for it, up to max.block.ms (60 s). Exit codes: 0
    all records were delivered, 1 an error, 130 after Ctrl-C, 143 after SIGTERM. After such a signal it stops reading,
    waits a few seconds for the records that it has read, and says how many are not confirmed and may be stored, and how
    many were never sent; a second signal ends it.
    """
    pairs = [_header(text) for text in headers]
    outcome = _Outcome(output)
    given = settings(bootstrap_server, command_config, extra)

    def one(producer: Producer, number: int, line: bytes) -> None:
        key, value = _split(line.rstrip(b"\r\n"), key_separator)
        producer.produce(topic, value, key, partition, partial(outcome.report, number), headers=pairs)
        producer.poll(0)

    feed = _Feed(source, one, outcome.give_up)

    def leave(producer: Producer, ended: Ended) -> None:
        feed.leave(producer, ended)
        click.echo(_stopped(feed.taken, feed.accepted, outcome), err=True)

    with failures("Producing"), Warnings("TOPIC") as warnings:
        producer = clients.open_client(Producer, given)
        try:
            found = find_trouble(given, topic)
        except KafkaError:
            producer.close(0)
            raise
        if found is not None:
            warnings.last(found)
        try:
            attended(lambda: feed.run(producer), lambda ended: leave(producer, ended))
        finally:
            outcome.print_rest()
    if output == "text" and sys.stderr.isatty():
        click.echo(f"Delivered {outcome.delivered} records to {topic}.", err=True)
    finish(outcome.failed == 0)


def _stopped(taken: int, accepted: int, outcome: _Outcome) -> str:
    """Return what happened to the lines that were read before a signal. Records never sent cannot have been stored."""
    left = taken - outcome.delivered - outcome.failed
    unsent = min(left, taken - accepted + outcome.unsent)
    unsure = left - unsent
    return (
        f"Stopped after line {taken} of the input: {outcome.delivered} records delivered, {outcome.failed} failed, "
        f"{unsure} not confirmed{', which may be stored or not' if unsure else ''}"
        f"{f', {unsent} never sent' if unsent else ''}."
    )


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageFailure(f"header {text!r} is not NAME=VALUE")
    return name, value.encode()


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        raise ValueError(f"{line[:60]!r} has no key separator {separator!r}")
    return key, value
