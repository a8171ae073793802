"""Events for the reports about members between coordinators and leaders."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import Event


@dataclass(frozen=True, slots=True)
class LossTaken(Event):
    """A coordinator accepted a leader's report that it had lost a member `ago_ms` earlier: it expects a heartbeat."""

    incarnation: int
    group_id: str
    member_id: str
    ago_ms: int


@dataclass(frozen=True, slots=True)
class ReturnTaken(Event):
    """A coordinator accepted a leader's report that a member has a session again."""

    incarnation: int
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClocksRestarted(Event):
    """The session clocks of all members in a shard restart, because the shard was loaded or could not work for a while
    (GC-32a)."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class MemberRemoved(Event):
    """A coordinator decided to remove a member that was silent; the store may have refused it. `group_epoch`: the new
    one after the removal."""

    incarnation: int
    group_id: str
    member_id: str
    group_epoch: int


@dataclass(frozen=True, slots=True)
class SessionOpened(Event):
    """A leader opened a share session; `member_epoch` 0: its client sent none. `replaced`: it replaces the member's
    previous one."""

    incarnation: int
    group_id: str
    member_id: str
    member_epoch: int
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class RemovalHeard(Event):
    """A leader was notified that a member was removed; `ended`: it therefore ended a session."""

    incarnation: int
    group_id: str
    member_id: str
    group_epoch: int
    ended: bool
