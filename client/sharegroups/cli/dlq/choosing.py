"""The options that choose dead letters, and the check whether a dead letter matches them (CT-120, CT-122)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from sharegroups.cli.dlq.core.dead_letters import Letter
from sharegroups.cli.dlq.times import time_ms
from sharegroups.cli.output import NAME, UsageFailure

F = TypeVar("F", bound=Callable[..., Any])
_PARTITION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Where:
    """A topic and one of its partitions; None for all partitions."""

    topic: str
    partition: int | None


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on a dead letter; None for those that do not apply.

    `cause` and `reason` are in lower case. A dead letter passes if it was stored at `since_ms` or later, and before
    `until_ms`: ms since 1970.
    """

    group: str | None = None
    origin: Where | None = None
    cause: str | None = None
    reason: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def has_conditions(self) -> bool:
        """True if there is a condition besides the group."""
        return (self.origin, self.cause, self.reason, self.since_ms, self.until_ms) != (None,) * 5

    def passes(self, letter: Letter, stored_ms: int) -> bool:
        """Return whether a dead letter that was stored at `stored_ms` meets the conditions."""
        if self.group is not None and letter.group != self.group:
            return False
        for text, asked in ((letter.cause, self.cause), (letter.reason, self.reason)):
            if asked is not None and asked not in (text or "").lower():
                return False
        if self.since_ms is not None and stored_ms < self.since_ms:
            return False
        if self.until_ms is not None and stored_ms >= self.until_ms:
            return False
        if self.origin is None:
            return True
        origin = letter.origin
        return (
            origin is not None
            and origin.topic == self.origin.topic
            and self.origin.partition in (None, origin.partition)
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen DLQ topic (None: the DLQ topic of the filters' group), and the filters."""

    where: Where | None
    filters: Filters


def topic_options(function: F) -> F:
    """Add --topic and --group."""
    function = click.option("--group", type=NAME, help="Letters of this group; without --topic in its DLQ topic.")(
        function
    )
    return click.option("--topic", type=NAME, metavar="DLQ[:P]", help="The DLQ topic, or one partition of it.")(
        function
    )


def filter_options(function: F) -> F:
    """Add --origin, --cause, --reason, --since and --until."""
    options = (
        click.option("--origin", type=NAME, metavar="T[:P]", help="Letters about this topic, or one partition of it."),
        click.option("--cause", type=NAME, metavar="TEXT", help="Letters whose cause contains this text."),
        click.option("--reason", type=NAME, metavar="TEXT", help="Letters whose reason contains this text."),
        click.option("--since", metavar="TIME", help="Stored then or later: 2025-07-20T01:20:38, or 2h for 2 h ago."),
        click.option("--until", metavar="TIME", help="Stored before that time."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def choice_of(
    topic: str | None,
    group: str | None,
    *,
    origin: str | None = None,
    cause: str | None = None,
    reason: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Choice:
    """Return the choice that these options express. Raises UsageFailure."""
    if topic is None and group is None:
        raise UsageFailure("which letters? Give --topic DLQ, or --group G for the DLQ topic of a group")
    now_ms = int(time.time() * 1_000)
    since_ms = None if since is None else time_ms("--since", since, now_ms)
    until_ms = None if until is None else time_ms("--until", until, now_ms)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise UsageFailure(f"--since {since} is not before --until {until}; no letter can be stored between them")
    return Choice(
        None if topic is None else where_of("--topic", topic),
        Filters(
            group,
            None if origin is None else where_of("--origin", origin),
            None if cause is None else cause.lower(),
            None if reason is None else reason.lower(),
            since_ms,
            until_ms,
        ),
    )


def where_of(option: str, text: str) -> Where:
    """Parse TOPIC or TOPIC:PARTITION. Raises UsageFailure."""
    topic, colon, number = text.rpartition(":")
    if not colon:
        return Where(text, None)
    if not topic or not (number.isascii() and number.isdecimal()) or int(number) > _PARTITION_MAX:
        raise UsageFailure(f"{option} {text!r}: expected a topic, or one partition of it, as in orders or orders:0")
    return Where(topic, int(number))
