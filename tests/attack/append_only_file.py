"""Reads a store's append-only file as bytes: finds the words of its commands, and flips single bits in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Word(NamedTuple):
    """One word of a command: its bytes, and its position in the file."""

    data: bytes
    at: int


class AppendOnlyFile:
    """The single incremental file of a stopped store; the file must not have been rewritten."""

    def __init__(self, data: Path) -> None:
        found = sorted((data / "store" / "appendonlydir").glob("*.incr.aof"))
        assert len(found) == 1, f"expected one incremental file, found {found}"
        self.path = found[0]

    def commands(self) -> Iterator[list[Word]]:
        """Yield every command, in the order of the file."""
        data = self.path.read_bytes()
        at = 0
        while at < len(data):
            assert data[at : at + 1] == b"*", f"no command at byte {at}"
            end = data.index(b"\r\n", at)
            count, at = int(data[at + 1 : end]), end + 2
            words = []
            for _ in range(count):
                end = data.index(b"\r\n", at)
                size, at = int(data[at + 1 : end]), end + 2
                words.append(Word(data[at : at + size], at))
                at += size + 2
            yield words

    def entries(self, key: bytes) -> list[dict[bytes, Word]]:
        """Return the entries added to streams whose key starts with `key`: their fields, `key` and `id`."""
        found = []
        for words in self.commands():
            if words[0].data.upper() == b"XADD" and words[1].data.startswith(key):
                rest = words[3:] if words[2].data == b"NOMKSTREAM" else words[2:]
                fields = {name.data: value for name, value in zip(rest[1::2], rest[2::2], strict=True)}
                found.append(fields | {b"key": words[1], b"id": rest[0]})
        return found

    def flip(self, at: int, bit: int = 0) -> None:
        """Flip one bit of the file."""
        with self.path.open("r+b") as file:
            file.seek(at)
            found = file.read(1)[0]
            file.seek(at)
            file.write(bytes([found ^ (1 << bit)]))
