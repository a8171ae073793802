"""`sharegroups perf produce`: measures how fast records are stored, like kafka-producer-perf-test.sh (CT-98)."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path
from typing import Final

import click

from kip932.errors import KafkaError
from sharegroups.cli import clients
from sharegroups.cli.interrupts import GRACE_S, LEAVE_S, Ended, attended
from sharegroups.cli.output import (
    NAME,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.perf_rows import Sent
from sharegroups.cli.stall_warning import Warnings, find_trouble, text_of
from sharegroups.producer import Producer
from sharegroups.reports import DeliveryReport

_CHECK_S: Final = 0.2
_PAYLOADS: Final = 64
_LETTERS: Final = bytes(range(65, 91))


class Load:
    """Sends records of one size at a limited rate, and measures their delivery."""

    def __init__(
        self, topic: str, records: int, size: int, per_s: float, interval_s: float, *, output: str = "text"
    ) -> None:
        self.sent = Sent.of(records)
        self.produced = 0
        self.failed = 0
        self.first_error: KafkaError | None = None
        self._recent = Sent.of(records)
        self._topic, self._records, self._size = topic, records, size
        self._per_s, self._interval_s = per_s, interval_s
        self._output = output
        self._stopping = False
        self._began_s = self._reported_s = self._confirmed_s = time.monotonic()
        chance = random.Random(0)
        self._payloads = [bytes(chance.choices(_LETTERS, k=size)) for _ in range(_PAYLOADS)]

    @property
    def open(self) -> int:
        """The number of records that are neither confirmed nor failed."""
        return self.produced - self.sent.records - self.failed

    def run(self, producer: Producer) -> None:
        """Send all records and wait for their confirmations, or until a signal is received. Raises KafkaError."""
        try:
            self._run(producer)
        finally:
            producer.close(LEAVE_S if self._stopping else 0)

    def leave(self, ended: Ended) -> None:
        """Make `run` stop sending, and wait a bounded time for the records that it has sent."""
        self._stopping = True
        if not ended(GRACE_S + LEAVE_S):
            self.print_end()

    def print_end(self) -> None:
        """Print the last line, with rates up to the last confirmation, and the number of unconfirmed records."""
        if self.produced:
            self._print(self.sent, self._confirmed_s - self._began_s, is_last=True)
        if self.failed:
            print_stderr(f"Error: {self.failed} records were not delivered; the first: {self.first_error}")
        if self.open:
            print_stderr(f"{self.open} records are not confirmed, which may be stored or not.")

    def _run(self, producer: Producer) -> None:
        self._began_s = self._reported_s = time.monotonic()
        while self.produced < self._records and not self._stopping:
            if (ahead_s := self._wait_s()) > 0:
                producer.poll(min(ahead_s, _CHECK_S))
            else:
                payload = self._payloads[self.produced % _PAYLOADS]
                producer.produce(self._topic, payload, on_delivery=partial(self._report, time.monotonic()))
                self.produced += 1
                producer.poll(0)
            self._print_interval()
        while not self._stopping and producer.flush(_CHECK_S):
            self._print_interval()

    def _wait_s(self) -> float:
        """Return how long to wait before the next record, in seconds."""
        if self._per_s < 0:
            return 0.0
        return self._began_s + self.produced / self._per_s - time.monotonic()

    def _report(self, since_s: float, error: KafkaError | None, _report: DeliveryReport) -> None:
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error
            return
        self._confirmed_s = time.monotonic()
        for each in (self.sent, self._recent):
            each.add(self._size, (self._confirmed_s - since_s) * 1000)

    def _print_interval(self) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= self._interval_s:
            self._print(self._recent, now_s - self._reported_s, is_last=False)
            self._recent = Sent.of(self._records)
            self._reported_s = now_s

    def _print(self, sent: Sent, elapsed_s: float, *, is_last: bool) -> None:
        if self._output == "json":
            print_json({"total": is_last} | sent.values(elapsed_s, with_percentiles=is_last))
        else:
            click.echo(sent.line(elapsed_s, with_percentiles=is_last))


@click.command()
@click.option("--topic", required=True, type=NAME, help="Topic to produce to.")
@click.option("--num-records", required=True, type=click.IntRange(min=1), help="How many records.")
@click.option("--record-size", default=1000, show_default=True, type=click.IntRange(min=1), help="Bytes of a value.")
@click.option("--throughput", default=-1.0, show_default=True, type=float,
              help="Records a second at most; -1: as fast as they are taken.")  # fmt: skip
@click.option("--reporting-interval", default=5000, show_default=True, type=click.IntRange(min=1),
              help="How often to print figures, in ms.")  # fmt: skip
@click.option("--command-property", "extra", multiple=True, metavar="NAME=VALUE",
              help="A producer setting; repeatable.")  # fmt: skip
@output_option
@connection_options
def produce(
    *,
    topic: str,
    num_records: int,
    record_size: int,
    throughput: float,
    reporting_interval: int,
    extra: tuple[str, ...],
    output: str,
    bootstrap_server: str,
    command_config: Path | None,
) -> None:
    """Send records without keys to TOPIC, and print how many are confirmed per second, and after how long.

    Only confirmed records are counted. The records stay in the topic. Exit codes: 0 all were confirmed, 1 an error,
    130 after Ctrl-C, 143 after SIGTERM.
    """
    if throughput != -1 and throughput <= 0:
        raise click.BadParameter(f"{throughput:g} is not a rate; expected more than 0, or -1 for no limit")
    given = settings(bootstrap_server, command_config, extra)
    load = Load(topic, num_records, record_size, throughput, reporting_interval / 1000, output=output)

    def work() -> None:
        load.run(producer)

    try:
        with failures("Producing"), Warnings():
            producer = clients.open_client(Producer, given)
            if (trouble := find_trouble(given, topic)) is not None:
                producer.close(0)
                print_stderr(f"Error: {text_of(trouble)}")
                finish(ok=False)
            attended(work, load.leave)
    finally:
        load.print_end()
    finish(load.failed == 0)
