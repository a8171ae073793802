"""`sharegroups transactions abort`: aborts a transaction that a producer has left open (CT-133)."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from kip932.errors import InvalidTxnStateError, KafkaError, KafkaStorageError, TransactionalIdNotFoundError
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import TransactionDescription
from sharegroups.cli.groups.asking import undecided
from sharegroups.cli.output import (
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin
from sharegroups.cli.transactions.naming import COMMAND, TRANSACTIONAL_ID, document, error_text, partitions_text
from sharegroups.insight.figures import age

#: Errors that concern the id; any other error fails the whole command.
_ID_ERRORS = (InvalidTxnStateError, KafkaStorageError, TransactionalIdNotFoundError)


@click.command()
@click.option("--transactional-id", "name", required=True, type=TRANSACTIONAL_ID, help="The id.")
@connection_options
@output_option
def abort(name: str, bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """Abort a transaction that a producer has left open.

    Its records are never delivered to groups with share.isolation.level=read_committed. The producer is fenced: if it
    still runs, its next call fails. A new one may start with the same transactional.id.
    """
    given = settings(bootstrap_server, command_config)
    command = f"sharegroups transactions describe --transactional-id {quote(name)}"
    problem: str | None = None
    with failures(COMMAND), open_reachable_admin(given) as admin:
        try:
            with undecided(f"The transaction of {name} may be aborted. See: {command}"):
                known = admin.abort_transaction(name)
        except _ID_ERRORS as error:
            known, problem = None, error_text(admin, name, error)
            print_stderr(problem)
        if known is not None and _left(admin, name):
            print_stderr(f"Some of its partitions have no marker yet; the cluster goes on writing them. See: {command}")
    _print(name, known, problem, output)
    finish(known is not None)


def _left(admin: Admin, name: str) -> bool:
    """Return whether the abort is decided but not yet complete in every partition."""
    found = admin.describe_transactions([name])[name]
    return not isinstance(found, KafkaError) and found.state == "PrepareAbort"


def _print(name: str, known: TransactionDescription | None, problem: str | None, output: str) -> None:
    if output == "json":
        shown = None if known is None else document(known)
        print_json({"transactional_id": name, "aborted": known is not None, "message": problem, "transaction": shown})
    elif known is not None:
        since = "" if known.open_ms is None else f", open for {age(known.open_ms)}"
        click.echo(
            f"Aborted the transaction of {printable(name)} (producer {known.producer_id}, epoch {known.producer_epoch}"
            f"{since}) in {printable(partitions_text(known))}. Its producer is fenced."
        )
