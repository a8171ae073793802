"""`sharegroups perf consume`: measures how fast share consumers receive records, and prints it as
kafka-share-consumer-perf-test.sh does (CT-33, CT-34)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from sharegroups.cli import clients
from sharegroups.cli.interrupts import GRACE_S, LEAVE_S, Ended, attended
from sharegroups.cli.output import (
    FILE,
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
from sharegroups.cli.perf_rows import HEADER, Consumed, DateFormat, metric_lines
from sharegroups.cli.stall_warning import Warnings, find_trouble, text_of
from sharegroups.consumer import ShareConsumer
from sharegroups.errors import WakeupError

_GROUP: Final = "perf-share-consumer"
_POLL_S: Final = 0.1
_CLOSE_S: Final = 0.5


def now_ms() -> int:
    """Return the current time, ms since 1970."""
    return int(time.time() * 1000)


class Race:
    """Share consumers of one group, each in its own thread. They run until together they have received the requested
    number of records, or until no more arrive."""

    def __init__(self, topic: str, records: int, timeout_ms: int, given: list[dict[str, Any]]) -> None:
        self.start_ms = now_ms()
        self.each = [Consumed(self.start_ms, self.start_ms) for _ in given]
        self.metrics: list[Mapping[tuple[str, str], float]] = [{} for _ in given]
        self._topic, self._records, self._timeout_ms, self._given = topic, records, timeout_ms, given
        self._consumers: list[ShareConsumer] = []
        self._errors: list[Exception] = []
        self._stopping = False
        self._last_s = time.monotonic()

    def run(self, interval_s: float, report: Callable[[], None]) -> None:
        """Consume, and call `report` every `interval_s`. Raises the first error of a consumer."""
        threads: list[threading.Thread] = []
        try:
            self._consumers = [clients.open_client(ShareConsumer, given) for given in self._given]
            self._last_s = time.monotonic()
            for index in range(len(self._consumers)):
                threads.append(threading.Thread(target=self._guarded, args=(index,), name=f"perf-{index}", daemon=True))
                threads[-1].start()
            reported_s = time.monotonic()
            while any(thread.is_alive() for thread in threads):
                next(thread for thread in threads if thread.is_alive()).join(_POLL_S)
                if time.monotonic() - reported_s >= interval_s:
                    reported_s = time.monotonic()
                    report()
        finally:
            for consumer in self._consumers[len(threads) :]:
                consumer.close(0)
        if self._errors:
            raise self._errors[0]

    def leave(self, ended: Ended) -> None:
        """Make `run` end within a bounded time: it accepts the records that it has polled and leaves the group."""
        self._stopping = True
        if not ended(GRACE_S):
            for consumer in self._consumers:
                consumer.wakeup()
            ended(LEAVE_S)

    def total(self) -> Consumed:
        """Return the figures of all consumers together, up to the last record that any of them received."""
        found = Consumed(self.start_ms, max(one.end_ms for one in self.each))
        found.last_ms = max(one.last_ms for one in self.each)
        found.close()
        found.records = sum(one.records for one in self.each)
        found.size = sum(one.size for one in self.each)
        found.first_ms = min((one.first_ms for one in self.each if one.first_ms), default=0)
        return found

    @property
    def is_enough(self) -> bool:
        """True once the requested number of records has been received."""
        return sum(one.records for one in self.each) >= self._records

    def _guarded(self, index: int) -> None:
        consumer = self._consumers[index]
        try:
            try:
                with suppress(WakeupError):
                    try:
                        self._consume(consumer, self.each[index])
                    finally:
                        self.each[index].close()
                    consumer.commit_sync()
                self.metrics[index] = consumer.metrics()
            finally:
                consumer.close(_CLOSE_S)
        except Exception as error:
            self._errors.append(error)
            self._stopping = True

    def _consume(self, consumer: ShareConsumer, tally: Consumed) -> None:
        consumer.subscribe([self._topic])
        while not self._stopping and not self.is_enough:
            messages = consumer.poll(_POLL_S)
            tally.end_ms = now_ms()
            if messages:
                self._last_s = time.monotonic()
                tally.first_ms, tally.last_ms = tally.first_ms or tally.end_ms, tally.end_ms
                tally.records += len(messages)
                tally.size += sum(len(message.key() or b"") + len(message.value() or b"") for message in messages)
            elif (time.monotonic() - self._last_s) * 1000 > self._timeout_ms:
                break


def _no_sockets(_context: click.Context, _parameter: click.Parameter, value: int | None) -> None:
    if value is not None:
        raise click.BadParameter("gRPC sizes the buffers of its connections by itself; leave it out")


@click.command()
@click.option("--topic", required=True, type=NAME, help="Topic to consume.")
@click.option("--num-records", type=click.IntRange(min=1), help="How many records, of all consumers together.")
@click.option("--messages", "old_records", type=click.IntRange(min=1), hidden=True, deprecated="use --num-records")
@click.option("--group", default=_GROUP, show_default=True, type=NAME, help="Share group.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(min=1), help="How many consumers.")
@click.option("--timeout", "timeout_ms", default=10_000, show_default=True, type=click.IntRange(min=1),
              help="Stop when no record came for so long, in ms.")  # fmt: skip
@click.option("--fetch-size", type=click.IntRange(min=1), help="Bytes wanted in one answer: fetch.max.bytes.")
@click.option("--socket-buffer-size", type=int, hidden=True, callback=_no_sockets, expose_value=False)
@click.option("--reporting-interval", default=5000, show_default=True, type=click.IntRange(min=1),
              help="With --show-detailed-stats: how often, in ms.")  # fmt: skip
@click.option("--show-detailed-stats", "detailed", is_flag=True, help="Rows of each consumer, too.")
@click.option("--show-consumer-stats", "stats", is_flag=True, help="Some metrics of each consumer at the end.")
@click.option("--print-metrics", is_flag=True, help="All metrics of each consumer at the end.")
@click.option("--hide-header", is_flag=True, help="Leave out the names of the columns.")
@click.option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", show_default=True, help="How times are written.")
@click.option("--command-property", "extra", multiple=True, metavar="NAME=VALUE",
              help="A consumer setting; repeatable.")  # fmt: skip
@click.option("--consumer.config", "old_config", type=FILE, hidden=True, deprecated="use --command-config")
@output_option
@connection_options
def consume(
    *,
    topic: str,
    num_records: int | None,
    old_records: int | None,
    group: str,
    threads: int,
    timeout_ms: int,
    fetch_size: int | None,
    reporting_interval: int,
    detailed: bool,
    stats: bool,
    print_metrics: bool,
    hide_header: bool,
    date_format: str,
    extra: tuple[str, ...],
    old_config: Path | None,
    output: str,
    bootstrap_server: str,
    command_config: Path | None,
) -> None:
    """Consume and accept records of TOPIC, and print how many were received per second.

    Times are local. The row's time starts before the group is joined, as Kafka's does, and ends with the last record;
    the rates from the first record on are on standard error. Whole responses are counted, so the number may exceed
    --num-records. Exit codes: 0 done, 1 an error, also when fewer records were received, 130 after Ctrl-C, 143 after
    SIGTERM.
    """
    records = num_records or old_records
    if records is None:
        raise UsageFailure("Missing option '--num-records'")
    dates = _dates(date_format)
    given = settings(bootstrap_server, command_config or old_config, extra)
    given |= {} if fetch_size is None else {"fetch.max.bytes": str(fetch_size)}
    name = given.get("client.id", _GROUP)
    each = [given | {"group.id": group, "client.id": f"{name}-{number}"} for number in range(1, threads + 1)]
    race = Race(topic, records, timeout_ms, each)

    def rows(of: list[Consumed]) -> None:
        for number, one in enumerate(of, start=1):
            if output == "json":
                print_json({"consumer": number} | one.values())
            else:
                click.echo(f"{one.row(dates)} for share consumer {number}")

    def interval() -> None:
        if detailed and not race.is_enough:
            rows([replace(one) for one in race.each])

    def work() -> None:
        race.run(reporting_interval / 1000, interval)

    with failures("Consuming"), Warnings():
        if (trouble := find_trouble(given, topic)) is not None:
            print_stderr(f"Error: {text_of(trouble)}")
            finish(ok=False)
        if output == "text" and not hide_header:
            click.echo(HEADER)
        try:
            attended(work, race.leave)
        finally:
            if detailed:
                rows(race.each)
            if output == "json":
                print_json({"consumer": "all"} | race.total().values())
            else:
                click.echo(race.total().row(dates))
    _print_metrics(race, each, output, stats=stats, print_metrics=print_metrics)
    if not race.is_enough:
        print_stderr(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) exceeded. "
            "You can use the --timeout option to increase the timeout."
        )
    finish(race.is_enough)


def _print_metrics(race: Race, each: list[dict[str, Any]], output: str, *, stats: bool, print_metrics: bool) -> None:
    for number, (given, metrics) in enumerate(zip(each, race.metrics, strict=True), start=1):
        if output == "json":
            if stats or print_metrics:
                chosen_values = {
                    f"{group}:{name}": value
                    for (group, name), value in sorted(metrics.items())
                    if print_metrics or "records" in name
                }
                print_json({"consumer": number, "client_id": given["client.id"], "metrics": chosen_values})
            continue
        if stats:
            chosen = [f"{name}: {value:.3f}" for (_, name), value in sorted(metrics.items()) if "records" in name]
            who = f"Share consumer {number} having client id {given['client.id']}"
            click.echo(f"{who} consumption metrics- {', '.join(chosen)}")
        if print_metrics:
            click.echo("\n".join(metric_lines(metrics)))
    total = race.total()
    if total.first_ms:
        print_stderr(total.from_the_first())


def _dates(pattern: str) -> DateFormat:
    try:
        return DateFormat(pattern)
    except ValueError as error:
        raise UsageFailure(f"--date-format {error}") from None
