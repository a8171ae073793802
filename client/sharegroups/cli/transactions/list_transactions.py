"""`sharegroups transactions list`: prints the transactional ids, or only those with a hanging transaction (CT-131)."""

from __future__ import annotations

from pathlib import Path

import click

from sharegroups.admin_values import TransactionListing
from sharegroups.administration.transaction_admin import STATES
from sharegroups.cli.columns import legend
from sharegroups.cli.dlq.times import duration_ms
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    print_table,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin
from sharegroups.cli.transactions.naming import COMMAND
from sharegroups.insight.figures import age

_STATES = {state.lower(): state for state in STATES.split(", ")}


@click.command("list", epilog=legend("sharegroups transactions list"))
@click.option("--state", help=f"Only ids in these states, a comma list of {STATES}.")
@click.option("--producer-id", "producer_ids", multiple=True, type=click.IntRange(min=1), help="Only of this producer.")
@click.option(
    "--open-longer-than",
    "longer",
    metavar="DURATION",
    help="Only transactions that are open for longer, as in 90s, 15m, 2h or 7d.",
)
@connection_options
@output_option
def list_(
    *,
    state: str | None,
    producer_ids: tuple[int, ...],
    longer: str | None,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """List transactional ids: those that a producer has used within transactional.id.expiration.ms.

    A transaction that stays open for long holds up groups that read only committed records; --open-longer-than 5m finds
    it.
    """
    states = None if state is None else _states(state)
    longer_ms = None if longer is None else duration_ms("--open-longer-than", longer)
    given = settings(bootstrap_server, command_config)
    with failures(COMMAND), open_reachable_admin(given) as admin:
        found = admin.list_transactions(states, producer_ids or None, longer_ms)
    for each in found:
        if each.error is not None:
            print_stderr(f"Error: {each.transactional_id}: {each.error.message}")
    if output == "json":
        print_json([_document(each) for each in found])
    elif found:
        header = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE", "OPEN-FOR")
        print_table(header, [_row(each) for each in found], (18, 12, 20, 15, 0))
        click.echo()
    else:
        print_stderr("No such transaction.")
    finish(all(each.error is None for each in found))


def _states(text: str) -> list[str]:
    """Parse the states, ignoring case. Raises UsageFailure for an unknown one."""
    names = [part.strip().lower() for part in text.split(",")]
    if any(name not in _STATES for name in names):
        raise UsageFailure(f"Invalid state list '{text}'. Valid states are: {STATES}")
    return [_STATES[name] for name in names]


def _row(each: TransactionListing) -> tuple[object, ...]:
    producer_id = "-" if each.error is not None else each.producer_id
    return each.transactional_id, each.coordinator, producer_id, each.state, age(each.open_ms) or "-"


def _document(each: TransactionListing) -> dict[str, object]:
    return {
        "transactional_id": each.transactional_id,
        "coordinator": each.coordinator,
        "producer_id": None if each.error is not None else each.producer_id,
        "producer_epoch": None if each.error is not None else each.producer_epoch,
        "state": each.state,
        "open_ms": each.open_ms,
        "error": None if each.error is None else each.error.message,
    }
