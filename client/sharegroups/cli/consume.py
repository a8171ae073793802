"""`sharegroups consume`: the console share consumer (CT-30 to CT-32)."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click

from sharegroups.cli import clients
from sharegroups.cli.console import Console, ConsoleConsumer
from sharegroups.cli.formatting import Formatter, document
from sharegroups.cli.interrupts import attended
from sharegroups.cli.output import (
    FILE,
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    lines_of,
    output_option,
    pairs,
    print_stderr,
    settings,
)
from sharegroups.cli.stall_warning import Warnings, find_trouble
from sharegroups.messages import AcknowledgeType, Message

_DEFAULT_GROUP = "console-share-consumer"

T = TypeVar("T")


class LineFormatter(Protocol):
    """Turns records into text."""

    def line(self, message: Message) -> str:
        """Return the text of the record, with its line separator. Any exception is a formatting error (CT-32)."""
        ...


#: Creates a formatter from the formatter properties.
MakeFormatter = Callable[[Mapping[str, str]], LineFormatter]
Deserializer = Callable[[bytes], Any]


class NoOpFormatter:
    """Writes nothing; for counting records, or consuming all of them."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        del properties

    def line(self, message: Message) -> str:
        """Return an empty text."""
        return ""


def _number_deserializer(form: str) -> Deserializer:
    return lambda data: struct.unpack(form, data)[0]


#: The formatters that `consume` knows by Kafka's class names; users name their own as module:name.
FORMATTERS: Final[Mapping[str, MakeFormatter]] = {
    "DefaultMessageFormatter": Formatter,
    "NoOpMessageFormatter": NoOpFormatter,
}
DESERIALIZERS: Final[Mapping[str, Deserializer]] = {
    "ByteArrayDeserializer": bytes,
    "StringDeserializer": bytes.decode,
    "ShortDeserializer": _number_deserializer(">h"),
    "IntegerDeserializer": _number_deserializer(">i"),
    "LongDeserializer": _number_deserializer(">q"),
    "FloatDeserializer": _number_deserializer(">f"),
    "DoubleDeserializer": _number_deserializer(">d"),
    "UUIDDeserializer": lambda data: uuid.UUID(data.decode()),
}


@click.command()
@click.argument("name", metavar="[TOPIC]", required=False, type=NAME)
@click.option("--topic", type=NAME, help="Topic to consume, when it is not given as TOPIC.")
@click.option("--group", type=NAME, help=f"Share group; {_DEFAULT_GROUP} when left out.")
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Stop when no record came for so long.")
@click.option("--reject", is_flag=True, help="Reject every record instead of accepting it.")
@click.option("--release", is_flag=True, help="Release every record instead of accepting it.")
@click.option(
    "--reject-message-on-error", is_flag=True, help="Reject records that cannot be written instead of stopping."
)
@click.option("--key-deserializer", metavar="NAME", help=f"What reads keys: {', '.join(DESERIALIZERS)}, or a function.")
@click.option("--value-deserializer", metavar="NAME", help="What reads values: the same.")
@click.option(
    "--formatter",
    "formatter_name",
    metavar="NAME",
    help=f"What writes records: {', '.join(FORMATTERS)}, or a class of yours, which is made with the formatter "
    "properties and whose line(message) returns the text.",
)
@click.option(
    "--formatter-property", "properties", multiple=True, metavar="NAME=VALUE", help="For example print.key=true."
)
@click.option("--formatter-config", type=FILE, help="File with formatter properties, one name=value per line.")
@click.option(
    "--command-property", "extra", multiple=True, metavar="NAME=VALUE", help="A consumer setting; repeatable."
)
@click.option("--property", "old_properties", multiple=True, hidden=True, deprecated="use --formatter-property")
@click.option("--consumer-property", "old_extra", multiple=True, hidden=True, deprecated="use --command-property")
@click.option("--consumer-config", "old_config", type=FILE, hidden=True, deprecated="use --command-config")
@click.option("--enable-systest-events", is_flag=True, help="Print shutdown_complete at the end.")
@connection_options
@output_option
def consume(
    *,
    name: str | None,
    topic: str | None,
    group: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    reject: bool,
    release: bool,
    reject_message_on_error: bool,
    key_deserializer: str | None,
    value_deserializer: str | None,
    formatter_name: str | None,
    properties: tuple[str, ...],
    formatter_config: Path | None,
    extra: tuple[str, ...],
    old_properties: tuple[str, ...],
    old_extra: tuple[str, ...],
    old_config: Path | None,
    enable_systest_events: bool,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Write the records of TOPIC as a member of a share group, one per line, and acknowledge each.

    While the cluster, the topic or the group's coordinator is unavailable, it says so on standard error and waits. Exit
    codes: 0 done, 1 an error, also when one of them is still unavailable after --timeout-ms, 130 after Ctrl-C, 143
    after SIGTERM. After such a signal it acknowledges the records that it has written, releases the rest and leaves the
    group; a second signal ends it immediately.

    Values are written unchanged; for a terminal, control characters are escaped as \\x1b and the like. To use your own
    formatter, deserializer or function, give it as module:name; the module must be on PYTHONPATH.
    """
    topic = _topic(name, topic)
    if command_config is not None and old_config is not None:
        raise UsageFailure("--consumer-config is the old name of --command-config; give one of them")
    write = _writer(output, formatter_name, pairs([*lines_of(formatter_config), *old_properties, *properties]))
    given = _with_group(settings(bootstrap_server, command_config or old_config, [*old_extra, *extra]), group)
    given |= _deserializers(key_deserializer, value_deserializer)
    if max_messages is not None:  # records fetched beyond the limit would be released with a higher delivery count
        given = {"share.acquire.mode": "record_limit"} | given
    console = Console(write, _outcome(reject, release), reject_message_on_error, max_messages)
    try:
        with failures("Consuming"), Warnings("--topic" if name is None else "TOPIC") as warnings:
            consumer = clients.open_client(ConsoleConsumer, given)

            def work() -> None:
                with console.closing(consumer):
                    consumer.subscribe([topic])
                    console.run(consumer, timeout_ms)
                    if console.goes_on and (trouble := find_trouble(given, topic)) is not None:
                        warnings.last(trouble)
                        console.ok = False

            attended(work, lambda ended: console.leave(consumer, ended))
    finally:
        click.echo(f"Processed a total of {console.processed} messages", err=True)
        if enable_systest_events:
            click.echo("shutdown_complete")
    finish(console.ok)


def _topic(name: str | None, option: str | None) -> str:
    if name is not None and option is not None and name != option:
        raise UsageFailure(f"TOPIC is {name!r} but --topic is {option!r}; give one of them")
    topic = name if name is not None else option
    if topic is None:
        raise UsageFailure("Missing option '--topic'; or give the topic by itself: sharegroups consume TOPIC")
    return topic


def _outcome(reject: bool, release: bool) -> AcknowledgeType:
    """Return the acknowledgement type for a record that was written."""
    if reject and release:
        raise UsageFailure('Option "[reject]" can\'t be used with option "[release]"')
    return AcknowledgeType.REJECT if reject else AcknowledgeType.RELEASE if release else AcknowledgeType.ACCEPT


def _writer(output: str, formatter_name: str | None, properties: dict[str, str]) -> Callable[[Message], str]:
    """Return the function that turns a record into a line."""
    if output == "json" and formatter_name is not None:
        raise UsageFailure("--output json and --formatter exclude each other; give one of them")
    formatter = _known_or_imported("--formatter", formatter_name or "DefaultMessageFormatter", FORMATTERS)(properties)
    return formatter.line if output == "text" else lambda message: document(message) + "\n"


def _known_or_imported(option: str, name: str, known: Mapping[str, T]) -> T:
    """Return the entry of `known` with this name, with or without Kafka's package; else the object at module:name.

    Raises UsageFailure when there is none.
    """
    found = known.get(name.rpartition(".")[2])
    if found is not None:
        return found
    module, colon, path = name.partition(":")
    if not colon:
        raise UsageFailure(f"{option} {name!r} is not known; known: {', '.join(known)}, or one of yours as module:name")
    try:
        own: Any = import_module(module)
        for part in path.split("."):
            own = getattr(own, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageFailure(f"{option} {name!r} cannot be loaded: {error}. Is its folder on PYTHONPATH?") from error
    if not callable(own):
        raise UsageFailure(f"{option} {name!r} is a {type(own).__name__}; expected a class or a function")
    made: T = own
    return made


def _deserializers(key: str | None, value: str | None) -> dict[str, Deserializer]:
    named = {"key": key, "value": value}
    return {
        f"{part}.deserializer": _known_or_imported(f"--{part}-deserializer", name, DESERIALIZERS)
        for part, name in named.items()
        if name is not None
    }


def _with_group(given: dict[str, Any], group: str | None) -> dict[str, Any]:
    """Set explicit mode, a default client id, and the group id that --group or the settings give (CT-32).

    Without a group id, use the default group and print its name.
    """
    named = given.get("group.id")
    if group is not None and named is not None and group != named:
        raise UsageFailure(f"--group is {group!r} but the settings say group.id={named}; give one of them")
    if group is None and not named:
        print_stderr(
            f"No --group is given: consuming as a member of share group {_DEFAULT_GROUP!r}, from the offsets that it "
            "has reached. A --group of your own has its own offsets."
        )
    return (
        {"client.id": _DEFAULT_GROUP}
        | given
        | {
            "group.id": group or named or _DEFAULT_GROUP,
            "share.acknowledgement.mode": "explicit",
        }
    )
