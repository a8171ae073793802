"""Records which keys of a shard are affected by damaged entries in its log, and which are intact (CM-107). Pure.

A replay adds each damaged entry here in log order, and notes each self-contained copy of a key. Entries before a copy
no longer matter to its key, damaged or not.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from shard_runtime.hosting.shard import DamagedEntry


class Healed(NamedTuple):
    """The quarantined entries that a later snapshot of their key made irrelevant; `Quarantine.restore` puts them
    back."""

    named: tuple[DamagedEntry, ...]
    newly_whole: bool


class Quarantine:
    """The damaged entries of one shard that still matter.

    An entry of unknown key may have changed any key, even one that no other entry names. So it affects every key that
    has no self-contained copy after it.
    """

    def __init__(self) -> None:
        self._named: dict[Hashable, tuple[DamagedEntry, ...]] = {}
        self._unknown: list[DamagedEntry] = []
        self._whole: set[Hashable] = set()

    def add(self, found: DamagedEntry) -> None:
        """Add a damaged entry. The caller must add entries in log order."""
        if found.key is None:
            self._unknown.append(found)
            self._whole.clear()
        else:
            self._named[found.key] = (*self._named.get(found.key, ()), found)

    def copied(self, key: Hashable) -> Healed | None:
        """Note a self-contained copy or the tombstone of a key. Returns the argument for `restore`, or None when
        nothing changed."""
        if not self._named and not self._unknown:
            return None
        newly_whole = bool(self._unknown) and key not in self._whole
        if newly_whole:
            self._whole.add(key)
        return Healed(self._named.pop(key, ()), newly_whole)

    def restore(self, key: Hashable, healed: Healed | None) -> None:
        """Undo `copied`, since the copy was not stored."""
        if healed is None:
            return
        if healed.named:
            self._named[key] = healed.named
        if healed.newly_whole:
            self._whole.discard(key)

    def damage_of(self, key: Hashable) -> Sequence[DamagedEntry]:
        """Damaged entries after this key's newest copy that may belong to it; empty when the key is intact."""
        if not self._named and not self._unknown:
            return ()
        named = self._named.get(key, ())
        return named if key in self._whole else (*self._unknown, *named)

    def named(self) -> Sequence[Hashable]:
        """The keys that damaged entries are known to belong to."""
        return tuple(self._named)

    def entries(self) -> Sequence[DamagedEntry]:
        """All damaged entries that still matter, those without a known key first."""
        return (*self._unknown, *(found for each in self._named.values() for found in each))
