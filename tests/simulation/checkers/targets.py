"""INV-15, INV-16: the assignment in a heartbeat response is the member's target, and targets contain only existing
partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kip932.ids import EPOCH_JOIN, EPOCH_LEAVE
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import Partition, doomed, numbered
from tests.simulation.coordinator_events import TargetComputed
from tests.simulation.final import Final
from tests.simulation.history import Administered, HeartbeatAnswered, History, StateAnswered

Names = frozenset[str]


class HeartbeatTargets:
    """An assignment in a response is the target computed for that member at that epoch, without topics that the member
    no longer subscribes to or that are deleted. A member that joined since then has nothing until the next target,
    since leaving gave up its part (GC-30). A target contains only partitions that were initialised for this group."""

    rules: tuple[str, ...] = ("INV-15", "INV-16")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check targets and responses in order. One epoch may have several targets, if the store refused some."""
        del final
        topics = _Topics(history)
        targets: dict[tuple[str, int], list[TargetComputed]] = defaultdict(list)
        said: dict[tuple[str, str], list[Names]] = defaultdict(list)
        ready: dict[tuple[str, Partition], int] = {}
        computed: dict[tuple[str, int], int] = {}
        late: set[tuple[str, str, int]] = set()
        for position, event in numbered(history, StateAnswered, TargetComputed, HeartbeatAnswered):
            if isinstance(event, StateAnswered):
                if event.share.topic_id not in topics.doomed or event.call != "Delete":
                    _state(position, event, ready)
            elif isinstance(event, TargetComputed):
                targets[event.group_id, event.epoch].append(event)
                computed[event.group_id, event.epoch] = position
                yield from _unready(event, ready)
            elif event.sent_epoch != EPOCH_LEAVE:
                mine = said[event.group_id, event.member_id]
                if event.subscribed is not None:
                    mine.append(frozenset(event.subscribed))
                name = (event.group_id, event.member_id, event.member_epoch)
                if (
                    event.sent_epoch == EPOCH_JOIN
                    and computed.get((event.group_id, event.member_epoch), position) < event.asked
                ):
                    late.add(name)
                empty = event.assignment == () and name in late
                if event.code == 0 and event.assignment is not None and not empty:
                    yield from _answered(event, targets[event.group_id, event.member_epoch], mine, topics)


class _Topics:
    """Topic names by id, and since when the deletion of some was requested."""

    def __init__(self, history: History) -> None:
        self.doomed = doomed(history)
        self.names = {
            event.detail: event.target
            for event in history.of(Administered)
            if event.call == "CreateTopics" and event.detail
        }

    def absent(self, topic_id: str, said: list[Names], at_ms: int) -> bool:
        """Return True if a response may omit the topic, given either of the member's last two subscriptions."""
        gone = at_ms >= self.doomed.get(topic_id, at_ms + 1)
        return gone or any(self.names.get(topic_id) not in names for names in said[-2:])


def _state(position: int, event: StateAnswered, ready: dict[tuple[str, Partition], int]) -> None:
    """Note that a state was initialised or deleted; a deleted one must be initialised again before it is assigned."""
    key = (event.share.group_id, (event.share.topic_id, event.share.partition))
    if event.code == 0 and event.call == "Initialize":
        ready[key] = position
    elif event.code == 0 and event.call == "Delete" and ready.get(key, position) < event.asked:
        del ready[key]


def _unready(event: TargetComputed, ready: dict[tuple[str, Partition], int]) -> Iterator[Violation]:
    for member, parts in event.target:
        strange = [part for part in parts if (event.group_id, part) not in ready]
        if strange:
            yield Violation(
                "INV-15",
                f"the target of {member} in {event.group_id} at epoch {event.epoch} names {strange}, which are not "
                "initialised for this group",
                (event,),
            )


def _answered(
    event: HeartbeatAnswered, targets: list[TargetComputed], said: list[Names], topics: _Topics
) -> Iterator[Violation]:
    assert event.assignment is not None
    given = set(event.assignment)
    wanted = [dict(each.target).get(event.member_id, ()) for each in targets]
    if not targets and not given:
        return
    if not any(
        given <= set(target) and all(topics.absent(each, said, event.at_ms) for each, _ in set(target) - given)
        for target in wanted
    ):
        yield Violation(
            "INV-16",
            f"{event.member_id} of {event.group_id} got {sorted(given)} at epoch {event.member_epoch}, though the "
            f"targets computed for it at that epoch are {[sorted(target) for target in wanted]}",
            (*targets[-2:], event),
        )
