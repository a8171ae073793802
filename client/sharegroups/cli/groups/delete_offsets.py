"""`sharegroups groups delete-offsets`: deletes a group's offsets for topics (CT-17, CT-23h, CT-27)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final

import click

from kip932 import errors
from kip932.errors import KafkaError
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin
from sharegroups.cli.columns import legend
from sharegroups.cli.groups.asking import COMMAND, absent, members_text, reached, timeout_option, undecided
from sharegroups.cli.groups.named import NamedByOptions
from sharegroups.cli.groups.waiting_letters import GROUP_RESTARTS, warn_of_waiting_letters
from sharegroups.cli.output import (
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    print_table,
)

#: Errors that refuse the group as a whole; other failures of the whole call are printed as unknown errors (CT-27).
_GROUP_ERRORS: Final = (
    errors.InvalidGroupIdError,
    errors.GroupIdNotFoundError,
    errors.GroupAuthorizationFailedError,
    errors.NonEmptyGroupError,
    errors.InQuarantineError,
)

Outcomes = Mapping[str, str | None]


@click.command("delete-offsets", cls=NamedByOptions, epilog=legend("sharegroups groups delete-offsets"))
@click.option("--group", "names", multiple=True, type=NAME, help="The group; it must have no members.")
@click.option("--topic", "topics", multiple=True, type=NAME, help="Topic to forget, whole; repeatable.")
@timeout_option
@connection_options
@output_option
def delete_offsets(
    *,
    names: tuple[str, ...],
    topics: tuple[str, ...],
    timeout: int,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Make a group forget topics: which records it has finished, and where it continues.

    If it consumes such a topic again, it starts where a new group does (share.auto.offset.reset).
    """
    group, wanted = _checked(names, topics)
    with failures(COMMAND), reached(bootstrap_server, command_config, timeout) as admin:
        failed: str | None = None
        hint = ""
        again = f"The group may have forgotten them. See: sharegroups groups describe --group {quote(group)}"
        warn_of_waiting_letters(admin, [group], GROUP_RESTARTS, lambda part: part.topic in wanted)
        try:
            with undecided(again):
                found = admin.delete_share_group_offsets(group, wanted)
        except _GROUP_ERRORS as error:
            failed, hint = _refusal(admin, group, error)
        except KafkaError as error:
            failed, hint = f"Encounter some unknown error: {error.name}: {error.message}", again
        outcomes = dict.fromkeys(wanted, failed) if failed else _outcomes(admin, wanted, found)
    if failed:  # errors first, since writing the table fails if the pipe is closed
        print_stderr(f"Error: {failed.rstrip('.')}. {hint}" if hint else f"Error: {failed}")
    else:
        for topic, text in outcomes.items():
            if text is not None:
                print_stderr(f"Error: topic {topic!r}: {text}")
    _print(outcomes, output)
    finish(not any(outcomes.values()))


def _checked(names: tuple[str, ...], topics: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the group and its topics, each once. Raises UsageFailure."""
    if not names or not topics:
        raise UsageFailure("Option [delete-offsets] takes the following options: [group], [topic]; give both")
    if len(set(names)) > 1:
        raise UsageFailure(f"Option [delete-offsets] takes only one [group], found {', '.join(names)}")
    for topic in topics:
        if ":" in topic:
            raise UsageFailure(f"--topic {topic!r}: delete-offsets forgets whole topics; give the topic's name alone")
    return names[0], sorted(set(topics))


def _refusal(admin: Admin, group: str, error: KafkaError) -> tuple[str, str]:
    """Return why the call was refused for the group, and what to try."""
    if isinstance(error, errors.GroupIdNotFoundError):
        return absent(admin, group)
    if isinstance(error, errors.NonEmptyGroupError):
        return "The group is not empty.", members_text(group, 0)
    return error.message, ""


def _outcomes(admin: Admin, topics: list[str], found: Mapping[str, KafkaError | None]) -> dict[str, str | None]:
    """Return the error text of each topic; None for success. A topic that the response omits had no offsets (GC-97)."""
    nothing = "There is no offset information to delete."
    outcomes = {topic: nothing if topic not in found else _said(found[topic]) for topic in topics}
    if failed := [topic for topic, text in outcomes.items() if text is not None]:
        with suppress(KafkaError):  # only the hint is missing then: the outcome is known
            known = list(admin.list_topics())
            missing = [topic for topic in failed if topic not in known]
            outcomes |= {topic: f"This is an unknown topic.{did_you_mean(topic, known)}" for topic in missing}
    return outcomes


def _said(error: KafkaError | None) -> str | None:
    return None if error is None else error.message


def _print(outcomes: Outcomes, output: str) -> None:
    if output == "json":
        print_json([{"topic": topic, "deleted": text is None, "message": text} for topic, text in outcomes.items()])
    else:
        rows = [(topic, "Successful" if text is None else f"Error: {text}") for topic, text in outcomes.items()]
        print_table(("TOPIC", "STATUS"), rows, (15, 0))
        click.echo()
