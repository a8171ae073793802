"""Describes entries for `sharegroups state`, and reads the names of shards (CM-16).

Entries with types or fields that this build does not know are shown as such, never skipped silently.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Final

import click
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message

from kip932.ids import topic_id_text
from kip932.records.v1 import group_log_pb2, owner_log_pb2, share_state_log_pb2, topic_log_pb2
from shard_runtime.record_log.protocol import CLAIM_TYPE, NOOP_TYPE, Entry, ShardId, ShardKind

_MESSAGES: Final[dict[str, type[Message]]] = {
    ShardKind.GROUP.value: group_log_pb2.GroupRecord,
    ShardKind.SHARE_STATE.value: share_state_log_pb2.ShareStateRecord,
    ShardKind.TOPIC.value: topic_log_pb2.TopicLogRecord,
}
#: The kinds that have shards: group log, share-partition state, topic log.
KINDS: Final = sorted(_MESSAGES)
_NUMBER: Final = (re.compile(r"\d+"), "a number")
_SHARD_NAMES: Final = {
    ShardKind.GROUP.value: _NUMBER,
    ShardKind.SHARE_STATE.value: _NUMBER,
    ShardKind.TOPIC.value: (
        re.compile(r"[\w-]{22}:\d+"),
        "TOPIC_ID:PARTITION, as `sharegroups topics describe` has them,",
    ),
}


def embedded_url(data: Path) -> str:
    """Return the URL of the embedded store that runs on a data directory. Raises click.ClickException when none
    runs."""
    memo = data / "store.socket-dir"
    path = Path(memo.read_text().strip()) / "store.sock" if memo.exists() else None
    if path is None or not path.exists():
        raise click.ClickException(
            f"no embedded store runs on {data}; start `sharegroups up --data {data}` or give --store"
        )
    return f"unix://{path}"


def describe(stream: str, entry: Entry, kind: ShardKind) -> dict[str, object]:
    """Return one entry as plain values."""
    message: Message
    record: object
    if entry.kind == CLAIM_TYPE:
        message = owner_log_pb2.ClaimEntry()
    elif entry.kind == NOOP_TYPE:
        message = owner_log_pb2.NoOpEntry()
    elif stream.endswith(":ctl"):
        message = topic_log_pb2.ControlLogRecord()
    else:
        message = _MESSAGES[kind.value]()
    try:
        message.ParseFromString(entry.record)
        record = _with_topic_ids(MessageToDict(message, preserving_proto_field_name=True))
    except DecodeError as error:
        record = {"undecodable": str(error), "bytes": entry.record.hex()}
    shown: dict[str, object] = {"stream": stream, "id": str(entry.id), "type": entry.kind, "record": record}
    return shown | {"damaged": entry.damage} if entry.damage else shown


def _with_topic_ids(value: object) -> object:
    """Show topic ids as everywhere else; protobuf's JSON uses another base64 for bytes."""
    if isinstance(value, list):
        return [_with_topic_ids(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: topic_id_text(base64.b64decode(each)) if name == "topic_id" else _with_topic_ids(each)
        for name, each in value.items()
    }


@click.group()
def state() -> None:
    """Inspect the stored state, and settle damaged entries."""


def named_shard(kind: str, name: str) -> ShardId:
    """Return the shard with this kind and name. Raises UsageError."""
    form, words = _SHARD_NAMES[kind]
    if not form.fullmatch(name):
        raise click.UsageError(f"--shard is {name!r}; expected {words} for the kind {kind}")
    return ShardId(ShardKind(kind), name)
