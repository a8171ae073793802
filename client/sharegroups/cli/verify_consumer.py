"""`sharegroups verify-consumer`: a verifiable share consumer, for tests that account for every record (CT-36,
CT-37)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from sharegroups.admin import Admin
from sharegroups.admin_values import AlterConfig, ConfigResource
from sharegroups.cli import clients
from sharegroups.cli.console import ConsoleConsumer
from sharegroups.cli.interrupts import attended
from sharegroups.cli.output import NAME, UsageFailure, connection_options, failures, settings
from sharegroups.cli.reaching import open_reachable_admin
from sharegroups.cli.stall_warning import Warnings
from sharegroups.cli.verification import Verification, emit
from sharegroups.config import ADMIN
from sharegroups.messages import AcknowledgeType

_KINDS: Final = {kind.name.lower(): kind for kind in AcknowledgeType}


@click.command("verify-consumer")
@click.option("--topic", required=True, type=NAME, help="Topic to consume.")
@click.option("--group-id", required=True, type=NAME, help="Share group.")
@click.option("--max-messages", default=-1, show_default=True, type=click.IntRange(min=-1),
              help="Stop when so many records are acknowledged; -1: never.")  # fmt: skip
@click.option("--acknowledgement-mode", "mode", default="auto", show_default=True,
              type=click.Choice(["auto", "sync", "async"], case_sensitive=False),
              help="sync: wait for each confirmation; async: send it; auto: let the next poll send it.")  # fmt: skip
@click.option("--ack-pattern", metavar="KIND,…",
              help=f"How records are acknowledged, in turn: {', '.join(_KINDS)}; with sync or async.")  # fmt: skip
@click.option("--offset-reset-strategy", "reset", type=click.Choice(["earliest", "latest"]),
              help="Set share.auto.offset.reset of the group first.")  # fmt: skip
@click.option("--verbose", is_flag=True, help="Print each record, too.")
@connection_options
def verify_consumer(
    *,
    topic: str,
    group_id: str,
    max_messages: int,
    mode: str,
    ack_pattern: str | None,
    reset: str | None,
    verbose: bool,
    bootstrap_server: str,
    command_config: Path | None,
) -> None:
    """Consume TOPIC and print its events, one JSON object a line, as Kafka's verifiable consumer does.

    Events: startup_complete, offset_reset_strategy_set, records_consumed, record_data, offsets_acknowledged,
    shutdown_requested, shutdown_complete. It takes no more records than --max-messages, and acknowledges every record
    that it takes, including the last ones. A renewed record is returned again and gets the next type of the pattern; a
    renewal does not count towards --max-messages.

    Exit codes: 0 done, 1 an error, 130 after Ctrl-C, 143 after SIGTERM.
    """
    limit = None if max_messages < 0 else max_messages
    verification = Verification(
        limit, mode, _pattern(ack_pattern, mode), verbose=verbose, prints_types=ack_pattern is not None
    )
    given = settings(bootstrap_server, command_config)
    own = {"group.id": group_id, "share.acknowledgement.mode": "explicit"}
    if limit is not None:  # records beyond the limit would be released with a higher delivery count
        own["share.acquire.mode"] = "record_limit"
    with failures("Verifying"), Warnings():
        consumer = clients.open_client(ConsoleConsumer, given | own)

        def work() -> None:
            emit("startup_complete")
            try:
                if reset is not None:
                    _set_reset(given, group_id, reset)
                consumer.subscribe([topic])
                verification.run(consumer)
            finally:
                try:
                    verification.close(consumer)
                finally:
                    emit("shutdown_complete")

        attended(work, lambda ended: verification.leave(consumer, ended))


def _pattern(text: str | None, mode: str) -> list[AcknowledgeType]:
    """Parse the pattern: the types of acknowledgement, in turn. Raises UsageFailure."""
    if text is None:
        return [AcknowledgeType.ACCEPT]
    if mode == "auto":
        raise UsageFailure("--ack-pattern needs --acknowledgement-mode sync or async; auto accepts every record")
    kinds = [part.strip().lower() for part in text.split(",")]
    for kind in kinds:
        if kind not in _KINDS:
            raise UsageFailure(f"--ack-pattern holds {kind!r}; expected a comma list of {', '.join(_KINDS)}")
    if set(kinds) == {"renew"}:
        raise UsageFailure("--ack-pattern holds nothing but renew, so no record would ever be done; add another kind")
    return [_KINDS[kind] for kind in kinds]


def _set_reset(given: dict[str, Any], group: str, strategy: str) -> None:
    known = {setting.name for setting in ADMIN}
    resource = ConfigResource.group(group)
    with open_reachable_admin({name: value for name, value in given.items() if name in known}) as admin:
        _change(admin, resource, AlterConfig("share.auto.offset.reset", strategy))
    emit("offset_reset_strategy_set", offsetResetStrategy=strategy)


def _change(admin: Admin, resource: ConfigResource, change: AlterConfig) -> None:
    error = admin.incremental_alter_configs({resource: [change]})[resource]
    if error is not None:
        raise error
