"""Keeps the node that each shard targets, and computes the targets that may have changed (CM-11, CM-88). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from shard_runtime.ownership.placement import target
from shard_runtime.record_log.protocol import ShardId, ShardKind


class Targets:
    """The targets of all wanted shards. Computing one costs a hash per node, so targets are computed only when the
    nodes or the wanted shards changed, a bounded number at a time."""

    def __init__(self) -> None:
        self.wanted: frozenset[ShardId] = frozenset()
        self._nodes: Mapping[ShardKind, frozenset[int]] = {}
        self._found: dict[ShardId, int | None] = {}
        self._due: dict[ShardId, None] = {}

    @property
    def unfinished(self) -> bool:
        """Whether targets are still to be computed."""
        return bool(self._due)

    def change(self, wanted: frozenset[ShardId], nodes: Mapping[ShardKind, frozenset[int]]) -> None:
        """Note the shards whose target may have changed: few, unless nodes joined or left."""
        if nodes != self._nodes:
            self._found.clear()
            self._nodes = dict(nodes)
            self._due = dict.fromkeys(wanted | self.wanted)
        elif wanted is not self.wanted:
            self._due.update(dict.fromkeys(wanted ^ self.wanted))
        self.wanted = wanted

    def look(self, most: int) -> list[ShardId]:
        """Compute the targets of at most `most` of the noted shards, and return these shards."""
        shards = list(islice(self._due, most))
        for shard in shards:
            del self._due[shard]
            if shard in self.wanted:
                self._found[shard] = target(shard, self._nodes.get(shard.kind, frozenset()))
            else:
                self._found.pop(shard, None)
        return shards

    def of(self, shard: ShardId, unknown: int | None = None) -> int | None:
        """Return the node that a shard targets; None when no node can have it, `unknown` while it is not computed."""
        return self._found.get(shard, unknown)
