"""Observers of the coordinators: heartbeats and their responses, and the state RPCs of share-partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from group_coordinator.core.commands import DeleteState as DeleteOrder
from group_coordinator.core.commands import InitializeState as InitializeOrder
from group_coordinator.core.records import DeletedGroup, GroupMetadata, TargetMember, TargetMetadata
from kip932.errors import KafkaError
from kip932.state_values import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateCommand,
    StateOutcome,
    StateSummary,
    StoredState,
    WriteState,
)
from share_coordinator.dispatch import Begun
from tests.simulation.checkers.membership import ABANDONED
from tests.simulation.coordinator_events import GroupDecided, TargetComputed
from tests.simulation.edge import Edge
from tests.simulation.history import FailureSeen, HeartbeatAnswered, StateAnswered
from tests.simulation.member_edges import report_decided, watch_clocks


class Groups:
    """Observes heartbeats."""

    def __init__(self, edge: Edge, service: Any) -> None:
        self._edge = edge
        self._heartbeat = service.share_group_heartbeat
        for host in self._heartbeat.__self__._around.shards.hosts:
            vars(host).update(_new_shard=partial(self._shard, host._new_shard))
        vars(service).update(share_group_heartbeat=self.share_group_heartbeat)

    async def share_group_heartbeat(self, request: Any, context: Any) -> Any:
        """Replaces the handler. A heartbeat whose caller went away may nevertheless have been applied."""
        asked = (self._edge.now_ms(), len(self._edge.events))
        sent = (request.group_id, request.member_id, request.member_epoch)
        named = request.subscribed_topic_names
        topics = tuple(named.values) if request.HasField("subscribed_topic_names") else None
        try:
            response = await self._heartbeat(request, context)
        except asyncio.CancelledError:
            self._edge.report(HeartbeatAnswered, *sent, 0, None, ABANDONED, *asked, topics)
            raise
        assignment = None
        if response.HasField("assignment"):
            assignment = tuple(
                (self._edge.topic(topic.topic_id), number)
                for topic in response.assignment.topic_partitions
                for number in topic.partitions
            )
        reported = (response.member_epoch, assignment, response.error_code)
        self._edge.report(HeartbeatAnswered, *sent, *reported, *asked, topics)
        return response

    def _shard(self, make: Callable[[], Any]) -> Any:
        """Replaces a host's factory of shards: every shard is observed from its creation on."""
        shard = make()
        vars(shard).update(decide=partial(self._decided, shard, shard.decide))
        watch_clocks(self._edge, shard)
        return shard

    def _decided(self, shard: Any, decide: Callable[..., Any], *asked: Any) -> Any:
        """Replaces `GroupShard.decide`: records when a target assignment is computed, and when a group is created or
        deleted."""
        decision = decide(*asked)
        report_decided(self._edge, asked[0], decision)
        for effect in decision.effects:
            if isinstance(effect, InitializeOrder | DeleteOrder) and effect.call_id:
                self._edge.changes(deletion=isinstance(effect, DeleteOrder))
        for record in decision.records:
            if isinstance(record, TargetMetadata):
                self._computed(shard, record, decision.records)
            elif isinstance(record, DeletedGroup):
                gone = shard.groups.get(record.group_id)
                self._edge.report(
                    GroupDecided, record.group_id, False, record.epoch, 0 if gone is None else len(gone.members)
                )
            elif isinstance(record, GroupMetadata) and record.group_id not in shard.groups:
                self._edge.report(GroupDecided, record.group_id, True, record.epoch)
        return decision

    def _computed(self, shard: Any, computed: TargetMetadata, records: Sequence[object]) -> None:
        group = shard.groups.get(computed.group_id)
        targets = dict(group.targets) if group is not None else {}
        targets.update({each.member_id: each.assignment for each in records if isinstance(each, TargetMember)})
        reported = tuple(
            (member, tuple((self._edge.topic(topic), index) for topic, some in target.items() for index in some))
            for member, target in sorted(targets.items())
        )
        self._edge.report(TargetComputed, computed.group_id, computed.epoch, reported)


# ---- share coordinators


class States:
    """Observes the state RPCs of other processes and of this one."""

    def __init__(self, edge: Edge, service: Any) -> None:
        dispatcher = service._dispatcher
        self._edge = edge
        self._asked: dict[int, int] = {}
        self._begin = dispatcher.begin
        self._finish = dispatcher.finish
        self._run_one = dispatcher.run_one
        vars(dispatcher).update(begin=self.begin, finish=self.finish, run_one=self.run_one)

    def begin(self, commands: Sequence[StateCommand]) -> Begun:
        """Replaces `Dispatcher.begin`, which serves other processes."""
        asked = len(self._edge.events)
        begun: Begun = self._begin(commands)
        self._asked[id(begun)] = asked
        return begun

    async def finish(self, begun: Begun) -> list[StateOutcome]:
        """Replaces `Dispatcher.finish`."""
        asked = self._asked.pop(id(begun))
        outcomes: list[StateOutcome] = await self._finish(begun)
        for command, outcome in zip(begun.commands, outcomes, strict=True):
            self._answered(command, outcome, asked)
        return outcomes

    async def run_one(self, command: StateCommand, within_ms: int) -> StateOutcome:
        """Replaces `Dispatcher.run_one`, which serves this process."""
        asked = len(self._edge.events)
        outcome: StateOutcome = await self._run_one(command, within_ms)
        self._answered(command, outcome, asked)
        return outcome

    def _answered(self, command: StateCommand, outcome: StateOutcome, asked: int) -> None:
        code = outcome.code if isinstance(outcome, KafkaError) else 0
        leader, state, start, batches, generation, complete = _shown(command, outcome)
        share = self._edge.share(command.key)
        shown = tuple(tuple(batch) for batch in batches)
        name = _CALLS[type(command)]
        numbers = (code, generation, complete, asked)
        reasons = _failures(command, outcome)
        self._edge.report(StateAnswered, name, share, leader, state, start, shown, *numbers, reasons)


_CALLS: Final = {
    InitializeState: "Initialize",
    ReadState: "Read",
    WriteState: "Write",
    DeleteState: "Delete",
    ReadSummary: "Summary",
}


def _failures(command: StateCommand, outcome: StateOutcome) -> tuple[FailureSeen, ...]:
    """Return the reasons in a Write, or in the result of a Read."""
    shows = command if isinstance(command, WriteState) else outcome if isinstance(command, ReadState) else None
    found = shows.failures if isinstance(shows, WriteState | StoredState) else ()
    return tuple((first, last, count, reason) for first, last, count, reason in found)


def _shown(command: StateCommand, outcome: StateOutcome) -> tuple[int, int, int, Sequence[Any], int, int]:
    """Return (leader epoch, state epoch, start offset, batches, generation, delivery complete count) of one result."""
    if isinstance(command, WriteState):
        numbers = (command.leader_epoch, command.state_epoch, command.start_offset)
        return (*numbers, command.batches, command.generation, command.delivery_complete_count)
    if isinstance(command, InitializeState):
        return -1, command.state_epoch, command.start_offset, (), 0, -1
    if isinstance(command, DeleteState):
        return -1, command.state_epoch, -1, (), 0, -1
    if isinstance(command, ReadState):
        found = outcome if isinstance(outcome, StoredState) else None
        seen = (-1, -1, ()) if found is None else (found.state_epoch, found.start_offset, found.batches)
        return (command.leader_epoch, *seen, command.generation, -1)
    summary = outcome if isinstance(outcome, StateSummary) else StateSummary()
    numbers = (summary.leader_epoch, summary.state_epoch, summary.start_offset)
    return (*numbers, (), 0, summary.delivery_complete_count)
