"""An in-memory store that executes the reader's commands, and loses entries on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from share_metrics.reader import EntryId
from share_metrics.reader.offsets import entry_id
from share_metrics.reader.scripts import TIP
from share_metrics.reader.store import Store
from tests.support.pipeline_entries import STREAM, MemoryStream


class MemoryStore(Store):
    """One stream, whose entries are of a type that no build knows. Calls `before_page` before each read of a page."""

    def __init__(self, stream: MemoryStream) -> None:
        super().__init__("redis://nowhere")
        self.held = stream
        self.before_page: Callable[[], object] = lambda: None

    def pipeline(self, commands: Sequence[tuple[str, Any]]) -> list[Any]:
        return [self._answer(key, *words) for key, words in commands]

    def _answer(self, key: str, name: str, *words: Any) -> Any:
        assert key == STREAM
        if name == "EVAL_RO" and words[0] == TIP:
            tip = self.held.tip
            return [_raw(tip.last), tip.added, tip.length, _raw(tip.first)] if self.held.added else None
        if name == "EVAL_RO":
            found = self._range(words[3], words[4])[: words[5]]
            return [_raw(found[0]), _raw(found[-1]), len(found)] if found else None
        if name == "XREVRANGE":
            return _entries(self._range(words[2], words[1])[-1:])
        assert name == "XRANGE"
        self.before_page()
        return _entries(self._range(words[1], words[2])[: words[4]])

    def _range(self, low: str, high: str) -> list[EntryId]:
        begin, end = entry_id(low.lstrip("(")), entry_id(high.lstrip("("))
        return [
            one for one in self.held.ids
            if (one > begin or (one == begin and low[0] != "(")) and (one < end or (one == end and high[0] != "("))
        ]  # fmt: skip


def _entries(ids: Iterable[EntryId]) -> list[Any]:
    return [[_raw(one), [b"t", b"Z", b"r", b""]] for one in ids]


def _raw(at: EntryId) -> bytes:
    return str(at).encode()
