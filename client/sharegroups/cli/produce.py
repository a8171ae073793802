"""`sharegroups produce`: one record per line of standard input (CM-72)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import click

from kip932.errors import KafkaError
from sharegroups.cli import clients
from sharegroups.cli.lookout import find_trouble, text_of, warn
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    settings,
)
from sharegroups.producer import Producer
from sharegroups.reports import DeliveryReport


class _Outcome:
    """Counts deliveries; prints failures as they come, in JSON every report."""

    def __init__(self, output: str) -> None:
        self.delivered = 0
        self.failed = 0
        self._output = output

    def report(self, error: KafkaError | None, report: DeliveryReport) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1
            click.echo(f"Error: a record for {report.topic()} was not delivered: {error.name}: {error}", err=True)
        if self._output == "json":
            document = {"topic": report.topic(), "partition": report.partition(), "offset": report.offset()}
            print_json(document | {"error": error.name if error else None})


@click.command()
@click.argument("topic")
@click.option("--key-separator", help="Text between key and value; without it records have no key.")
@click.option("--partition", type=int, help="Partition to produce to. When left out, "
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

    When the cluster or the topic is not there, it says so and waits for it, for max.block.ms (60 s). Exit codes: 0 all
    records were delivered, 1 an error, 130 interrupted.
    """
    pairs = [_header(text) for text in headers]
    outcome = _Outcome(output)
    given = settings(bootstrap_server, command_config, extra)
    with failures("Producing"), clients.open_client(Producer, given) as producer:
        if (found := find_trouble(given, topic)) is not None:
            warn(text_of(found))
        for line in source:
            key, value = _split(line.rstrip(b"\r\n"), key_separator)
            producer.produce(topic, value, key, partition, outcome.report, headers=pairs)
            producer.poll(0)
        producer.flush()
    if output == "text" and sys.stderr.isatty():
        click.echo(f"Delivered {outcome.delivered} records to {topic}.", err=True)
    finish(outcome.failed == 0)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageFailure(f"header {text!r} is not NAME=VALUE")
    return name, value.encode()


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        raise UsageFailure(f"the line {line[:60]!r} has no key separator {separator!r}")
    return key, value
