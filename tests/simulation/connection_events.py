"""Events about connections that grow old, about share streams, and about what a principal may do. The process of each
is the server."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import Event


@dataclass(frozen=True, slots=True)
class ConnectionReached(Event):
    """The first message of a connection arrived; its age counts from now on. Recorded where connections have an age."""

    incarnation: int
    connection: str
    client: str


@dataclass(frozen=True, slots=True)
class ConnectionEnded(Event):
    """A connection that had reached its server ended; `why` is `aging.TOO_OLD` if the server closed it for its age."""

    incarnation: int
    connection: str
    client: str
    why: str


@dataclass(frozen=True, slots=True)
class MoveAsked(Event):
    """A server asked the client of a stream to move to another connection (PL-533)."""

    incarnation: int
    connection: str
    client: str
    stream: str
    method: str


@dataclass(frozen=True, slots=True)
class MoveRefused(Event):
    """A server refused a share stream of a client that it had asked to move (CL-144)."""

    incarnation: int
    connection: str
    client: str


@dataclass(frozen=True, slots=True)
class ShareStreamMade(Event):
    """A share stream began. `number`: what the leader calls it, as in SessionAsked; `stream`: as in MoveAsked, "" where
    connections have no age."""

    incarnation: int
    number: str
    stream: str


@dataclass(frozen=True, slots=True)
class ShareStreamLost(Event):
    """A share stream ended, and with it the sessions of these members: (group, member)."""

    incarnation: int
    number: str
    ended: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PrincipalKnown(Event):
    """The client process is a member of a group, with this principal."""

    principal: str
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RightsSeen(Event):
    """A node decides by other entries from now on: the groups and topics, by name, that the principal may read."""

    incarnation: int
    principal: str
    groups: tuple[str, ...]
    topics: tuple[str, ...]
