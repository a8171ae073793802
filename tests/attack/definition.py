"""The definition of an attack, and of its target."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.chaos.false_clock import ClockFile
from tests.support.dial import PLAIN, Dial


class Who(StrEnum):
    """The principal whose certificate an attack uses in a run with TLS, where access control is on."""

    #: A user whose certificate the nodes accept, without any permission.
    STRANGER = "stranger"
    #: A user with permissions on the attacked topic and on the attackers' groups: without them it would be refused
    #: before it reaches what it attacks.
    ATTACKER = "attacker"
    #: A client with CLUSTER_ACTION, which the listeners for nodes admit.
    INSIDER = "insider"


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
    dial: Dial = PLAIN
    """How the attack connects: with TLS and its certificate, or in the clear."""
    admin: Dial = PLAIN
    """How an administrator connects, to compare what an attack changed."""
    refused: Mapping[str, Dial] = field(default_factory=dict)
    """With TLS, certificates that no node accepts, by what is wrong with them."""

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
    for a wrong response; the canary, the judged records and the memory show whether others were harmed. `who`: the
    principal with whose certificate it attacks a cluster with TLS. `tls_only`: it has no meaning without TLS.
    `by_name_only`: it lasts for minutes, so it runs only where `--only` names it.
    """

    name: str
    sentence: str
    run: Callable[[Target, random.Random, float, Path], str]
    who: Who = Who.ATTACKER
    tls_only: bool = False
    by_name_only: bool = False
