"""The kinds of record in a dump and the fields that they set, and the kinds and fields that the protocol declares."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from kip932.records.v1 import (
    group_log_pb2,
    metadata_log_pb2,
    owner_log_pb2,
    share_state_log_pb2,
    state_batch_pb2,
    topic_log_pb2,
    transaction_pb2,
    write_stats_pb2,
)
from shard_runtime.record_log.protocol import CLAIM_TYPE, NOOP_TYPE, Entry
from tests.upgrade.kept import Dump

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGE: Final = "kip932.records.v1"
MODULES: Final = (
    group_log_pb2,
    metadata_log_pb2,
    owner_log_pb2,
    share_state_log_pb2,
    state_batch_pb2,
    topic_log_pb2,
    transaction_pb2,
    write_stats_pb2,
)
_RECORDS: Final[tuple[tuple[str, type[Message]], ...]] = (
    (r"\{gc:\d+\}:log", group_log_pb2.GroupRecord),
    (r"\{sgs:\d+\}:log", share_state_log_pb2.ShareStateRecord),
    (r"\{tp:.+\}:log", topic_log_pb2.TopicLogRecord),
    (r"\{tp:.+\}:ctl", topic_log_pb2.ControlLogRecord),
    (r"\{meta\}:log", metadata_log_pb2.MetadataRecord),
)
#: Keys that are not streams, with their purposes.
_KEYS: Final = {
    r"\{(gc|sgs|tp):.+\}:owner": "owner record",
    r"\{nodes\}": "node record",
    r"\{nodes\}:names": "node names",
    r"\{nodes\}:next": "next node id",
    r"\{owners\}:(gc|sgs|tp)": "hints of owners",
    r"\{meta\}:cluster": "cluster id",
    r"\{meta\}:touch": "proof of the metadata log",
    r"(gc|sgs):config": "number of shards",
}


def message_of(key: str, entry: Entry) -> Message:
    """Return an entry's record, parsed according to its stream's kind. Raises AssertionError for an unknown kind of
    stream."""
    if entry.kind == CLAIM_TYPE:
        return owner_log_pb2.ClaimEntry.FromString(entry.record)
    if entry.kind == NOOP_TYPE:
        return owner_log_pb2.NoOpEntry.FromString(entry.record)
    for pattern, kind in _RECORDS:
        if re.fullmatch(pattern, key):
            return kind.FromString(entry.record)
    raise AssertionError(f"{key} is a stream of a kind that tests/upgrade/kinds.py does not know")


def kinds_of(dump: Dump) -> set[str]:
    """Name every kind that occurs: type letters with their records, tombstones, cold copies, hashes, strings."""
    found = {key_kind(key) for key in [*dump.hashes, *dump.strings]}
    for key, entries in dump.streams.items():
        for entry in entries:
            found.update(_entry_kinds(message_of(key, entry)))
    return found


def key_kind(key: str) -> str:
    """Return the purpose of a key that is not a stream. Raises AssertionError for an unknown key."""
    for pattern, word in _KEYS.items():
        if re.fullmatch(pattern, key):
            return word
    raise AssertionError(f"{key} is a key of a kind that tests/upgrade/kinds.py does not know")


def _entry_kinds(message: Message) -> Iterator[str]:
    name = message.DESCRIPTOR.name
    oneofs = message.DESCRIPTOR.oneofs_by_name
    if "value" in oneofs:
        value = message.WhichOneof("value")
        yield f"{name}.{value or 'tombstone'}"
        return
    if isinstance(message, metadata_log_pb2.MetadataRecord):
        yield from (f"MetadataChange.{change.WhichOneof('change')}" for change in message.changes)
        if not message.HasField("snapshot"):
            return
        name = "MetadataSnapshot"
    yield name


def declared_kinds() -> set[str]:
    """Return every kind that the current protocol and key space can contain."""
    found = set(_KEYS.values()) | {"ClaimEntry", "NoOpEntry", "MetadataSnapshot"}
    found |= {"GroupRecord.tombstone", "ShareStateRecord.tombstone"}
    for descriptor in _messages():
        for oneof in descriptor.oneofs:
            if not oneof.name.startswith("_"):  # protobuf's own, for an optional field
                found |= {f"{descriptor.name}.{field.name}" for field in oneof.fields}
    return found


def _messages() -> Iterator[Descriptor]:
    waiting = [descriptor for module in MODULES for descriptor in module.DESCRIPTOR.message_types_by_name.values()]
    while waiting:
        descriptor = waiting.pop()
        yield descriptor
        waiting += descriptor.nested_types


def fields_of(dump: Dump) -> set[str]:
    """Return `Message.field` for every field that is set in some record."""
    found: set[str] = set()
    for key, entries in dump.streams.items():
        for entry in entries:
            _add_fields(message_of(key, entry), found)
    return found


def _add_fields(message: Message, found: set[str]) -> None:
    name = message.DESCRIPTOR.full_name.removeprefix(f"{PACKAGE}.")
    if message.DESCRIPTOR.GetOptions().map_entry:
        return
    for field, value in message.ListFields():
        found.add(f"{name}.{field.name}")
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else [value]:
                _add_fields(each, found)


def released_fields(version: str) -> set[str]:
    """Return `Message.field` for the fields of every persisted record in a version's image in protos/released."""
    image = json.loads((ROOT / "protos" / "released" / f"kip932-{version}.json").read_text(encoding="utf-8"))
    found: set[str] = set()
    for file in image["file"]:
        if file["package"] == PACKAGE:
            found.update(_declared(file.get("messageType", []), ""))
    return found


def _declared(messages: Iterable[dict[str, Any]], prefix: str) -> Iterator[str]:
    for message in messages:
        if not message.get("options", {}).get("mapEntry"):
            name = f"{prefix}{message['name']}"
            yield from (f"{name}.{field['name']}" for field in message.get("field", []))
            yield from _declared(message.get("nestedType", []), f"{name}.")
