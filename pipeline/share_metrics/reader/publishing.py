"""Publishes a reader's positions to the owners of streams, so that they keep the entries after them (PM-12, SR-29).

The pipeline writes nothing else to a store (PM-6). The notes are advisory: owners always keep the history that they are
configured to keep, and a reader without a note loses entries only if it stops for longer than that.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Final

from share_metrics.reader.offsets import START, EntryId, Position
from share_metrics.reader.store import Store, StoreReplyError, StoreUnreachableError

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: Owners do not wait for a reader for longer than this. Readers without a new note for this long are removed from the
#: store.
_FORGOTTEN_MS: Final = 86_400_000
#: An unchanged note is rewritten after this many seconds, to show that its reader is alive.
_RENEW_S: Final = 60.0

#: KEYS: the readers' hash of a stream. ARGV: name, entry id, the age in ms at which readers are removed. Writes
#: `<entry id> <now in ms>` by the store's clock, since owners compare it with that clock.
_NOTE: Final = """
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local found = redis.call('HSCAN', KEYS[1], 0, 'COUNT', 512)[2]
for i = 1, #found, 2 do
  local at = string.match(found[i + 1], '^%d+%-%d+ (%d+)$')
  if at and tonumber(at) < ms - tonumber(ARGV[3]) then redis.call('HDEL', KEYS[1], found[i]) end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%s %.0f', ARGV[2], ms))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""


def checked_name(name: str) -> str:
    """The name, if it is a valid reader name. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"reader name {name!r} is not 1 to 64 letters, digits, dots, dashes or underscores")
    return name


def readers_key(stream: str) -> str:
    """The readers' hash of a stream, under the same hash tag."""
    return stream[: stream.index("}") + 1] + ":readers"


class Publisher:
    """Publishes positions under one name. Two readers of one stream must not share a name: the last write wins.

    It remembers what it wrote, and holds no connection, so that it can be pickled (PM-76).
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = checked_name(name)
        self._clock = clock
        self._noted: dict[str, tuple[EntryId, float]] = {}
        self._trouble = ""

    def publish(self, store: Store, positions: Mapping[str, Position]) -> None:
        """Publish the position up to which each stream is read and stored, in one round trip per node.

        Unchanged positions are skipped until it is time to renew them. A position may be lower than before, after a
        return to an older checkpoint. If the store refuses or does not answer, this does not raise: it logs each error
        once, and retries on the next call.
        """
        now = self._clock()
        due = {stream: at.id for stream, at in positions.items() if at.id != START and self._due(stream, at.id, now)}
        if not due:
            return
        keys = {stream: readers_key(stream) for stream in due}
        try:
            store.primary.pipeline([
                (keys[stream], ("EVAL", _NOTE, 1, keys[stream], self._name, str(at), _FORGOTTEN_MS))
                for stream, at in due.items()
            ])  # fmt: skip
        except (StoreReplyError, StoreUnreachableError) as error:
            self._warn(str(error), next(iter(keys.values())))
            return
        self._trouble = ""
        self._noted |= {stream: (at, now) for stream, at in due.items()}

    def _due(self, stream: str, at: EntryId, now: float) -> bool:
        noted = self._noted.get(stream)
        return noted is None or noted[0] != at or now - noted[1] >= _RENEW_S

    def _warn(self, trouble: str, key: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            _log.warning(
                "Reader %s cannot note in %s how far it is, so owners keep for it what shard.history.ms says and no "
                "more. Allow its user EVAL, TIME, HSCAN, HSET, HDEL and PEXPIRE on keys *:readers, or give it no name. "
                "The store says: %s", self._name, key, trouble,
            )  # fmt: skip
