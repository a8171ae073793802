"""`sharegroups groups describe`: prints the offsets, members or state of share groups (CT-15, CT-134)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple

import click

from kip932.errors import GroupIdNotFoundError, KafkaError
from kip932.ids import TopicPartition
from sharegroups.admin import Admin
from sharegroups.admin_values import (
    ConfigResource,
    GroupOffsets,
    ListGroupsResult,
    ShareGroupDescription,
    ShareGroupOffset,
)
from sharegroups.cli.columns import TABLES, legend
from sharegroups.cli.groups.asking import COMMAND, not_found, reached, timeout_option, warnings_suppressed
from sharegroups.cli.groups.named import NamedByOptions
from sharegroups.cli.groups.tables import document, show
from sharegroups.cli.groups.waiting_letters import note_waiting_letters
from sharegroups.cli.output import (
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    is_complete,
    output_option,
    print_json,
    print_stderr,
)
from sharegroups.insight.figures import age

#: At most this many partitions of a group get an error line each.
_ERRORS_MAX: Final = 5
#: At most this many partitions of all groups together are checked for a transaction that holds them back, those with
#: the oldest records first.
HELD_BACK_CHECKED_MAX: Final = 50
_ISOLATION: Final = "share.isolation.level"


class HeldBack(NamedTuple):
    """A partition whose last stable offset is held back by an open transaction."""

    partition: TopicPartition
    last_stable_offset: int
    transactional_id: str
    open_ms: int

    def text(self, group_id: str) -> str:
        """Return the hint: which records are held up by which transaction, and what to try next."""
        return (
            f"Note: group {group_id!r}, {self.partition.topic}-{self.partition.partition}: records from offset "
            f"{self.last_stable_offset} on wait for a transaction, that of transactional id {self.transactional_id!r}, "
            f"open for {age(self.open_ms)}. See: sharegroups transactions describe --transactional-id "
            f"{quote(self.transactional_id)}"
        )

    def document(self) -> dict[str, object]:
        """Return the same for `--output json`."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "last_stable_offset": self.last_stable_offset,
            "transactional_id": self.transactional_id,
            "open_ms": self.open_ms,
        }


@click.command(cls=NamedByOptions, epilog=legend(*(table for table in TABLES if " groups describe" in table)))
@click.option("--group", "names", multiple=True, type=NAME, help="Group to describe; repeatable.")
@click.option("--all-groups", is_flag=True, help="Describe every share group.")
@click.option("--offsets", is_flag=True, help="Start offsets and lag; the default.")
@click.option("--members", is_flag=True, help="Members and what is assigned to them.")
@click.option("--state", is_flag=True, help="State and coordinator.")
@click.option("--verbose", is_flag=True, help="More columns.")
@timeout_option
@connection_options
@output_option
def describe(
    *,
    names: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    timeout: int,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Describe share groups: offsets, members or state."""
    if bool(names) == all_groups:
        raise UsageFailure("Option [describe] takes one of these options: [group], [all-groups]")
    if offsets + members + state > 1:
        raise UsageFailure("Option [describe] takes at most one of these options: [offsets], [members], [state]")
    with warnings_suppressed(), failures(COMMAND), reached(bootstrap_server, command_config, timeout) as admin:
        listing = ListGroupsResult(()) if names else admin.list_groups(None, ["share"])
        wanted = sorted(set(names)) if names else [group.group_id for group in listing.valid()]
        described = admin.describe_share_groups(wanted)
        known = [name for name in wanted if not isinstance(described[name], KafkaError)]
        absent = not_found(admin, [name for name in wanted if isinstance(described[name], GroupIdNotFoundError)])
        found = {} if members or state else admin.list_share_group_offsets(dict.fromkeys(known), verbose)
        held_back = held_back_by_transactions(admin, found) if verbose else {}
    ok = is_complete(listing)
    documents: list[dict[str, object]] = []
    for name in wanted:
        group = described[name]
        problem = found.get(name) if isinstance(group, ShareGroupDescription) else group
        if isinstance(problem, KafkaError):
            print_stderr(f"Error: {COMMAND} failed due to {absent.get(name, problem.message)}")
            ok = False
        elif isinstance(group, ShareGroupDescription):
            listed = found.get(name, GroupOffsets())
            assert isinstance(listed, GroupOffsets)
            ok &= _print_left_out(name, listed)
            documents.append(document(group, listed) | _held_back_document(held_back.get(name)))
            if output == "text":
                show(group, listed, members=members, state=state, verbose=verbose)
                for each in held_back.get(name, ()):
                    print_stderr(each.text(name))
                note_waiting_letters(name, listed)
    if output == "json":
        print_json(documents)
    finish(ok)


def _held_back_document(held_back: list[HeldBack] | None) -> dict[str, object]:
    return {} if held_back is None else {"waits_for_transactions": [each.document() for each in held_back]}


def _print_left_out(group_id: str, listed: GroupOffsets) -> bool:
    """Print which partitions are left out, and why. Returns True when none are."""
    errors = sorted(listed.errors.items())
    for (topic, number), error in errors[:_ERRORS_MAX]:
        print_stderr(f"Error: group {group_id!r}, {topic}-{number}: {error.name}: {error.message}")
    if len(errors) > _ERRORS_MAX:
        print_stderr(
            f"Error: group {group_id!r}: {len(errors) - _ERRORS_MAX} more partitions; --output json names all of them"
        )
    return not errors


def held_back_by_transactions(
    admin: Admin, found: Mapping[str, GroupOffsets | KafkaError]
) -> dict[str, list[HeldBack]]:
    """Return by group the partitions with a lag that are held back by a transaction (CT-134). Since this is only a
    hint, partitions that cannot be checked now are left out."""
    held_back: dict[str, list[HeldBack]] = {name: [] for name in found}
    offsets = {name: listed for name, listed in found.items() if isinstance(listed, GroupOffsets)}
    committed = _read_committed(admin, offsets)
    waiting = [(name, *each) for name in committed for each in _with_lag(offsets[name])]
    waiting.sort(key=lambda each: -(each[2].oldest_age_ms or 0) if each[2] else 0)
    for name, partition, entry in waiting[:HELD_BACK_CHECKED_MAX]:
        with suppress(KafkaError):
            start = entry.start_offset if entry is not None else 0
            answer = admin.explain_record(name, partition, max(start, 0))
            if answer.stable_kept_by is not None and answer.last_stable_offset is not None:
                open_ms = answer.stable_kept_ms or 0
                held_back[name].append(HeldBack(partition, answer.last_stable_offset, answer.stable_kept_by, open_ms))
    return {name: sorted(each) for name, each in held_back.items()}


def _with_lag(offsets: GroupOffsets) -> Iterator[tuple[TopicPartition, ShareGroupOffset | None]]:
    for partition, entry in offsets.items():
        if entry is None or entry.lag != 0:
            yield partition, entry


def _read_committed(admin: Admin, groups: Mapping[str, GroupOffsets]) -> list[str]:
    wanted = [ConfigResource.group(name) for name, offsets in groups.items() if any(_with_lag(offsets))]
    if not wanted:
        return []
    with suppress(KafkaError):
        configs = admin.describe_configs(wanted)
        return [
            resource.name
            for resource, found in configs.items()
            if isinstance(found, Mapping) and _ISOLATION in found and found[_ISOLATION].value == "read_committed"
        ]
    return []
