"""`sharegroups groups list`: prints the share groups with their lag (CT-156), or as Kafka does (CT-20 to CT-22)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from kip932.errors import KafkaError, UnsupportedVersionError
from kip932.ids import PROGRESS_ROWS_MAX
from sharegroups.admin import Admin
from sharegroups.admin_values import GroupListing, GroupOffsets, ListGroupsResult
from sharegroups.cli.columns import legend
from sharegroups.cli.groups.asking import COMMAND, reached, timeout_option, warnings_suppressed
from sharegroups.cli.kafka_layout import KafkaLayout
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    is_complete,
    note_none,
    output_option,
    print_json,
    print_names,
    print_stderr,
    print_table,
)
from sharegroups.insight.rows import GroupRow, groups_of, is_cut, uncounted
from sharegroups.share_progress import ProgressPage

_STATES: Final = {"empty": "Empty", "stable": "Stable", "dead": "Dead"}
_SHOWN: Final = 1_000
#: How many groups one request for progress names.
_GROUPS_ASKED: Final = 500
#: The maximum number of groups, not counted by any leader, that are requested from their coordinators.
_STORED_MAX: Final = 500


@click.command("list", epilog=legend("sharegroups groups list"))
@click.option("--state", is_flag=False, flag_value="", help="Only groups in these states, a comma list.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"The first N groups; {_SHOWN:,} in a table.")
@click.option("--all", "everything", is_flag=True, help="All groups, however many there are.")
@timeout_option
@connection_options
@output_option
def list_(
    *,
    state: str | None,
    limit: int | None,
    everything: bool,
    timeout: int,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """List the share groups with their members and their lag, the largest lag first."""
    wanted = _states(state) if state else None
    if everything and limit is not None:
        raise UsageFailure("Option [list] takes one of these options: [limit], [all]")
    if not everything and limit is None and output == "text":
        limit = _SHOWN
    as_kafka = output == "text" and KafkaLayout.META in click.get_current_context().meta
    rows: Sequence[GroupRow] = ()
    known = True
    with warnings_suppressed(), failures(COMMAND), reached(bootstrap_server, command_config, timeout) as admin:
        listed = admin.list_groups(wanted, ["share"])
        if not as_kafka:
            rows, known = _rows(admin, listed, limit)
    if as_kafka:
        _print_as_kafka(listed, with_states=state is not None)
    elif output == "json":
        print_json([_document(row) for row in rows])
    elif rows:
        _print(rows, len(listed.valid()))
    complete = is_complete(listed)
    if complete and not listed.valid():
        note_none(f"share group{f' with the state {state}' if state else ''}")
    finish(complete and known)


def _rows(admin: Admin, listed: ListGroupsResult, limit: int | None) -> tuple[Sequence[GroupRow], bool]:
    """Return the first rows, and whether their figures are complete; if not, the cause was printed."""
    try:
        page = admin.list_share_progress(limit=PROGRESS_ROWS_MAX)
        if is_cut(page):
            shown = {row.group for row in groups_of(page, listed)[:limit]}
            listed = ListGroupsResult([group for group in listed.valid() if group.group_id in shown])
            page = _progress_of(admin, listed.valid())
    except UnsupportedVersionError:
        print_stderr("Note: these nodes are of an older version and do not report lags; groups describe does.")
        return groups_of(ProgressPage((), 0, ()), listed)[:limit], True
    except KafkaError as error:
        print_stderr(f"Error: The lags are not known: {error.name}: {error.message}")
        return groups_of(ProgressPage((), 0, ()), listed)[:limit], False
    for address in page.missing:
        print_stderr(f"Error: Node {address} did not answer; sums without its partitions are marked ≥.")
    return groups_of(page, listed, _stored(admin, uncounted(page, listed)))[:limit], not page.missing


def _progress_of(admin: Admin, groups: Sequence[GroupListing]) -> ProgressPage:
    """Return the progress of these groups alone, so that no row of theirs is left out for those of others."""
    names = [group.group_id for group in groups]
    pages = [
        admin.list_share_progress(names[at : at + _GROUPS_ASKED], limit=PROGRESS_ROWS_MAX)
        for at in range(0, len(names), _GROUPS_ASKED)
    ]
    rows = tuple(row for page in pages for row in page.rows)
    missing = sorted({address for page in pages for address in page.missing})
    return ProgressPage(rows, sum(page.total for page in pages), tuple(missing))


def _stored(admin: Admin, names: Sequence[str]) -> dict[str, GroupOffsets]:
    """Return the stored offsets of groups that no leader counts, as far as the cluster returns them."""
    found = admin.list_share_group_offsets(dict.fromkeys(names[:_STORED_MAX])) if names else {}
    return {name: offsets for name, offsets in found.items() if isinstance(offsets, GroupOffsets)}


def _print_as_kafka(listed: ListGroupsResult, *, with_states: bool) -> None:
    if with_states:
        print_table(("GROUP", "STATE"), [(group.group_id, group.state) for group in listed.valid()], (15, 0))
        click.echo()
    else:
        print_names(group.group_id for group in listed.valid())


def _print(rows: Sequence[GroupRow], count: int) -> None:
    cells = [(row.group, row.state, row.members.text, row.topics.text, row.lag.text, row.oldest_text) for row in rows]
    print_table(("GROUP", "STATE", "MEMBERS", "TOPICS", "LAG", "OLDEST"), cells, (15, 8, 8, 7, 12, 0))
    click.echo()
    if count > len(rows):
        click.echo(f"… and {count - len(rows):,} more, sorted by lag; --all")


def _document(row: GroupRow) -> dict[str, object]:
    return {
        "group": row.group,
        "state": row.state,
        "members": row.members.value,
        "topics": row.topics.value,
        "lag": row.lag.value,
        "lag_at_least": row.lag.at_least,
        "oldest_age_ms": row.oldest_ms.value,
    }


def _states(text: str) -> list[str]:
    """Parse the states, ignoring case (CT-20). Raises UsageFailure for an unknown one."""
    names = [part.strip() for part in text.split(",")]
    if any(name.lower() not in _STATES for name in names):
        raise UsageFailure(f"Invalid state list '{text}'. Valid states are: {', '.join(_STATES.values())}")
    return [_STATES[name.lower()] for name in names]
