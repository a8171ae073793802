"""Decides administrators' changes to a shard's groups, and resumes interrupted ones (GC-90…GC-108, OP-6).

The decisions themselves are in `deletion` and `alteration`; this module keeps track of the groups being changed.
`GroupShard` passes commands to it, and notifies it of each group that replay has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from group_coordinator.core import commands as c
from group_coordinator.core import upkeep
from group_coordinator.core.admin_calls import AdminCall, AdminCalls, AdminKind
from group_coordinator.core.alteration import altered
from group_coordinator.core.deletion import (
    DeletedGroups,
    epoch_risen,
    erased,
    group_deletion,
    interrupted,
    offsets_deleted,
    offsets_deletion,
    ordered,
    require_empty,
)
from group_coordinator.core.group import Group
from group_coordinator.core.heartbeat import Context
from group_coordinator.core.lifecycle import Lifecycle
from group_coordinator.core.records import Record
from group_coordinator.core.retention import EmptyGroups, used
from group_coordinator.core.views import CoordinatorSettings
from kip932.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, GroupIdNotFoundError
from shard_runtime.hosting.shard import Decision

_NOTHING: Final[Decision[Record, object]] = Decision((), None)


class Administration:
    """The changes to one shard's groups. `groups` is the shard's own mapping; `deleted` keeps the epochs of deleted
    groups."""

    def __init__(self, groups: Mapping[str, Group], settings: CoordinatorSettings) -> None:
        self.deleted = DeletedGroups()
        self.calls = AdminCalls()
        self.empty = EmptyGroups(groups)
        self._groups = groups
        self._settings = settings
        self._deleting: dict[str, None] = {}  # groups whose deletion is in progress, or was interrupted

    def decide(self, command: Any, context: Context, fresh: bool) -> Decision[Record, object]:
        """Decide one of the commands below. `fresh`: the image has everything that was in the metadata log when the
        shard was loaded, so a topic that it lacks does not exist (GC-80). Raises KafkaError to refuse the command."""
        decision: Decision[Record, object] = _DECIDE[type(command)](self, command, context, fresh)
        return decision

    def noted(self, group_id: str, group: Group | None) -> None:
        """Note the group's new value, set by replay or undo; None when it was removed."""
        states = None if group is None else group.lifecycle
        if states is not None and (states.deleting or states.dropping):
            self._deleting[group_id] = None
        else:
            self._deleting.pop(group_id, None)
        self.empty.noted(group_id, group)

    def undone(self, group_id: str) -> None:
        """Forget the effects of a record that was not stored: its order, and the use of the group that it recorded."""
        self.calls.forget(group_id)
        self.empty.forget_progress(group_id)

    def born(self, group_id: str, wall_ms: int) -> Group:
        """Return the initial value of a group that does not exist yet (GC-93)."""
        return self.deleted.born(group_id, self._settings.deleted_group_ms, wall_ms)

    # ---- altering offsets

    def require_empty(self, command: c.RequireEmpty, context: Context, fresh: bool) -> Decision[Record, object]:
        """Refuse an alteration early, before the edge asks leaders for log ends (GC-101)."""
        del fresh
        if (group := self._groups.get(command.group_id)) is not None:
            require_empty(group)
            self.calls.require_none(command.group_id, context.now_ms)
        return _NOTHING

    def alter(self, command: c.AlterOffsets, context: Context, fresh: bool) -> Decision[Record, object]:
        """Start altering start offsets (GC-101, GC-102)."""
        del fresh
        group_id = command.group_id
        group = self._groups.get(group_id) or self.born(group_id, context.wall_ms)
        require_empty(group)
        self.calls.require_none(group_id, context.now_ms)
        _require_complete(context)
        attempt = context.next_attempt(context.now_ms)
        draft, refused = altered(group, command.offsets, command.call_id, attempt, context)
        if draft.effects:
            self._begin(group_id, AdminKind.ALTER_OFFSETS, attempt, context, before=group.states)
        return Decision(draft.records, c.AlterationBegun(bool(draft.effects), refused), draft.effects)

    def initialized(self, command: c.InitializationFinished, context: Context) -> Decision[Record, object]:
        """Note the outcome of an initialisation, an administrator's or another (GC-75, GC-76, GC-103)."""
        group_id = command.group_id
        if (group := self._groups.get(group_id)) is None:
            return Decision((), False)
        call = self.calls.with_attempt(group_id, command.attempt, context.now_ms)
        draft = upkeep.finished(group, command, context, None if call is None else call.before)
        if call is not None:
            if orders := [effect for effect in draft.effects if isinstance(effect, c.InitializeState)]:
                self._begin(group_id, call.kind, orders[0].attempt, context, before=call.before)
            else:
                self.calls.end(group_id, command.attempt)
        return Decision(draft.records, bool(draft.effects), draft.effects)

    # ---- deletions

    def delete_group(self, command: c.DeleteGroup, context: Context, fresh: bool) -> Decision[Record, object]:
        """Start deleting a group (GC-91); delete it at once when it has no state (GC-93)."""
        group = self._deletable(command.group_id, context)
        written, effects = self._delete(group, context, fresh, command.call_id)
        return Decision(written, c.DeletionBegun(under_way=bool(effects)), effects)

    def delete_offsets(self, command: c.DeleteOffsets, context: Context, fresh: bool) -> Decision[Record, object]:
        """Start deleting a group's offsets for whole topics (GC-96…GC-98)."""
        del fresh
        group = self._deletable(command.group_id, context)
        if group.lifecycle is None:
            return Decision((), c.DeletionBegun(under_way=False))
        states, partitions, begun = offsets_deletion(group, context.view, command.topic_names)
        if not begun.under_way:
            return Decision((), begun)
        attempt = context.next_attempt(context.now_ms)
        draft = ordered(group, states, partitions, attempt, command.call_id)
        topics = frozenset(begun.accepted.values())
        self._begin(group.group_id, AdminKind.DELETE_OFFSETS, attempt, context, topics=topics)
        return Decision(draft.records, begun, draft.effects)

    def deletion_finished(self, command: c.DeletionFinished, context: Context, fresh: bool) -> Decision[Record, object]:
        """Note the outcome of a deletion of state, and complete the deletion (GC-92, GC-93, GC-98)."""
        del fresh
        call = self.calls.with_attempt(command.group_id, command.attempt, context.now_ms)
        group = self._groups.get(command.group_id)
        if call is None or group is None:
            raise CoordinatorNotAvailableError(
                f"the deletion of state of group {command.group_id} ended too late to be noted; repeat the call"
            )
        self.calls.end(command.group_id, command.attempt)
        risen = epoch_risen(group, command.stored_epoch)
        if call.kind is AdminKind.DELETE_OFFSETS:
            draft = offsets_deleted(group, call.topics - command.failed)
            return Decision([*risen, *draft.records], None)
        if command.failed:
            return Decision(risen, None)
        require_empty(group)
        return Decision(self._erased(group, context), None)

    def call_ended(self, command: c.CallEnded, context: Context, fresh: bool) -> Decision[Record, object]:
        """Forget a call that ended without an outcome (GC-108)."""
        del context, fresh
        self.calls.end(command.group_id, command.attempt)
        return _NOTHING

    def resume(self, command: c.ResumeDeletions, context: Context, fresh: bool) -> Decision[Record, object]:
        """Resume interrupted deletions (OP-6), and remove expired records of deleted groups (GC-93)."""
        expired = self.deleted.expired(self._settings.deleted_group_ms, context.wall_ms)
        found: list[Record] = list(islice(expired, command.limit))
        more = len(found) == command.limit
        idle = [key for key in self._deleting if self.calls.under_way(key, context.now_ms) is None]
        if not (fresh and context.view.complete):
            return Decision(found, c.ResumeReply(more, bool(idle)), [c.SweepSoon()] if idle and command.loading else [])
        left = ((self._groups[key], interrupted(self._groups[key], context.view)) for key in idle)
        due = [(group, rest) for group, rest in left if rest is not None]
        effects: list[object] = []
        for group, (kind, partitions) in due[: command.limit]:
            if not partitions and kind is AdminKind.DELETE_GROUP:
                found.extend(self._erased(group, context))
                continue
            attempt = context.next_attempt(context.now_ms)
            self._begin(group.group_id, kind, attempt, context, topics=frozenset(group.states.deleting))
            effects.extend(ordered(group, group.states, partitions, attempt, 0).effects)
        return Decision(found, c.ResumeReply(more or len(due) > command.limit, waiting=False), effects)

    def expire(self, command: c.ExpireEmpty, context: Context, fresh: bool) -> Decision[Record, object]:
        """Start deleting groups that have been empty for too long, in the same steps as an administrator's call
        (GC-46)."""
        retention_ms = self._settings.empty_retention_ms
        if not retention_ms:
            return Decision((), ())
        served_ms = self.empty.served.count(context.now_ms)
        if not (fresh and context.view.complete and len(self.empty)):
            return Decision((), ())
        kept = self.empty.served.to_keep(retention_ms)
        written: list[Record] = [] if kept is None else [kept]
        effects: list[object] = []
        expired: list[tuple[str, int]] = []
        for group in self.empty.next(command.checks_max):
            if group.used_ms is None or group.used_ms > served_ms:  # unknown, or by a count that was lost
                written.append(used(group, served_ms))
                continue
            age_ms = served_ms - group.used_ms
            if age_ms < retention_ms or len(expired) >= command.limit or not self._idle(group, context):
                continue
            more, orders = self._delete(group, context, fresh)
            written += more
            effects += orders
            expired.append((group.group_id, age_ms))
        return Decision(written, tuple(expired), effects)

    def progress_seen(self, command: c.ProgressSeen, context: Context, fresh: bool) -> Decision[Record, object]:
        """If an empty group's progress has changed, note that it was used: by a consumer that sends no heartbeats
        (GC-46)."""
        del fresh
        group = self._groups.get(command.group_id)
        if group is None or group.members or group.epoch != command.group_epoch or context.served_ms is None:
            return _NOTHING
        moved = self.empty.moved(command.group_id, command.progress)
        return Decision((used(group, context.served_ms),) if moved else (), None)

    # ---- helpers

    def _idle(self, group: Group, context: Context) -> bool:
        """Return whether no change to the group is in progress, and no interrupted one is still to be resumed
        (OP-6)."""
        under_way = self.calls.under_way(group.group_id, context.now_ms)
        return under_way is None and group.group_id not in self._deleting

    def _delete(
        self, group: Group, context: Context, fresh: bool, call_id: int = 0
    ) -> tuple[list[Record], list[object]]:
        """The records and effects that start a group's deletion; if the group has no state, they complete it (GC-91,
        GC-93)."""
        states, partitions = group_deletion(group, context.view, fresh)
        if not partitions:
            return self._erased(group, context), []
        attempt = context.next_attempt(context.now_ms)
        draft = ordered(group, states, partitions, attempt, call_id)
        self._begin(group.group_id, AdminKind.DELETE_GROUP, attempt, context)
        return draft.records, list(draft.effects)

    def _deletable(self, group_id: str, context: Context) -> Group:
        """Return the group if it is empty and no other call changes it, else raise (GC-90, GC-91, GC-96, GC-107)."""
        if (group := self._groups.get(group_id)) is None:
            raise GroupIdNotFoundError(f"group {group_id} does not exist; ListGroups shows the groups that do")
        require_empty(group)
        self.calls.require_none(group_id, context.now_ms)
        _require_complete(context)
        return group

    def _erased(self, group: Group, context: Context) -> list[Record]:
        return erased(group, self.deleted.get(group.group_id), context.wall_ms)

    def _begin(
        self,
        group_id: str,
        kind: AdminKind,
        attempt: int,
        context: Context,
        *,
        topics: frozenset[bytes] = frozenset(),
        before: Lifecycle | None = None,
    ) -> None:
        until_ms = context.now_ms + self._settings.admin_call_ms
        self.calls.begin(group_id, AdminCall(kind, attempt, until_ms, topics, before))


def _require_complete(context: Context) -> None:
    if not context.view.complete:
        raise CoordinatorLoadInProgressError("the coordinator is still reading the cluster's metadata; try again")


_DECIDE: Final[dict[type[Any], Callable[[Administration, Any, Context, bool], Decision[Record, object]]]] = {
    c.RequireEmpty: Administration.require_empty,
    c.AlterOffsets: Administration.alter,
    c.DeleteGroup: Administration.delete_group,
    c.DeleteOffsets: Administration.delete_offsets,
    c.DeletionFinished: Administration.deletion_finished,
    c.CallEnded: Administration.call_ended,
    c.ResumeDeletions: Administration.resume,
    c.ExpireEmpty: Administration.expire,
    c.ProgressSeen: Administration.progress_seen,
}
ADMINISTERED: Final = tuple(_DECIDE)
