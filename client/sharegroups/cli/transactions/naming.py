"""Shared by the transaction commands: the argument for an id, the error texts, and the output."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import click

from kip932.errors import KafkaError, TransactionalIdNotFoundError
from kip932.ids import TRANSACTIONAL_ID_MAX
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin
from sharegroups.admin_values import TransactionDescription
from sharegroups.cli.output import Name

#: The action named in an error that concerns no single id.
COMMAND: Final = "Executing transactions command"
_ALL: Final = "All of them: sharegroups transactions list"


class TransactionalId(Name):
    """A transactional id: any text of 1 to 255 bytes that is not blank."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the id unchanged. Raises click.BadParameter."""
        size = len(value.encode(errors="surrogateescape"))
        if size > TRANSACTIONAL_ID_MAX:
            self.fail(f"it has {size} bytes; a transactional id has at most {TRANSACTIONAL_ID_MAX}", param, ctx)
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("it is not UTF-8, which a transactional id is", param, ctx)
        return super().convert(value, param, ctx)


TRANSACTIONAL_ID: Final = TransactionalId()


def error_text(admin: Admin, transactional_id: str, error: KafkaError) -> str:
    """Return the error line for an id; if the id is unknown, it names the most similar existing one."""
    if not isinstance(error, TransactionalIdNotFoundError):
        return f"Error: {transactional_id}: {error.name}: {error.message}"
    known: list[str] = []
    with suppress(KafkaError):  # only the hint is missing then
        known = [each.transactional_id for each in admin.list_transactions()]
    return f"Error: {error.message}.{did_you_mean(transactional_id, known)} {_ALL}"


def partitions_text(known: TransactionDescription) -> str:
    """Return `topic:0,1;topic2:3`, topics sorted, as in the column ASSIGNMENT of a group (CT-23i)."""
    parts = [f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in _by_topic(known).items()]
    return ";".join(parts) or "-"


def _by_topic(known: TransactionDescription) -> Mapping[str, list[int]]:
    """Return the partitions of a transaction, by topic."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(known.partitions):
        found.setdefault(topic, []).append(number)
    return found


def document(known: TransactionDescription) -> dict[str, object]:
    """Return a transaction for `--output json`."""
    return {
        "transactional_id": known.transactional_id,
        "coordinator": known.coordinator,
        "producer_id": known.producer_id,
        "producer_epoch": known.producer_epoch,
        "state": known.state,
        "timeout_ms": known.timeout_ms,
        "started_ms": known.started_ms,
        "open_ms": known.open_ms,
        "partitions": _by_topic(known),
    }
