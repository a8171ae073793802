"""`sharegroups transactions describe`: prints the stored state of transactional ids (CT-132)."""

from __future__ import annotations

from pathlib import Path

import click

from kip932.errors import KafkaError
from sharegroups.admin_values import TransactionDescription
from sharegroups.cli.columns import legend
from sharegroups.cli.dlq.times import time_text
from sharegroups.cli.output import (
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
from sharegroups.cli.transactions.naming import COMMAND, TRANSACTIONAL_ID, document, error_text, partitions_text
from sharegroups.insight.figures import age

_HEADER = (
    "TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "EPOCH", "STATE", "TIMEOUT", "STARTED", "OPEN-FOR", "PARTITIONS",
)  # fmt: skip


@click.command(epilog=legend("sharegroups transactions describe"))
@click.option(
    "--transactional-id", "names", multiple=True, required=True, type=TRANSACTIONAL_ID, help="The id; repeatable."
)
@connection_options
@output_option
def describe(names: tuple[str, ...], bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """Describe transactional ids: their state and, if a transaction is open, its partitions and when it started."""
    given = settings(bootstrap_server, command_config)
    with failures(COMMAND), open_reachable_admin(given) as admin:
        found = admin.describe_transactions(names)
        errors = {
            name: error_text(admin, name, known) for name, known in found.items() if isinstance(known, KafkaError)
        }
    described = [known for known in found.values() if isinstance(known, TransactionDescription)]
    for text in errors.values():
        print_stderr(text)
    if output == "json":
        print_json([document(known) for known in described])
    elif described:
        print_table(_HEADER, [_row(known) for known in described], (18, 12, 20, 8, 15, 10, 20, 15, 0))
        click.echo()
    finish(not errors)


def _row(known: TransactionDescription) -> tuple[object, ...]:
    return (
        known.transactional_id,
        known.coordinator,
        known.producer_id,
        known.producer_epoch,
        known.state,
        f"{known.timeout_ms / 1_000:g} s",
        "-" if known.started_ms is None else time_text(known.started_ms),
        age(known.open_ms) or "-",
        partitions_text(known),
    )
