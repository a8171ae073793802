"""One shard of the group coordinator: every group whose id hashes to it, as a `hosting.shard.Shard` (GC-1, GC-2).

It decides and replays; it never waits, sends, or reads a clock. The persistent state is `Group` values; only replay
changes them. Soft state is lost at each load: session clocks, memos, attempt numbers, administrators' calls in
progress, and when each group's summaries were checked. A decision may change soft state, because a heartbeat without
changes writes no record. Losing soft state, or keeping it after the store refused the append, does no harm (GC-33).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from group_coordinator.core import commands as c
from group_coordinator.core import records, upkeep
from group_coordinator.core.administration import ADMINISTERED, Administration
from group_coordinator.core.assignor import Assignor
from group_coordinator.core.assignors import assignor_of
from group_coordinator.core.group import GROUP_STABLE, GROUP_UNKNOWN, Group, replayed
from group_coordinator.core.heartbeat import Context, admitted, beat, removal
from group_coordinator.core.lifecycle import LONG_AGO
from group_coordinator.core.lost_connections import SLACK_MS, Expelled, LostConnections
from group_coordinator.core.records import ColdCopy, DeletedGroup, Record, Tombstone
from group_coordinator.core.rewriting import Key, anchor_key, live_record
from group_coordinator.core.sessions import Sessions
from group_coordinator.core.topic_readiness import ReadinessMemo
from group_coordinator.core.views import CoordinatorSettings, TopicsView
from kip932.errors import CoordinatorLoadInProgressError, GroupIdNotFoundError, InQuarantineError
from kip932.ids import EPOCH_JOIN, EPOCH_LEAVE
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.hosting.quarantine import Quarantine
from shard_runtime.hosting.shard import Anchor, DamagedEntry, Decision

_DUE_MAX: Final = 64
_NOT_LOADED: Final = 1 << 62
_NEVER: Final = -1
_NOTHING: Final[Decision[Record, object]] = Decision((), None)


class UndoToken(NamedTuple):
    """The values that one replayed record replaced: the group's value, the record of a deleted group, the session clock
    that was stopped, if any, and the kept served time."""

    group_id: str
    group: Group | None
    deleted: DeletedGroup | None = None
    stopped: tuple[str, int] | None = None
    served_ms: int | None = None


class GroupShard:
    """The groups of one shard.

    `topics` gives the newest metadata image, `configs` a group's effective configs. Both are called for each command,
    so that a change takes effect on the next heartbeat (GC-27, GC-138). `assignor`: for groups that choose none
    (GC-58).
    """

    def __init__(
        self,
        topics: Callable[[], TopicsView],
        configs: Callable[[str], GroupConfig],
        settings: CoordinatorSettings,
        assignor: Assignor,
    ) -> None:
        self._topics = topics
        self._configs = configs
        self._settings = settings
        self._assignor = assignor
        self._groups: dict[str, Group] = {}
        self._quarantine = Quarantine()
        self._administration = Administration(self._groups, settings)
        self._served = self._administration.empty.served
        self._sessions = Sessions()
        self._lost = LostConnections(self._sessions)
        self._memo = ReadinessMemo()
        self._last_attempt = 0
        self._checked_ms: dict[str, int] = {}  # of every group, the least recently checked first
        self._swept_image: object = None
        self._image_incomplete = False
        self._loaded_ms = _NOT_LOADED

    @property
    def groups(self) -> Mapping[str, Group]:
        """All groups by id, including uncommitted changes. For metrics and overviews; do not change it."""
        return self._groups

    def decide(self, command: c.Command, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        """Decide a command without changing a group. Raises KafkaError to refuse it."""
        if hurt := self._quarantine.damage_of(getattr(command, "group_id", None)):
            raise InQuarantineError(_damaged(cast(c.Heartbeat, command).group_id, hurt))
        decision: Decision[Record, object] = _DECIDE[type(command)](self, command, now_ms, wall_ms)
        return decision

    def replay(self, record: Record) -> UndoToken:
        """Apply one record (GC-64…GC-69a), unless its group is in quarantine (GC-158). Raises InconsistentLogError for
        a record that no coordinator writes here."""
        value = record.record if type(record) is ColdCopy else cast(records.Value | Tombstone, record)
        group_id, kind = value.group_id, type(value)
        if kind is records.ServedTime:
            assert isinstance(value, records.ServedTime)
            token = UndoToken(group_id, None, served_ms=self._served.kept_ms)
            self._served.keep(value.served_ms)
            return token
        if self._quarantine.damage_of(group_id):
            return UndoToken(group_id, None)
        before, deleted = self._groups.get(group_id), self._administration.deleted.get(group_id)
        if kind is DeletedGroup or (isinstance(value, Tombstone) and value.kind == records.DELETED):
            self._administration.deleted.put(group_id, value if isinstance(value, DeletedGroup) else None)
            return UndoToken(group_id, before, deleted)
        after = replayed(before, record)
        if after is None:
            self._memo.forget(group_id)
        self._set(group_id, after)
        stopped = None
        if isinstance(record, Tombstone) and record.kind == records.MEMBER:
            deadline_ms = self._sessions.cancel((group_id, record.member_id))
            self._lost.forget((group_id, record.member_id))
            stopped = None if deadline_ms is None else (record.member_id, deadline_ms)
        return UndoToken(group_id, before, deleted, stopped)

    def quarantine(self, found: DamagedEntry) -> bool:
        """Note a damaged entry, and forget its group; commands for the group are now refused (GC-158). Returns False
        when the entry does not name its group: any group may be damaged, and the shard must not be served."""
        if not isinstance(found.key, str):
            return False
        self._quarantine.add(found)
        self._set(found.key, None)
        self._administration.deleted.put(found.key, None)
        return True

    def drop(self, key: Hashable) -> bool:
        """Return False: a group is never dropped. Once the damaged entry is removed, users can delete the group."""
        return False

    def quarantined(self) -> Sequence[DamagedEntry]:
        """The damaged entries; each keeps its group in quarantine until an operator repairs it."""
        return self._quarantine.entries()

    def undo(self, token: object) -> None:
        """Restore what one record replaced."""
        assert isinstance(token, UndoToken)
        if token.served_ms is not None:
            self._served.keep(token.served_ms)
            return
        self._set(token.group_id, token.group)
        self._administration.deleted.put(token.group_id, token.deleted)
        self._administration.undone(token.group_id)
        if token.stopped is not None:
            self._sessions.restart((token.group_id, token.stopped[0]), token.stopped[1])

    def loaded(self, now_ms: int) -> Sequence[c.Command]:
        """Start every member's session clock in full (GC-69c). Returns the commands that check for lost state (GC-82)
        and resume interrupted deletions (OP-6)."""
        self._loaded_ms = now_ms
        self._served.begin(now_ms)
        self._restart_sessions(now_ms)
        return (c.RepairCheck(), c.ResumeDeletions(_NEVER, loading=True))

    def next_deadline(self) -> int | None:
        """Return when the next session clock runs out; a shard needs no other timer (P-13)."""
        return self._sessions.next_deadline()

    def due(self, now_ms: int) -> Sequence[c.Command]:
        """Return the expiries of at most 64 sessions that have run out."""
        return [c.SessionExpired(*key) for key in self._sessions.due(now_ms, _DUE_MAX)]

    def paused(self, now_ms: int) -> None:
        """Restart all session clocks: no heartbeat could be accepted for a while, so no session must expire because of
        that (GC-32a)."""
        self._served.begin(now_ms)
        self._restart_sessions(now_ms)

    def anchor(self, record: Record) -> Anchor:
        """Return the record's key; every record is a self-contained copy, or the tombstone, of its key (CM-18)."""
        return Anchor(anchor_key(record), not isinstance(record, Tombstone))

    def rewrite(self, keys: Iterable[Hashable], wall_ms: int) -> Sequence[Sequence[Record]]:
        """Return cold copies of these keys, in one atomic append per group; a key without a live value has no copy
        (CM-18)."""
        del wall_ms
        copies: dict[str, list[Record]] = {}
        for key in keys:
            kind, group_id, member_id = cast(Key, key)
            group = self._groups.get(group_id)
            found: records.Value | None = None
            if kind == records.SERVED:
                found = records.ServedTime(self._served.kept_ms)
            elif kind == records.DELETED:
                found = self._administration.deleted.get(group_id)
            elif group is not None:
                found = live_record(group, kind, member_id)
            if found is not None:
                copies.setdefault(group_id, []).append(ColdCopy(found))
        return list(copies.values())

    # ---- deciding

    def _heartbeat(self, command: c.Heartbeat, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        group = self._groups.get(command.group_id)
        if command.member_epoch == EPOCH_JOIN:
            self._administration.calls.require_joinable(command.group_id, now_ms)
        member = admitted(group, command, self._settings)
        context = self._context(command.group_id, now_ms, wall_ms)
        if command.member_epoch == EPOCH_LEAVE and group is not None:
            draft = removal(group, command.member_id, records.REASON_LEFT, context)
            return Decision(draft.records, c.HeartbeatReply(command.member_id, EPOCH_LEAVE, 0, None))
        self._require_topics(context.view, now_ms)
        draft, reply = beat(group or self._administration.born(command.group_id, wall_ms), member, command, context)
        key, interval_ms = (command.group_id, command.member_id), reply.heartbeat_interval_ms
        self._lost.heard(key, now_ms, now_ms + context.configs.session_timeout_ms, interval_ms)
        interval_ms = self._lost.interval_ms(command.group_id, now_ms, interval_ms)
        return Decision(draft.records, reply._replace(heartbeat_interval_ms=interval_ms), draft.effects)

    def _connection_lost(self, command: c.ConnectionLost, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        del wall_ms
        grace_ms, key = self._settings.lost_connection_grace_ms, (command.group_id, command.member_id)
        if grace_ms < 0:
            return Decision((), False)
        grace_ms = max(grace_ms, self._configs(command.group_id).heartbeat_interval_ms + SLACK_MS)
        return Decision((), self._lost.lost(key, command.leader, now_ms, command.ago_ms, grace_ms))

    def _connection_back(self, command: c.ConnectionBack, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        del now_ms, wall_ms
        return Decision((), self._lost.back((command.group_id, command.member_id)))

    def _session_expired(self, command: c.SessionExpired, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        key = (command.group_id, command.member_id)
        group = self._groups.get(command.group_id)
        if group is None or command.member_id not in group.members:
            self._sessions.cancel(key)
            return _NOTHING
        context = self._context(command.group_id, now_ms, wall_ms)
        self._require_topics(context.view, now_ms)
        if not self._sessions.expired(key, now_ms):
            return _NOTHING
        why = self._lost.expelled(key, now_ms) or Expelled(None, context.configs.session_timeout_ms)
        draft = removal(group, command.member_id, records.REASON_EXPIRED, context)
        expired = c.MemberExpired(command.group_id, group.members[command.member_id], *why, draft.group.epoch)
        return Decision(draft.records, None, [expired])

    def _initialization_finished(
        self, command: c.InitializationFinished, now_ms: int, wall_ms: int
    ) -> Decision[Record, object]:
        context = self._context(command.group_id, now_ms, wall_ms)
        return self._administration.initialized(command, context)

    def _repair(self, command: c.Repair, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        group = self._groups.get(command.group_id)
        if group is None:
            return _NOTHING
        draft = upkeep.repaired(group, command, self._context(command.group_id, now_ms, wall_ms))
        partitions = sum(len(effect.partitions) for effect in draft.effects if isinstance(effect, c.InitializeState))
        return Decision(draft.records, partitions, draft.effects)

    def _repair_check(self, command: c.RepairCheck, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        del wall_ms
        before_ms = now_ms - self._settings.repair_interval_ms
        due = (group_id for group_id, checked_ms in self._checked_ms.items() if checked_ms <= before_ms)
        orders = []
        for group_id in list(islice(due, command.limit)):
            del self._checked_ms[group_id]
            self._checked_ms[group_id] = now_ms
            group = self._groups[group_id]
            watched = bool(self._settings.empty_retention_ms and not group.members)
            if (order := upkeep.summaries_to_check(group, watched)) is not None:
                orders.append(order)
        return Decision((), len(orders), orders)

    def _sweep(self, command: c.Sweep, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        del now_ms, wall_ms
        view = self._topics()
        # Records replayed at load may name topics that an older image lacks; later records were decided with this one.
        if not view.complete or command.complete_since_ms < self._loaded_ms:
            return Decision((), c.SweepReply(0, more=False, lagging=True))
        if view.image is self._swept_image:
            return Decision((), c.SweepReply(0, more=False, lagging=False))
        drafts = (upkeep.swept(group, view) for group in self._groups.values() if group.lifecycle is not None)
        changed = list(islice((draft for draft in drafts if draft.records), command.limit))
        if not changed:
            self._swept_image = view.image
        reply = c.SweepReply(len(changed), more=len(changed) == command.limit, lagging=False)
        found = [record for draft in changed for record in draft.records]
        return Decision(found, reply, [effect for draft in changed for effect in draft.effects])

    def _describe(self, command: c.Describe, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        del now_ms, wall_ms
        group = self._groups.get(command.group_id)
        if group is None:
            raise GroupIdNotFoundError(f"Group {command.group_id} not found.")
        view = self._topics()
        members = tuple(group.members[member_id] for member_id in sorted(group.members))
        assigned = {topic_id for member in members for topic_id in member.assigned}
        names = {topic_id: topic.name for topic_id in assigned if (topic := view.by_id(topic_id))}
        return Decision(
            (),
            c.DescribedGroup(
                group.group_id,
                group.state,
                group.epoch,
                group.assignment_epoch,
                assignor_of(self._configs(group.group_id), self._assignor).name,
                members,
                names,
            ),
        )

    def _list(self, command: c.ListAll, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        del command, now_ms, wall_ms
        hurt = [c.ListedGroup(str(group_id), GROUP_UNKNOWN, None) for group_id in self._quarantine.named()]
        sound = [c.ListedGroup(group.group_id, group.state, len(group.members)) for group in self._groups.values()]
        return Decision((), sound + hurt)

    def _offsets(self, command: c.OffsetsQuery, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        del now_ms, wall_ms
        group = self._groups.get(command.group_id)
        return Decision((), {} if group is None else group.states.initialized)

    def _administer(self, command: c.Command, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        since_ms = getattr(command, "complete_since_ms", _NEVER)
        context = self._context(getattr(command, "group_id", ""), now_ms, wall_ms)
        return self._administration.decide(command, context, fresh=since_ms >= self._loaded_ms)

    # ---- helpers

    def counts(self) -> tuple[int, int]:
        """Return how many groups are (Empty, Stable), for GC-151; counted at each call (GC-156)."""
        stable = sum(group.state == GROUP_STABLE for group in self._groups.values())
        return len(self._groups) - stable, stable

    def members(self) -> Iterator[tuple[str, int]]:
        """Yield each group with the number of its members (PL-956)."""
        for group_id, group in self._groups.items():
            yield group_id, len(group.members)

    def _set(self, group_id: str, group: Group | None) -> None:
        if group is None:
            self._groups.pop(group_id, None)
            self._checked_ms.pop(group_id, None)
        else:
            self._groups[group_id] = group
            self._checked_ms.setdefault(group_id, LONG_AGO)
        self._administration.noted(group_id, group)

    def _context(self, group_id: str, now_ms: int, wall_ms: int) -> Context:
        configs = self._configs(group_id)
        return Context(
            self._topics(),
            configs,
            self._settings,
            assignor_of(configs, self._assignor),
            self._memo,
            self._next_attempt,
            now_ms,
            wall_ms,
            self._served.at(now_ms) if self._settings.empty_retention_ms else None,
        )

    def _next_attempt(self, now_ms: int) -> int:
        """Return a number that no earlier attempt of this process had, even before the shard's last load (GC-76a)."""
        self._last_attempt = max(self._last_attempt + 1, now_ms << 8)
        return self._last_attempt

    def _require_topics(self, view: TopicsView, now_ms: int) -> None:
        """Refuse to decide assignments or to expire members while the image may lack topics that exist."""
        if not view.complete:
            self._image_incomplete = True
            raise CoordinatorLoadInProgressError("the coordinator is still reading the cluster's metadata")
        if self._image_incomplete:
            self._image_incomplete = False
            self._restart_sessions(now_ms)

    def _restart_sessions(self, now_ms: int) -> None:
        keys = ((group.group_id, member_id) for group in self._groups.values() for member_id in group.members)
        self._lost.clear()
        self._sessions.reset(keys, lambda group_id: now_ms + self._configs(group_id).session_timeout_ms)


def _damaged(group_id: str, hurt: Sequence[DamagedEntry]) -> str:
    first, more = hurt[0], len(hurt) - 1
    return (
        f"what is stored of group {group_id} is in quarantine: entry {first.at} of {first.stream} {first.found}"
        f"{f' (and {more} more)' if more else ''}. Nothing is decided about the group until an operator settles that: "
        "`sharegroups state check` shows what is damaged, and `sharegroups state repair` what can be done"
    )


_DECIDE: Final[dict[type[Any], Callable[[GroupShard, Any, int, int], Decision[Record, object]]]] = {
    c.Heartbeat: GroupShard._heartbeat,
    c.SessionExpired: GroupShard._session_expired,
    c.ConnectionLost: GroupShard._connection_lost,
    c.ConnectionBack: GroupShard._connection_back,
    c.InitializationFinished: GroupShard._initialization_finished,
    c.Repair: GroupShard._repair,
    c.RepairCheck: GroupShard._repair_check,
    c.Sweep: GroupShard._sweep,
    c.Describe: GroupShard._describe,
    c.ListAll: GroupShard._list,
    c.OffsetsQuery: GroupShard._offsets,
    **dict.fromkeys(ADMINISTERED, GroupShard._administer),
}
