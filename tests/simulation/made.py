"""Histories written by hand, for tests of checkers: each step of a record's life is one method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kip932.ids import ACK_ACCEPT
from tests.simulation.checkers import Checker, Violation
from tests.simulation.final import Final, LogEnd
from tests.simulation.history import (
    AckAnswered,
    AckBatchSeen,
    Acquired,
    Delivered,
    Event,
    GroupSeen,
    HeartbeatAnswered,
    History,
    LimitsSeen,
    PhaseBegan,
    Place,
    Produced,
    ProduceSent,
    SessionAsked,
    Share,
    StateAnswered,
    StateBatchSeen,
    StateSeen,
)
from tests.simulation.leader_events import AckDone, GivenBack, Locked

TOPIC = "ab" * 16
SHARE = Share("g", TOPIC, 0)
LOCK_MS = 1_000


class Made:
    """A history under construction. Only `at` moves time; methods that need a process use "a" in its first life."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.history = History(0, lambda: self.now_ms)
        self.final = Final()
        self.process = "a"
        self.share = SHARE
        self.object_id = 1
        self.leader_epoch = 7
        self.generation = 1
        self.state_epoch = 2
        self.limit = 5
        self.requests = 0

    def at(self, ms: int) -> Made:
        """Advance to a time."""
        self.now_ms = ms
        return self

    def add(self, kind: type[Event], *details: Any, **more: Any) -> Any:
        """Add any event of the current process."""
        event = kind(self.now_ms, self.process, *details, **more)
        self.history.add(event)
        return event

    def successor(self, process: str = "b", leader_epoch: int = 8, generation: int = 1) -> Made:
        """Let another share-partition object lead from now on; it has not read the state yet."""
        self.process, self.leader_epoch, self.generation = process, leader_epoch, generation
        self.object_id += 1
        return self

    # ---- producers and applications

    def produced(self, *numbers: int, sent: bool = True) -> Made:
        """Confirm the records at these offsets to their producer."""
        for offset in numbers:
            if sent:
                self.add(ProduceSent, "t", value(offset))
            self.add(Produced, value(offset), self.place(offset))
        return self

    def delivered(self, member: str, offset: int, count: int = 1, **more: Any) -> Made:
        """Deliver a record to an application."""
        details = {"value": value(offset), **more}
        self.add(Delivered, member, self.share.group_id, self.place(offset), count, **details)
        return self

    def place(self, offset: int) -> Place:
        """Return the place of an offset in the current share-partition."""
        return Place(self.share.topic_id, self.share.partition, offset)

    # ---- leaders

    def locks(self, member: str, first: int, last: int | None = None, count: int = 1, **more: Any) -> Made:
        """Lock a range for a member; no response contains it yet."""
        details: dict[str, Any] = {
            "lock_ms": LOCK_MS,
            "limit": self.limit,
            "in_flight_before": 0,
            "in_flight": 1,
            "max_locks": 100,
            "batch_max": 10,
            "new_offsets": 1,
            **more,
        }
        self.requests += 1
        self.add(
            Locked,
            1,
            self.requests,
            self.share,
            member,
            self.leader_epoch,
            self.generation,
            self.state_epoch,
            self.object_id,
            first,
            first if last is None else last,
            count,
            **details,
        )
        return self

    def acquires(self, member: str, first: int, last: int | None = None, count: int = 1, **more: Any) -> Made:
        """Lock a range for a member and send the response at once."""
        last = first if last is None else last
        self.locks(member, first, last, count)
        details: dict[str, Any] = {
            "data": ((first, last),),
            "start_offset": 0,
            "log_start_offset": 0,
            "high_watermark": 100,
            "state_epoch": self.state_epoch,
            "locked_ms": self.now_ms,
            **more,
        }
        self.add(
            Acquired,
            1,
            self.requests,
            self.share,
            member,
            self.leader_epoch,
            self.object_id,
            first,
            last,
            count,
            LOCK_MS,
            **details,
        )
        return self

    def asks(self, member: str, *batches: AckBatchSeen, **more: Any) -> int:
        """Let acknowledgements arrive; return the request's number."""
        self.requests += 1
        acks = tuple((self.share.topic_id, self.share.partition, batch) for batch in batches)
        details: dict[str, Any] = {"session_id": 1, "accepted": 1, **more}
        epoch = details.pop("session_epoch", 1)
        self.add(
            SessionAsked,
            1,
            self.requests,
            details.pop("call", "ShareAcknowledge"),
            self.share.group_id,
            member,
            details.pop("connection", "1"),
            epoch,
            acks,
            **details,
        )
        return self.requests

    def does(self, request: int, code: int = 0, **more: Any) -> Made:
        """Let the share-partition object complete a request's acknowledgements."""
        asked = self._asked(request)
        details: dict[str, Any] = {
            "persisted": True,
            "begun_ms": asked.at_ms,
            "begun": self.history.events.index(asked) + 1,
            "start_offset": 0,
            "lock_ms": LOCK_MS,
            "limit": self.limit,
            **more,
        }
        self.add(
            AckDone,
            1,
            request,
            self.share,
            asked.member_id,
            self.leader_epoch,
            self.state_epoch,
            self.object_id,
            tuple(batch for _, _, batch in asked.acks),
            code,
            **details,
        )
        return self

    def answers(self, request: int, code: int = 0) -> Made:
        """Respond to a request's acknowledgements."""
        asked = self._asked(request)
        self.add(
            AckAnswered,
            1,
            request,
            asked.at_ms,
            self.share,
            asked.member_id,
            self.leader_epoch,
            self.object_id,
            tuple(batch for _, _, batch in asked.acks),
            code,
            state_epoch=self.state_epoch,
        )
        return self

    def settles(
        self, member: str, first: int, last: int | None = None, kind: int = ACK_ACCEPT, code: int = 0, **more: Any
    ) -> Made:
        """Let an acknowledgement arrive, and complete and answer it at once, without a write."""
        request = self.asks(member, (first, first if last is None else last, (kind,)))
        return self.does(request, code, **more).answers(request, code)

    def gives_back(self, member: str, *ranges: tuple[int, int]) -> Made:
        """Release what a member holds."""
        self.add(GivenBack, 1, self.share, self.object_id, member, ranges or None)
        return self

    def limits(self, limit: int) -> Made:
        """Change the group's delivery limit from now on."""
        self.limit = limit
        self.add(LimitsSeen, 1, self.share.group_id, limit, LOCK_MS, 100)
        return self

    def _asked(self, request: int) -> SessionAsked:
        return next(event for event in self.history.of(SessionAsked) if event.request == request)

    # ---- share coordinators

    def answered(self, call: str, start_offset: int = -1, *batches: StateBatchSeen, code: int = 0, **more: Any) -> Made:
        """Let the share coordinator respond to a state RPC."""
        details: dict[str, Any] = {"generation": self.generation, "asked": len(self.history.events), **more}
        epoch = details.pop("leader_epoch", self.leader_epoch)
        state_epoch = details.pop("state_epoch", self.state_epoch)
        self.add(StateAnswered, 1, call, self.share, epoch, state_epoch, start_offset, batches, code, **details)
        return self

    def writes(self, start_offset: int, *batches: StateBatchSeen, **more: Any) -> Made:
        """Confirm a state write."""
        return self.answered("Write", start_offset, *batches, **more)

    def reads(self, start_offset: int, *batches: StateBatchSeen, **more: Any) -> Made:
        """Respond to a state read."""
        return self.answered("Read", start_offset, *batches, **more)

    def state(self, start_offset: int, *batches: StateBatchSeen, finished: int = 0, **more: Any) -> StateSeen:
        """Return a state as a coordinator holds it; it is not added to the history."""
        epoch = more.pop("leader_epoch", self.leader_epoch)
        return StateSeen(
            self.now_ms, self.process, self.share, self.state_epoch, epoch, start_offset, finished, batches
        )

    def rests(self, start_offset: int, *batches: StateBatchSeen, end: int | None = None, finished: int = 0) -> Made:
        """Set the final state: this state as the served, replayed and rebuilt one, and a log up to `end` with a value
        at each offset."""
        state = self.state(start_offset, *batches, finished=finished)
        end = start_offset if end is None else end
        partition = self.share[1:]
        self.final = Final(
            served={self.share: state},
            replayed={self.share: state},
            rebuilt={self.share: state},
            logs={partition: LogEnd(0, end)},
            values={partition: {offset: value(offset) for offset in range(end)}},
        )
        return self

    # ---- groups and the world

    def begins(self, phase: str) -> Made:
        """Start a phase of the run."""
        self.add(PhaseBegan, phase)
        return self

    def beats(self, member: str, sent: int, epoch: int, code: int = 0, **more: Any) -> Made:
        """Respond to a heartbeat."""
        details: dict[str, Any] = {"asked_ms": self.now_ms, "asked": len(self.history.events), **more}
        self.add(HeartbeatAnswered, 1, self.share.group_id, member, sent, epoch, None, code, **details)
        return self

    def group(self, epoch: int, members: dict[str, int], owned: Iterable[int] = (0,), **more: Any) -> Made:
        """Let a group be sampled; its first member owns the partitions `owned` of a topic with one partition."""
        parts = ((TOPIC, 0),)
        target = tuple((TOPIC, number) for number in owned)
        details: dict[str, Any] = {
            "incarnation": 1,
            "subscribed": parts,
            "assignable": parts,
            "session_timeout_ms": 3_000,
            **more,
        }
        assigned = details.pop("assigned", epoch)
        first = next(iter(members), "")
        self.add(
            GroupSeen,
            self.share.group_id,
            epoch,
            assigned,
            tuple(members.items()),
            ((first, target),) if first else (),
            **details,
        )
        return self


def value(offset: int) -> bytes:
    """Return the value of the record at an offset."""
    return f"v{offset}".encode()


def found(checker: Checker, made: Made) -> list[str]:
    """Return the rules that are broken according to a checker."""
    return [violation.rule for violation in violations(checker, made)]


def violations(checker: Checker, made: Made) -> list[Violation]:
    """Return a checker's violations; it may name only rules that it declares."""
    all_of_them = list(checker.check(made.history, made.final))
    assert {violation.rule for violation in all_of_them} <= set(checker.rules)
    return all_of_them
