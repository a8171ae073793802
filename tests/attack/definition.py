"""The definition of an attack, and of its target."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.false_clock import ClockFile


@dataclass(frozen=True, slots=True)
class Target:
    """The nodes under attack. Addresses are `host:port`, by node name.

    `clients`: listeners for clients; `internal`: those for other nodes; `metrics`: those of Prometheus. `topic` and
    `topic_id` are a topic of four partitions for the attacks alone; the producers and consumers whose records are
    judged use other topics.
    """

    clients: Mapping[str, str]
    internal: Mapping[str, str]
    metrics: Mapping[str, str]
    topic: str
    topic_id: bytes
    clocks: Mapping[str, ClockFile] = field(default_factory=dict)
    """The wall clocks that an attack may set, by the node's name."""

    def a_node(self, rng: random.Random) -> str:
        """Return the client address of one node."""
        return rng.choice(sorted(self.clients.values()))

    def leader(self) -> str:
        """Return the client address of a partition leader; every target has one."""
        named = [address for name, address in sorted(self.clients.items()) if name.startswith("partition_leader")]
        return named[0] if named else sorted(self.clients.values())[0]

    def coordinator(self) -> str:
        """Return the client address of a group coordinator."""
        named = [address for name, address in sorted(self.clients.items()) if name.startswith("group_coordinator")]
        return named[0] if named else sorted(self.clients.values())[0]


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack. `run` attacks for at most about `seconds`, and leaves nothing open.

    `run` returns its observations in one line, such as the number of calls and their outcomes. It raises AssertionError
    for a wrong response; the canary, the judged records and the memory show whether others were harmed.
    """

    name: str
    sentence: str
    run: Callable[[Target, random.Random, float, Path], str]
