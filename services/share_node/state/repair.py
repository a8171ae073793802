"""`sharegroups state repair`: shows what is known about damaged entries in the coordinators' logs, and settles them
(CM-115).

It only stores a decision beside the stream; the owner of the shard follows it within seconds, with no restart.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click
import structlog

from shard_runtime.clock import SystemClock
from shard_runtime.config import kafka_configs
from shard_runtime.record_log.damage_notes import DamageNotes
from shard_runtime.record_log.protocol import ShardId, ShardKind
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.codec import stream_id
from shard_runtime.record_log.redis.connection import Store, StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.settlements import Choice, Settlement
from share_node.state.check import opened, run_or_fail
from share_node.state.damage_report import Damaged, DamageReport
from share_node.state.dump import named_shard
from share_node.store.store_option import StoreChoice, which_store

_ENTRY: Final = re.compile(r"\d+-\d+")
#: Limit on searches for damaged entries: when one is settled, others may no longer fit without it.
_ROUNDS_MAX: Final = 100
_SHARDS: Final = {ShardKind.GROUP: kafka_configs.GROUP_SHARDS, ShardKind.SHARE_STATE: kafka_configs.STATE_SHARDS}


@click.command()
@which_store
@click.option("--kind", type=click.Choice(["gc", "sgs"]), help="Only group logs (gc), or share-partition state (sgs).")
@click.option("--shard", metavar="NUMBER", help="Only this shard of the kind.")
@click.option("--entry", metavar="ID", help="Only this entry of the shard.")
@click.option("--choose", type=click.Choice([choice.value for choice in Choice]),
              help="skip: go on without the entries; drop: delete the state of their share-partitions.")  # fmt: skip
@click.option("--by", default=lambda: f"{getpass.getuser()}@{socket.gethostname()}", show_default="user@host",
              help="Who decides; it is kept in the store.")  # fmt: skip
@click.option("--why", default="", help="Why; it is kept in the store.")
@click.option("--execute", is_flag=True, help="Settle without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would be settled.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="json: one document a line for each entry.")  # fmt: skip
def repair(where: StoreChoice, **given: Any) -> None:
    """Show each damaged entry that waits for a decision, with what each choice loses; with --choose, settle it.

    A running system need not be stopped. Exit status: 0 when nothing waits any more, 1 when something does.
    """
    asked = _Options(**given)
    asked.check()
    if asked.choice is not None and not asked.dry_run and not where.is_named:
        raise click.UsageError(
            "--choose writes, and the environment alone does not choose where: give --store URL, --data DIR, or "
            "--config FILE with store.url"
        )
    left: list[Damaged] = []

    async def body() -> None:
        async with opened(where) as store:
            log = StoreRecordLog(store, StoreSettings(), SystemClock(), damage=DamageNotes(quiet=True))
            try:
                left.extend(await _rounds(log, await _shards(store, asked), asked))
            finally:
                await log.close()

    run_or_fail(body)
    if left:
        click.echo(f"{len(left)} damaged entries wait for a decision.", err=True)
        sys.exit(1)
    click.echo("Nothing waits for a decision.", err=True)


class _Options:
    """The options of one call."""

    def __init__(
        self,
        *,
        kind: str | None,
        shard: str | None,
        entry: str | None,
        choose: str | None,
        by: str,
        why: str,
        execute: bool,
        dry_run: bool,
        output: str,
    ) -> None:
        self.kind = kind
        self.shard = shard
        self.choice = None if choose is None else Choice(choose)
        self.settlement = Settlement(self.choice or Choice.SKIP, by, why)
        self.execute = execute
        self.dry_run = dry_run
        self._entry = entry
        self._round_begun = False
        self._json = output == "json"

    def check(self) -> None:
        """Raise UsageError for options that do not go together."""
        if self.shard is not None and self.kind is None:
            raise click.UsageError("--shard names a shard of a kind; give --kind gc or --kind sgs, too")
        if self._entry is not None and (self.shard is None or not _ENTRY.fullmatch(self._entry)):
            raise click.UsageError(
                "--entry is EPOCH-SEQUENCE of one shard, as in --kind sgs --shard 7 --entry 28512345-7"
            )
        if (self.execute or self.dry_run) and self.choice is None:
            raise click.UsageError(
                "--execute and --dry-run settle nothing by themselves; give --choose skip or drop, too"
            )

    def selects(self, found: Damaged) -> bool:
        """Return whether this entry is selected."""
        return self._entry in {None, found.found.at}

    def require_among(self, found: Sequence[Damaged]) -> None:
        """Raise ClickException in the first round when the selected entry does not wait for a decision."""
        if self._entry is not None and not self._round_begun and not any(map(self.selects, found)):
            raise click.ClickException(
                f"no damaged entry {self._entry} of {{{self.kind}:{self.shard}}} waits for a decision; leave --entry "
                "out to see those that do, and `sharegroups state check` shows those that are settled"
            )
        self._round_begun = True

    def show(self, found: Damaged) -> None:
        """Print one entry."""
        document = found.document()
        if self._json:
            click.echo(json.dumps(document))
            return
        choices = found.choices
        click.echo(f"entry {found.found.at} of {found.found.stream} {found.found.found}")
        for name in ("key", "bytes", "before", "after", "last_whole_state", "later_updates", "without_it"):
            click.echo(f"  {name.replace('_', ' ')}: {json.dumps(document[name])}")
        for choice, loses in choices.items():
            click.echo(f"  --choose {choice.value}: {loses}")

    def agreed(self, found: Damaged) -> bool:
        """Return whether to settle this entry now: the choice is possible, and --execute or the person at the terminal
        confirms it."""
        if self.choice is None:
            return False
        name = f"{self.choice.value} entry {found.found.at} of {found.found.stream}"
        if self.choice not in found.choices:
            click.echo(f"Not done: {name}: choose {' or '.join(found.choices)} for this one.", err=True)
            return False
        if self.dry_run:
            click.echo(f"Would {name}.", err=True)
            return False
        if self.execute:
            return True
        if not sys.stdin.isatty():
            click.echo(f"Not done: {name}: give --execute where no person can be asked.", err=True)
            return False
        return click.confirm(f"{name[:1].upper()}{name[1:]}: {found.choices[self.choice]}. Go on?", err=True)


async def _shards(store: Store, asked: _Options) -> Sequence[ShardId]:
    """Return the selected shards: the named one, or those that clusters have by default and those that had an owner."""
    if asked.shard is not None and asked.kind is not None:
        return [named_shard(asked.kind, asked.shard)]
    cluster = StoreClusterStore(store, StoreSettings(), DamageNotes(quiet=True))
    try:
        shards = []
        for kind in (ShardKind.GROUP, ShardKind.SHARE_STATE):
            if asked.kind in {None, kind.value}:
                names = {*map(str, range(_SHARDS[kind].default)), *await cluster.hints(kind)}
                shards += [ShardId(kind, name) for name in sorted(names, key=int)]
        return shards
    finally:
        await cluster.close()


async def _rounds(log: StoreRecordLog, shards: Sequence[ShardId], asked: _Options) -> list[Damaged]:
    """Show and settle entries; return those that still wait. Without a settled entry, others may no longer fit: the
    search is repeated as long as something is settled. Raises LogError."""
    left: dict[tuple[ShardId, str], Damaged] = {}
    for _ in range(_ROUNDS_MAX):
        with _quiet():
            found = [each async for each in DamageReport(log).of(shards)]
        asked.require_among(found)
        new = [each for each in found if (each.shard, each.found.at) not in left]
        left |= {(each.shard, each.found.at): each for each in new}
        settled = False
        for each in filter(asked.selects, new):
            asked.show(each)
            if asked.agreed(each):
                await _settle(log, each, asked.settlement)
                del left[each.shard, each.found.at]
                settled = True
        if not settled:
            break
    return list(left.values())


async def _settle(log: StoreRecordLog, each: Damaged, settlement: Settlement) -> None:
    await log.skip(each.shard, stream_id(each.found.at), settlement)
    click.echo(
        f"Settled: {settlement.choice.value} entry {each.found.at} of {each.found.stream}, by {settlement.by}. "
        "Running nodes apply it within 5 s; for a shard that was not served, within 30 s.",
        err=True,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress logs: a replay logs its findings, which are printed here instead."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
