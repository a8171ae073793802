"""`sharegroups state dump`: prints the entries of the store's streams, in our form or in Kafka's; it only reads (CM-16,
CT-96)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Final

import click
from google.protobuf.message import DecodeError

from kip932.ids import topic_id_text
from kip932.records.v1 import share_state_log_pb2, state_batch_pb2
from shard_runtime.clock import SystemClock
from shard_runtime.config import kafka_configs
from shard_runtime.record_log.damage_notes import DamageNotes
from shard_runtime.record_log.protocol import CLAIM_TYPE, NOOP_TYPE, STREAM_START, Entry, LogError, ShardId, ShardKind
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import Store, StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.store_url import masked
from share_node.node.serve import run
from share_node.state.dump import KINDS, describe, named_shard
from share_node.store.data_directory import DataDirectoryError
from share_node.store.embedded_store import EmbeddedStoreError
from share_node.store.store_option import StoreChoice, which_store
from share_node.store.stored_copy import readable
from sharegroups.cli.output import print_stderr

_PAGE: Final = 500
_KAFKA: Final = "kafka"
_SHARDS: Final = {ShardKind.GROUP: kafka_configs.GROUP_SHARDS, ShardKind.SHARE_STATE: kafka_configs.STATE_SHARDS}
#: Kafka's type numbers of keys, by the type of our entries; a tombstone has the key of a snapshot.
_KEY_TYPES: Final = {"S": 0, "T": 0, "U": 1}
#: A delivery-complete count that is not known.
_COUNT_UNKNOWN: Final = -1


class _Printer:
    """Prints entries; counts what it printed, and what it could not print as Kafka has it."""

    def __init__(self, formatter: str, kind: ShardKind) -> None:
        self.printed = 0
        self.left_out = 0
        self._as_kafka = formatter == _KAFKA
        self._kind = kind

    def print(self, stream: str, entry: Entry) -> None:
        """Print one entry, or print on standard error why it cannot be printed."""
        if not self._as_kafka:
            click.echo(json.dumps(describe(stream, entry, self._kind)))
            self.printed += 1
            return
        try:
            document = as_kafka_has_it(entry)
        except ValueError as error:
            self.left_out += 1
            print_stderr(f"Error: {stream} {entry.id} is left out: {error}. `--formatter entries` shows it.", keep="\n")
            return
        if document is not None:
            click.echo(json.dumps(document, separators=(",", ":")))
            self.printed += 1


async def _names(store: Store, kind: ShardKind) -> list[str]:
    """Return the shards of a kind: as many as clusters have by default, and those that had an owner."""
    cluster = StoreClusterStore(store, StoreSettings(), DamageNotes(quiet=True))
    try:
        owned = await cluster.hints(kind)
    finally:
        await cluster.close()
    return sorted({*map(str, range(_SHARDS[kind].default)), *owned}, key=int)


async def _entries(log: StoreRecordLog, shard: ShardId) -> AsyncIterator[tuple[str, Entry]]:
    """Yield every entry of a shard's streams, oldest first. Raises LogError."""
    for stream in shard.streams:
        after = STREAM_START
        while page := await log.index(stream, after, None, _PAGE):
            for entry in page:
                yield stream, entry
            after = page[-1].id


@click.command()
@which_store
@click.option("--kind", type=click.Choice(KINDS), required=True,
              help="gc: group log, sgs: share-partition state, tp: topic log.")  # fmt: skip
@click.option("--shard", metavar="NAME",
              help="A number for gc and sgs, all of them when left out; TOPIC_ID:PARTITION for tp.")  # fmt: skip
@click.option("--formatter", type=click.Choice(["entries", _KAFKA]), default="entries", show_default=True,
              help="entries: all that is stored; kafka: snapshots and updates of sgs as Kafka's "
              "ShareGroupStateMessageFormatter writes them.")  # fmt: skip
def dump(*, where: StoreChoice, kind: str, shard: str | None, formatter: str) -> None:
    """Print what is stored, one JSON document a line: shard by shard, in each the oldest first.

    The `up` of a data directory need not run: then a copy of its store is started and read.
    """
    wanted = ShardKind(kind)
    if formatter == _KAFKA and wanted is not ShardKind.SHARE_STATE:
        raise click.UsageError("--formatter kafka shows share-partition state only; give --kind sgs")
    if shard is None and wanted not in _SHARDS:
        raise click.UsageError(f"--kind {kind} needs --shard TOPIC_ID:PARTITION; `sharegroups topics describe` has ids")
    which = named_shard(kind, shard) if shard is not None else None
    printer = _Printer(formatter, wanted)
    failed: list[str] = []

    async def body() -> None:
        try:
            async with readable(where) as store:
                shards = [which] if which else [ShardId(wanted, name) for name in await _names(store, wanted)]
                log = StoreRecordLog(store, StoreSettings(), SystemClock(), damage=DamageNotes(quiet=True))
                try:
                    for each in shards:
                        async for stream, entry in _entries(log, each):
                            printer.print(stream, entry)
                finally:
                    await log.close()
        except (LogError, ValueError, EmbeddedStoreError, DataDirectoryError) as error:
            failed.append(str(error))

    run(body)
    if not printer.printed and not printer.left_out and not failed:
        place = " or ".join(which.streams) if which else f"the shards of {kind}"
        click.echo(f"Nothing is stored in {place}.", err=True)
    if failed:
        print_stderr(f"Error: {masked(failed[0])}", keep="\n")
    if failed or printer.left_out:
        sys.exit(1)


def as_kafka_has_it(entry: Entry) -> dict[str, object] | None:
    """Return one snapshot, update or tombstone as Kafka's ShareGroupStateMessageFormatter writes it, for programs that
    read that (CT-96); fields that only this suite stores are left out.

    None for claims and no-ops, which Kafka does not have. Raises ValueError for an entry that is damaged or not known.
    """
    if entry.damage:
        raise ValueError(entry.damage)
    if entry.kind in (CLAIM_TYPE, NOOP_TYPE):
        return None
    if entry.kind not in _KEY_TYPES:
        raise ValueError(f"its type {entry.kind!r} is not known to this build")
    try:
        record = share_state_log_pb2.ShareStateRecord.FromString(entry.record)
    except DecodeError as error:
        raise ValueError(f"it cannot be read: {error}") from None
    where = {
        "groupId": record.key.group_id,
        "topicId": topic_id_text(record.key.topic_id),
        "partition": record.key.partition,
    }
    data: dict[str, object] | None = None
    if record.WhichOneof("value") == "snapshot":
        data = _snapshot(record.snapshot)
    elif record.WhichOneof("value") == "update":
        data = _update(record.update)
    return {
        "key": {"type": _KEY_TYPES[entry.kind], "data": where},
        "value": None if data is None else {"version": record.record_version, "data": data},
    }


def _snapshot(found: share_state_log_pb2.ShareSnapshot) -> dict[str, object]:
    return {
        "snapshotEpoch": found.snapshot_epoch,
        "stateEpoch": found.state_epoch,
        "leaderEpoch": found.leader_epoch,
        "startOffset": found.start_offset,
        **_delivery_complete_count(found),
        "createTimestamp": found.create_timestamp,
        "writeTimestamp": found.write_timestamp,
        "stateBatches": [_state_batch(batch) for batch in found.state_batches],
    }


def _update(found: share_state_log_pb2.ShareUpdate) -> dict[str, object]:
    return {
        "snapshotEpoch": found.snapshot_epoch,
        "leaderEpoch": found.leader_epoch,
        "startOffset": found.start_offset,
        **_delivery_complete_count(found),
        "stateBatches": [_state_batch(batch) for batch in found.state_batches],
    }


def _delivery_complete_count(
    found: share_state_log_pb2.ShareSnapshot | share_state_log_pb2.ShareUpdate,
) -> dict[str, object]:
    """Kafka leaves the field out while the count is not known."""
    known = found.HasField("delivery_complete_count") and found.delivery_complete_count != _COUNT_UNKNOWN
    return {"deliveryCompleteCount": found.delivery_complete_count} if known else {}


def _state_batch(found: state_batch_pb2.StateBatch) -> dict[str, object]:
    return {
        "firstOffset": found.first_offset,
        "lastOffset": found.last_offset,
        "deliveryState": found.delivery_state,
        "deliveryCount": found.delivery_count,
    }
