"""Finds the key whose change a damaged entry of a coordinator's log holds (CM-106).

An entry's field `k` is a checksum over its key. When the key can still be read from the record, `k` proves it. When it
cannot, `k` is compared with the keys of the log's other entries.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kip932.entry_checksum import key_of, proves_key
from shard_runtime.record_log.protocol import Entry, RecordLog, StreamId

#: The most keys of a log that are compared. Among more, another key's checksum could match by chance.
KEYS_MAX: Final = 100_000
#: How many keys are compared, in about 2 ms, before other tasks may run (CM-94).
KEYS_SLICE: Final = 2_000


class DamagedKeys:
    """Finds the keys of one log's damaged entries. It reads the log again when needed, at most once."""

    def __init__(self, record_log: RecordLog, stream: str, after: StreamId, through: StreamId, page: int) -> None:
        self._log = record_log
        self._stream = stream
        self._after = after
        self._through = through
        self._page = page
        self._named: set[bytes] | None = None

    async def of(self, entry: Entry) -> bytes | None:
        """The bytes of a damaged entry's key; b"" for an entry without a key (a claim, a no-op), None when unknown.

        Raises LogError.
        """
        if entry.id.seq == 0 and not entry.key_proof:
            return b""  # a claim: it has sequence 0, and a record at sequence 0 would have a proof
        if not entry.key_proof:
            return None
        for key in (key_of(entry.record), b""):
            if proves_key(self._stream, entry.id, key, entry.key_proof):
                return key
        if self._named is None:
            self._named = await self._read_keys()
        fits = []
        for number, key in enumerate(self._named, start=1):
            if proves_key(self._stream, entry.id, key, entry.key_proof):
                fits.append(key)
            if not number % KEYS_SLICE:
                await asyncio.sleep(0)
        return fits[0] if len(fits) == 1 else None

    async def _read_keys(self) -> set[bytes]:
        keys: set[bytes] = set()
        after = self._after
        while True:
            page = await self._log.read(self._stream, after, self._through, self._page)
            keys.update(key_of(entry.record) for entry in page if not entry.damage)
            if len(page) < self._page or len(keys) > KEYS_MAX:
                return keys if len(keys) <= KEYS_MAX else set()
            after = page[-1].id
            await asyncio.sleep(0)
