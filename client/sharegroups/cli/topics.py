"""`sharegroups topics`: the actions create, alter, delete, list and describe (CM-72, CT-93); delete-records has its own
module."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import click

from kip932.errors import KafkaError, UnknownTopicOrPartitionError
from kip932.ids import TopicPartition, topic_id_text
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigResource, NewTopic, TopicDescription
from sharegroups.cli.columns import legend
from sharegroups.cli.config_changes import change, changes_of
from sharegroups.cli.delete_records import delete_records
from sharegroups.cli.output import (
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    note_none,
    output_option,
    pairs,
    print_errors,
    print_json,
    print_names,
    print_stderr,
    print_table,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin
from sharegroups.cli.read_records import read_records
from sharegroups.cli.similar_topics import similar_topics
from sharegroups.cli.topic_sizes import (
    TopicSizes,
    held,
    note_unknown,
    now_ms,
    print_stores,
    print_topics,
    size_document,
    sizes_of,
    topic_document,
)


@click.group()
def topics() -> None:
    """Create, change and describe topics."""


topics.add_command(delete_records)
topics.add_command(read_records)


def _admin(bootstrap_server: str, command_config: Path | None) -> AbstractContextManager[Admin]:
    return open_reachable_admin(settings(bootstrap_server, command_config))


@topics.command()
@click.argument("names", nargs=-1, required=True, type=NAME)
@click.option("--partitions", default=1, show_default=True, type=click.IntRange(min=1), help="Number of partitions.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A topic config; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Be content with a topic that exists already.")
@connection_options
@output_option
def create(
    *,
    names: tuple[str, ...],
    partitions: int,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Create topics."""
    with failures("Creating topics"), _admin(bootstrap_server, command_config) as admin:
        errors = admin.create_topics([NewTopic(name, partitions, pairs(configs)) for name in names])
    there: dict[str, str] = {}
    if if_not_exists:
        there = {
            name: "There was already topic"
            for name, error in errors.items()
            if error is not None and error.name == "TOPIC_ALREADY_EXISTS"
        }
        errors = {name: None if name in there else error for name, error in errors.items()}
    finish(print_errors(errors, "Created topic", output, there))


@topics.command()
@click.argument("name", type=NAME)
@click.option("--partitions", type=click.IntRange(min=1), help="New number of partitions; it only grows.")
@click.option("--config", "added", multiple=True, metavar="NAME=VALUE", help="A config to set; repeatable.")
@click.option("--delete-config", "deleted", multiple=True, metavar="NAME",
              help="A config to delete, so that the default is in force again; repeatable.")  # fmt: skip
@connection_options
@output_option
def alter(
    *,
    name: str,
    partitions: int | None,
    added: tuple[str, ...],
    deleted: tuple[str, ...],
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Add partitions to a topic and change its configs; if any of this is refused, nothing is changed.

    `sharegroups configs describe --topic NAME --all` shows all configs.
    """
    changes, resource = changes_of(added, deleted), ConfigResource.topic(name)
    if not changes and partitions is None:
        raise UsageFailure("nothing to alter; give --partitions, --config or --delete-config")
    counts = {} if partitions is None else {name: partitions}
    with failures(f"Altering topic {name}"), _admin(bootstrap_server, command_config) as admin:
        errors = admin.create_partitions(counts, validate_only=bool(changes)) if counts else {name: None}
        if changes and errors[name] is None:
            change(admin, resource, changes)
            errors = admin.create_partitions(counts) if counts else errors
    finish(print_errors(errors, "Altered topic", output))


@topics.command()
@click.argument("names", nargs=-1, required=True, type=NAME)
@connection_options
@output_option
def delete(names: tuple[str, ...], bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """Delete topics with their records."""
    with failures("Deleting topics"), _admin(bootstrap_server, command_config) as admin:
        errors = admin.delete_topics(names)
        near = similar_topics(admin, [name for name, error in errors.items() if _is_unknown(error)])
    finish(print_errors(errors, "Deleted topic", output, hints=near))


@topics.command("list")
@connection_options
@output_option
def list_(bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """List the names of all topics."""
    with failures("Listing topics"), _admin(bootstrap_server, command_config) as admin:
        names = sorted(admin.list_topics())
    if output == "json":
        print_json(names)
    else:
        print_names(names)
    if not names:
        note_none("topic")


@topics.command(epilog=legend("sharegroups topics describe"))
@click.argument("names", nargs=-1, type=NAME)
@connection_options
@output_option
def describe(names: tuple[str, ...], bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """Describe topics, or all topics if none is named: what they hold, for how long, who leads them, and what is left
    of the store."""
    with failures("Describing topics"), _admin(bootstrap_server, command_config) as admin:
        found = sorted(admin.list_topics(names or None).values(), key=lambda topic: topic.name)
        near = similar_topics(admin, [topic.name for topic in found if _is_unknown(topic.error)])
        good = [topic for topic in found if topic.error is None]
        sizes = sizes_of(admin, good, named=bool(names))
    if not found:
        note_none("topic")
    if output == "json":
        print_json([_document(topic, sizes) for topic in found])
    elif good or not names:
        print_topics(good, [topic_id_text(topic.topic_id) for topic in good], sizes)
        _print_partitions(good, sizes)
        print_stores(sizes)
    note_unknown(sizes)
    for name in sorted(name for name in names if name in sizes.retention and sizes.retention[name].consumed):
        print_stderr(
            f"Note: Topic {name} has sharegroups.retention=consumed: what every share group has finished is deleted."
        )
    for topic in found:
        if topic.error is not None:
            message = topic.error.message
            if meant := near.get(topic.name):
                message = f"{message.rstrip('.')}.{meant}"
            print_stderr(f"Error: {topic.name}: {topic.error.name}: {message}")
    finish(all(topic.error is None for topic in found))


def _print_partitions(topics: Iterable[TopicDescription], sizes: TopicSizes) -> None:
    now = now_ms()
    rows = [
        (
            topic.name,
            part.partition,
            _number(part.leader),
            _number(part.leader_epoch),
            *held([sizes.logs.get(TopicPartition(topic.name, part.partition))], now),
        )
        for topic in topics
        for part in topic.partitions
    ]
    header = ("TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "RECORDS", "BYTES", "OLDEST")
    print_table(header, rows, (15, 10, 10, 13, 15, 15, 0))


def _is_unknown(error: KafkaError | None) -> bool:
    return isinstance(error, UnknownTopicOrPartitionError)


def _number(value: int) -> object:
    return value if value >= 0 else "-"


def _document(topic: TopicDescription, sizes: TopicSizes) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "error": topic.error.name if topic.error else None,
        **topic_document(topic, sizes),
        "partitions": [
            {
                "partition": part.partition,
                "leader": part.leader if part.leader >= 0 else None,
                "leader_epoch": part.leader_epoch if part.leader_epoch >= 0 else None,
                "error": part.error.name if part.error else None,
                **size_document(sizes.logs.get(TopicPartition(topic.name, part.partition))),
            }
            for part in topic.partitions
        ],
    }
