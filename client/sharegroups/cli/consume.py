"""`sharegroups consume`: the console share consumer (CT-30 to CT-32)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from sharegroups.cli import clients
from sharegroups.cli.formatting import Formatter, document
from sharegroups.cli.lookout import Lookout, find_trouble, warn
from sharegroups.cli.output import UsageFailure, connection_options, failures, finish, output_option, pairs, settings
from sharegroups.consumer import ShareConsumer
from sharegroups.errors import DeserializationError
from sharegroups.messages import AcknowledgeType, Message

_DEFAULT_GROUP = "console-share-consumer"


@click.command()
@click.option("--topic", required=True, help="Topic to consume.")
@click.option("--group", help=f"Share group; {_DEFAULT_GROUP} when left out.")
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Stop when no record came for so long.")
@click.option("--reject", is_flag=True, help="Reject every record instead of accepting it.")
@click.option("--release", is_flag=True, help="Release every record instead of accepting it.")
@click.option(
    "--reject-message-on-error", is_flag=True, help="Reject records that cannot be written instead of stopping."
)
@click.option(
    "--formatter-property", "properties", multiple=True, metavar="NAME=VALUE", help="For example print.key=true."
)
@click.option(
    "--command-property", "extra", multiple=True, metavar="NAME=VALUE", help="A consumer setting; repeatable."
)
@click.option("--enable-systest-events", is_flag=True, help="Print shutdown_complete at the end.")
@connection_options
@output_option
def consume(
    *,
    topic: str,
    group: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    reject: bool,
    release: bool,
    reject_message_on_error: bool,
    properties: tuple[str, ...],
    extra: tuple[str, ...],
    enable_systest_events: bool,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Write the records of a topic as a member of a share group, one per line, and acknowledge each.

    While the cluster or the topic is not there, it says so on standard error and waits. Exit codes: 0 done, 1 an error,
    also when --timeout-ms is over and the cluster or the topic is still not there, 130 interrupted.
    """
    if reject and release:
        raise UsageFailure('Option "[reject]" can\'t be used with option "[release]"')
    formatter = Formatter(pairs(properties))
    write: Callable[[Message], str] = formatter.line if output == "text" else lambda message: document(message) + "\n"
    given = _with_group(settings(bootstrap_server, command_config, extra), group)
    done = AcknowledgeType.REJECT if reject else AcknowledgeType.RELEASE if release else AcknowledgeType.ACCEPT
    console = _Console(write, done, reject_message_on_error, max_messages)
    lookout = Lookout(lambda: find_trouble(given, topic), warn, time.monotonic())
    try:
        with failures("Consuming"), clients.open_client(ShareConsumer, given) as consumer:
            consumer.subscribe([topic])
            console.run(consumer, timeout_ms, lookout)
    finally:
        click.echo(f"Processed a total of {console.processed} messages", err=True)
        if enable_systest_events:
            click.echo("shutdown_complete")
    finish(console.ok)


class _Console:
    """Writes and acknowledges records until the limit, the time-out, or Ctrl-C."""

    def __init__(
        self, write: Callable[[Message], str], done: AcknowledgeType, reject_on_error: bool, limit: int | None
    ) -> None:
        self.processed = 0
        self.ok = True
        self._write = write
        self._done = done
        self._reject_on_error = reject_on_error
        self._limit = limit

    def run(self, consumer: ShareConsumer, timeout_ms: int | None, lookout: Lookout) -> None:
        """Until there is enough, or nothing came for `timeout_ms`. Raises KafkaError."""
        patience_s = float("inf") if timeout_ms is None else timeout_ms / 1000
        last = time.monotonic()
        while self._goes_on and time.monotonic() - last < patience_s:
            messages = consumer.poll(min(1.0, max(0.0, patience_s - (time.monotonic() - last))))
            if messages:
                last = time.monotonic()
                lookout.heard(last)
            elif self._goes_on:
                lookout.silent(time.monotonic())
            for message in messages:
                self._handle(consumer, message)
        consumer.commit_sync()
        if self._goes_on and lookout.gave_up():
            self.ok = False

    @property
    def _goes_on(self) -> bool:
        return self.ok and (self._limit is None or self.processed < self._limit)

    def _handle(self, consumer: ShareConsumer, message: Message) -> None:
        if not self._goes_on:
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
            return
        try:
            error = message.error()
            if error is not None and not isinstance(error, DeserializationError):
                raise ValueError(error.message)
            click.echo(self._write(message), nl=False)
        except ValueError as problem:
            where = f"{message.topic()}-{message.partition()} offset {message.offset()}"
            click.echo(f"Error: {where} cannot be written: {problem}", err=True)
            self.ok = self._reject_on_error
            consumer.acknowledge(message, AcknowledgeType.REJECT if self._reject_on_error else AcknowledgeType.RELEASE)
            return
        consumer.acknowledge(message, self._done)
        self.processed += 1


def _with_group(given: dict[str, str], group: str | None) -> dict[str, str]:
    """CT-32: explicit mode, the default client id, and one group id from all sources."""
    named = given.get("group.id")
    if group is not None and named is not None and group != named:
        raise UsageFailure(f"--group is {group!r} but the settings say group.id={named}; give one of them")
    return (
        {"client.id": _DEFAULT_GROUP}
        | given
        | {
            "group.id": group or named or _DEFAULT_GROUP,
            "share.acknowledgement.mode": "explicit",
        }
    )
