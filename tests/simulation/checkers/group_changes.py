"""GC-93, GC-98, GC-103, INV-12: a confirmed change to a group has been made completely, and nothing undoes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.checkers import Violation
from tests.simulation.checkers.causes import ALTER, CHANGES, DELETE_GROUP, TopicNames, altered
from tests.simulation.checkers.reading import doomed, numbered
from tests.simulation.checkers.state_epochs import FAIL_OVER
from tests.simulation.coordinator_events import GroupDecided
from tests.simulation.final import Final
from tests.simulation.history import (
    Administered,
    FaultStruck,
    GroupListed,
    GroupSeen,
    HeartbeatAnswered,
    History,
    Share,
    StateAnswered,
)


class ConfirmedChanges:
    """When a deletion has the response NONE, the state that the group had before the request is deleted (all of it, or
    the topic's). When an alteration has it, the state was initialised with that offset at a new epoch."""

    rules: tuple[str, ...] = ("GC-93", "GC-98", "GC-103")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check states as they are created and deleted, and the responses to administrators' calls."""
        del final
        states = _States(history)
        for _, event in numbered(history, StateAnswered, Administered, FaultStruck):
            if isinstance(event, FaultStruck):
                states.lost = states.lost or event.fault.startswith(FAIL_OVER)
            elif isinstance(event, StateAnswered):
                states.note(event)
            elif event.call in CHANGES and event.error == "":
                yield from states.altered(event) if event.call == ALTER else states.deleted(event)


class _States:
    """By share-partition: the Initialize of the state that exists, and all Initialize calls that succeeded. `lost`: the
    store may have lost a tail, including a deletion or an initialisation that was already confirmed."""

    def __init__(self, history: History) -> None:
        self.lost = False
        self._names = TopicNames(history)
        self._doomed = doomed(history)
        self._alive: dict[Share, StateAnswered] = {}
        self._begun: dict[Share, list[StateAnswered]] = defaultdict(list)

    def note(self, event: StateAnswered) -> None:
        """Note that a state was created or deleted."""
        if event.code == 0 and event.call == "Initialize":
            self._alive[event.share] = event
            self._begun[event.share].append(event)
        elif event.code == 0 and event.call == "Delete":
            self._alive.pop(event.share, None)

    def deleted(self, event: Administered) -> Iterator[Violation]:
        """Check the deletion of a group, or of its offsets for a topic. Nothing is guaranteed for topics that may be
        deleted."""
        rule = "GC-93" if event.call == DELETE_GROUP else "GC-98"
        for share, begun in self._alive.items():
            meant = event.call == DELETE_GROUP or self._names.of.get(share.topic_id) == event.detail
            if share.group_id != event.target or not meant or share.topic_id in self._doomed:
                continue
            if begun.at_ms < event.asked_ms and not self.lost:
                sentence = (
                    f"{event.call} {event.target} {event.detail} was answered NONE at {event.at_ms}, though the state "
                    f"of {share}, which began at {begun.at_ms}, was not deleted"
                )
                yield Violation(rule, sentence, (begun, event))

    def altered(self, event: Administered) -> Iterator[Violation]:
        """Check the alteration of a start offset. An earlier attempt of the same call may have been the one that
        succeeded."""
        asked = altered(event)
        topic_ids = self._names.ids[asked.topic]
        if self.lost or any(topic_id in self._doomed for topic_id in topic_ids):
            return
        found = [each for topic_id in topic_ids for each in self._begun[asked.share(topic_id)]]
        before = max((each.state_epoch for each in found if each.at_ms < event.asked_ms), default=-1)
        since = [each for each in found if each.at_ms >= event.asked_ms]
        if not any(each.start_offset == asked.start_offset and each.state_epoch > before for each in since):
            sentence = (
                f"{event.call} {event.target} {event.detail} was answered NONE at {event.at_ms}, though nothing was "
                f"initialised there at an epoch above {before} since {event.asked_ms}"
            )
            yield Violation("GC-103", sentence, (*found[-1:], event))


class DeletedGroups:
    """A group is deleted only when it has no members. A group whose deletion was confirmed does not exist unless it was
    created again since; then its epoch, and that of each member, is higher than any seen before."""

    rules: tuple[str, ...] = ("GC-93", "INV-12")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check groups when they are created, deleted or listed, and the epochs that their members received."""
        del final
        groups: dict[str, _Group] = defaultdict(_Group)
        lost = False
        kinds = (GroupDecided, Administered, GroupListed, GroupSeen, HeartbeatAnswered, FaultStruck)
        for position, event in numbered(history, *kinds):
            if isinstance(event, FaultStruck):
                lost = lost or event.fault.startswith(FAIL_OVER)
            elif isinstance(event, Administered):
                if event.call == DELETE_GROUP and event.error == "":
                    groups[event.target].gone = (position, event)
            elif isinstance(event, GroupDecided):
                yield from groups[event.group_id].decided(position, event, lost)
            elif isinstance(event, GroupListed):
                yield from groups[event.group_id].was_listed(event, lost)
            elif isinstance(event, GroupSeen):
                groups[event.group_id].highest = max(groups[event.group_id].highest, event.group_epoch)
            elif event.code == 0:
                yield from groups[event.group_id].beaten(event, lost)


class _Group:
    """`gone`: the last confirmed deletion. `highest`: the highest epoch confirmed so far; `kept`: the highest at the
    time of the last deletion; `made`: when the group was last created."""

    def __init__(self) -> None:
        self.gone: tuple[int, Administered] | None = None
        self.highest = 0
        self._kept: tuple[int, int] = (0, 0)
        self._made: tuple[int, GroupDecided] | None = None

    def decided(self, position: int, event: GroupDecided, lost: bool) -> Iterator[Violation]:
        """Note that the coordinator decided to create or delete the group."""
        if not event.made:
            self._kept = (position, self.highest)
            if event.members:
                sentence = f"group {event.group_id} was deleted at {event.at_ms} though it had {event.members} members"
                yield Violation("GC-93", sentence, (event,))
            return
        self._made = (position, event)
        if event.epoch <= self._kept[1] and not lost:
            yield Violation(
                "INV-12",
                f"group {event.group_id} was made again at epoch {event.epoch}, though it had {self._kept[1]} before",
                (event,),
            )

    def beaten(self, event: HeartbeatAnswered, lost: bool) -> Iterator[Violation]:
        """Check the epoch that a member received."""
        if event.asked > self._kept[0] and 0 < event.member_epoch <= self._kept[1] and not lost:
            yield Violation(
                "INV-12",
                f"{event.member_id} joined {event.group_id} at epoch {event.member_epoch}, though a deleted group of "
                f"this id had {self._kept[1]}",
                (event,),
            )
        self.highest = max(self.highest, event.member_epoch)

    def was_listed(self, event: GroupListed, lost: bool) -> Iterator[Violation]:
        """Check a response that shows whether the group exists."""
        if self.gone is None or not event.there or event.asked < self.gone[0] or lost:
            return
        deletion = self.gone[1]
        if self._made is None or self._made[1].at_ms < deletion.asked_ms:
            yield Violation(
                "GC-93",
                f"{event.call} shows {event.group_id} at {event.at_ms}, though it was deleted at {deletion.at_ms} and "
                "no request made it since",
                (deletion, event),
            )


class ChangesEnd:
    """At rest no change to a group is in progress or half done: a group's lists match the existing state, whichever
    process serves them. An interrupted deletion waits for an initialisation of unknown outcome (OP-6)."""

    rules: tuple[str, ...] = ("GC-107", "GC-108", "INV-13")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check the groups at the end, and after a restart."""
        lost = any(event.fault.startswith(FAIL_OVER) for event in history.of(FaultStruck))
        for group_id, group in final.groups.items():
            if group.under_way:
                yield Violation("GC-108", f"{group.under_way} of group {group_id} is under way for ever")
            elif group.changing and not group.initializing and not group.members:
                yield Violation("GC-107", f"the deletion of {list(group.deleting)} of group {group_id} never ended")
        if final.served and not lost:
            yield from _halves(final)
        if final.replayed or final.groups_replayed:
            yield from _replayed(final)


def _halves(final: Final) -> Iterator[Violation]:
    """Yield state that its group does not list, and partitions that a group lists as initialised but that have no
    state."""
    existing = {topic_id for topic_id, _ in final.logs}
    listed: set[Share] = set()
    for group_id, group in final.groups.items():
        for topic_id, partition in group.initialized:
            share = Share(group_id, topic_id, partition)
            listed.add(share)
            if share not in final.served and topic_id in existing:
                yield Violation("GC-107", f"group {group_id} takes {share} for initialised, and it has no state")
        listed.update(Share(group_id, topic_id, partition) for topic_id, partition, *_ in group.initializing)
    for share, state in final.served.items():
        owner = final.groups.get(share.group_id)
        if share not in listed and share.topic_id in existing and not (owner and share.topic_id in owner.deleting):
            known = "its group does not know of it" if owner is not None else "its group does not exist"
            yield Violation("GC-107", f"there is state of {share}, and {known}", (state,))


def _replayed(final: Final) -> Iterator[Violation]:
    for group_id in sorted(final.groups.keys() | final.groups_replayed.keys()):
        before, after = final.groups.get(group_id), final.groups_replayed.get(group_id)
        if before is None or after is None or _lists(before) != _lists(after):
            yield Violation("INV-13", f"group {group_id} was {before} and is {after} after a restart")


def _lists(group: object) -> tuple[object, ...]:
    return tuple(getattr(group, name) for name in ("initialized", "initializing", "deleting", "dropping"))
