"""Stores as released versions wrote them, kept as text: every key as JSON documents, one per line, with bytes in hex.

{"key": "{sgs:1}:log", "id": "2875-3", "t": "U", "r": "120f0a…"}        an entry of a stream, `b` with a batch
{"key": "{sgs:1}:owner", "hash": {"epoch": "2875", …}}                  and {"key": …, "string": …}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis

from shard_runtime.record_log.protocol import Entry, ShardId
from shard_runtime.record_log.redis.codec import stream_id
from shard_runtime.record_log.redis.connection import Command
from shard_runtime.record_log.redis.keys import shard_of_stream

FOLDER: Final = Path(__file__).resolve().parent.parent / "fixtures" / "records"


def kept_versions() -> list[str]:
    """Return the versions with stored records, oldest first."""
    return sorted((path.stem for path in FOLDER.glob("*.jsonl")), key=lambda text: [*map(int, text.split("."))])


@dataclass
class Dump:
    """A store's streams, hashes and strings."""

    streams: dict[str, list[Entry]] = field(default_factory=dict)
    hashes: dict[str, dict[str, str]] = field(default_factory=dict)
    strings: dict[str, str] = field(default_factory=dict)

    def shards(self) -> list[ShardId]:
        """Return every shard that has a stream here."""
        found = {shard_of_stream(key) for key in self.streams if key.startswith(("{gc:", "{sgs:", "{tp:"))}
        return sorted(found, key=lambda shard: (shard.kind, shard.name))

    def commands(self) -> Iterator[Command]:
        """Yield the commands that write the whole dump into an empty store."""
        for key, entries in self.streams.items():
            for entry in entries:
                batch = ("b", entry.batch) if entry.batch else ()
                yield ("XADD", key, str(entry.id), "t", entry.kind, "r", entry.record, *batch)
        for key, fields in self.hashes.items():
            yield ("HSET", key, *(word for pair in fields.items() for word in pair))
        for key, text in self.strings.items():
            yield ("SET", key, text)

    def write(self, path: Path) -> None:
        """Write the dump to a file."""
        path.write_text("".join(json.dumps(line) + "\n" for line in self._lines()), encoding="utf-8")

    def _lines(self) -> Iterator[dict[str, object]]:
        for key, text in sorted(self.strings.items()):
            yield {"key": key, "string": text}
        for key, fields in sorted(self.hashes.items()):
            yield {"key": key, "hash": dict(sorted(fields.items()))}
        for key, entries in sorted(self.streams.items()):
            for entry in entries:
                batch = {"b": entry.batch.hex()} if entry.batch else {}
                yield {"key": key, "id": str(entry.id), "t": entry.kind, "r": entry.record.hex(), **batch}


def read_dump(version: str) -> Dump:
    """Return the dump of a version."""
    dump = Dump()
    for text in (FOLDER / f"{version}.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        key = line["key"]
        if "id" in line:
            entry = Entry(stream_id(line["id"]), line["t"], bytes.fromhex(line["r"]), bytes.fromhex(line.get("b", "")))
            dump.streams.setdefault(key, []).append(entry)
        elif "hash" in line:
            dump.hashes[key] = line["hash"]
        else:
            dump.strings[key] = line["string"]
    return dump


def read_state(version: str) -> dict[str, Any]:
    """Return the state that is stored beside a version's dump."""
    state: dict[str, Any] = json.loads((FOLDER / f"{version}.state.json").read_text(encoding="utf-8"))
    return state


def write_state(version: str, state: dict[str, Any]) -> None:
    """Write the state for human readers: sorted, indented, short lists on one line."""
    (FOLDER / f"{version}.state.json").write_text(_pretty(state, "") + "\n", encoding="utf-8")


def _pretty(value: Any, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(indent) + len(flat) <= 116 or not isinstance(value, dict | list) or not value:
        return flat
    deeper = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + _pretty(each, deeper) for each in value) + f"\n{indent}]"
    lines = [f"{deeper}{json.dumps(key)}: {_pretty(value[key], deeper)}" for key in sorted(value)]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def dump_of(url: str) -> Dump:
    """Return everything in a store on this machine. Raises TypeError for a key of a type that no service writes."""
    dump = Dump()
    with redis.Redis.from_url(url) as store:
        for raw in store.scan_iter():
            key, kind = raw.decode(), store.type(raw)
            if kind == b"stream":
                dump.streams[key] = [
                    Entry(stream_id(at), fields[b"t"].decode(), fields[b"r"], fields.get(b"b", b""))
                    for at, fields in store.xrange(raw)
                ]
            elif kind == b"hash":
                dump.hashes[key] = {name.decode(): text.decode() for name, text in store.hgetall(raw).items()}
            elif kind == b"string":
                dump.strings[key] = store.get(raw).decode()
            else:
                raise TypeError(f"{key} is a {kind.decode()}; teach tests/upgrade/kept.py to keep it")
    return dump
