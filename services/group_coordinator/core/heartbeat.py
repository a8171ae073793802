"""Decides heartbeats, leaves and expired sessions: epochs, records, the reply (GC-19…GC-30, GC-70).

Nothing here changes the shard. The functions work on a draft of the group: each record they write is replayed onto the
draft at once, so that every later step sees the group as it will be (GC-24a…i).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from group_coordinator.core import records
from group_coordinator.core.assignor import Assignor, AssignorError, GroupSpec, MemberSpec, check_targets
from group_coordinator.core.assignors import computed_by
from group_coordinator.core.commands import Effect, Heartbeat, HeartbeatReply, InitializeState
from group_coordinator.core.group import NO_LIFECYCLE, Group, replayed
from group_coordinator.core.lifecycle import Lifecycle
from group_coordinator.core.member import Member
from group_coordinator.core.records import Record, Tombstone
from group_coordinator.core.topic_readiness import ReadinessMemo, TopicReadiness
from group_coordinator.core.views import Assignment, CoordinatorSettings, Topic, TopicsView
from kip932 import errors
from kip932.ids import EPOCH_JOIN, EPOCH_LEAVE
from shard_runtime.config.group_config import GroupConfig


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of a decision besides the group."""

    view: TopicsView
    configs: GroupConfig
    settings: CoordinatorSettings
    assignor: Assignor
    memo: ReadinessMemo
    next_attempt: Callable[[int], int]
    now_ms: int
    wall_ms: int
    #: How long the shard has been served; None when empty groups are kept for ever (GC-46).
    served_ms: int | None = None


@dataclass(slots=True)
class Draft:
    """A group as it will be after a decision, with the records that change it and the effects."""

    group: Group
    records: list[Record] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def write(self, record: Record) -> None:
        """Add a record and apply it to the draft."""
        group = replayed(self.group, record)
        if group is not None:
            self.group = group
        self.records.append(record)

    def bump(self, metadata_hash: int, served_ms: int | None = None) -> None:
        """Increase GE by 1 (GC-24e, GC-29). `served_ms`: the current served time, stored as the last use of a group
        that is now empty (GC-46)."""
        group = self.group
        used_ms = None if group.members else served_ms
        self.write(records.GroupMetadata(group.group_id, group.epoch + 1, metadata_hash, len(group.members), used_ms))

    def order_initialization(self, states: Lifecycle, attempt: int, fenced_rounds: int = 0, call_id: int = 0) -> None:
        """Order the initialisations of `attempt`, one call per state epoch (GC-73)."""
        self.effects.extend(
            InitializeState(self.group.group_id, attempt, epoch, partitions, fenced_rounds, call_id)
            for epoch, partitions in states.requests(attempt).items()
        )


def admitted(group: Group | None, command: Heartbeat, settings: CoordinatorSettings) -> Member | None:
    """Return the member that sent the heartbeat; None for a new one. Raises the errors of GC-19…GC-23, in OP-15's
    order, and before them those of GC-23b."""
    epoch, group_id, member_id = command.member_epoch, command.group_id, command.member_id
    _check_principal(group, command)
    if group is None:
        if epoch == EPOCH_JOIN:
            return None
        kind = "Group" if epoch == EPOCH_LEAVE else "Share group"
        raise errors.GroupIdNotFoundError(f"{kind} {group_id} not found.")
    member = group.members.get(member_id)
    if member is None:
        if epoch != EPOCH_JOIN:
            raise errors.UnknownMemberIdError(f"Member {member_id} is not a member of group {group_id}.")
        if len(group.members) >= settings.max_size:
            raise errors.GroupMaxSizeReachedError(
                f"The share group has reached its maximum capacity of {settings.max_size} members."
            )
        return None
    if epoch > member.epoch or (0 < epoch < member.epoch and epoch != member.previous_epoch):
        raise errors.FencedMemberEpochError(
            f"The share group member {member_id} sent epoch {epoch}, but its epoch at the group coordinator is "
            f"{member.epoch}. The member must abandon all its partitions and rejoin with epoch 0."
        )
    return member


def _check_principal(group: Group | None, command: Heartbeat) -> None:
    """Raise unless the caller may act for the member: a member that joined under a known principal belongs to it."""
    member = None if group is None else group.members.get(command.member_id)
    if command.refused is not None and (
        member is None or not member.principal or member.principal != command.principal
    ):
        raise command.refused
    if member is not None and member.principal and member.principal != command.principal:
        raise errors.UnknownMemberIdError(
            f"Member {command.member_id} of group {command.group_id} was joined by another principal; join with a "
            "member id of your own."
        )


def beat(group: Group, member: Member | None, command: Heartbeat, context: Context) -> tuple[Draft, HeartbeatReply]:
    """Decide a join, possibly of a new group, or a heartbeat of an admitted member (GC-24a…i)."""
    draft = Draft(group)
    old_assigned = member.assigned if member is not None else None
    bump = _update_member(draft, member, command)
    readiness = context.memo.of(draft.group, context.view)
    settled = draft.group.assignment_epoch >= draft.group.epoch
    bump = bump or (settled and (readiness.pending or _assignor_changed(draft.group, context)))
    if bump or readiness.metadata_hash != draft.group.metadata_hash:
        bump = True
        draft.bump(readiness.metadata_hash)
    if draft.group.assignment_epoch < draft.group.epoch and _may_assign(draft.group, context):
        _compute_target(draft, readiness, context)
    current = _reconcile(draft, command.member_id, readiness, bump)
    if wanted := readiness.to_initialize(draft.group.states, context.now_ms, context.settings.initialize_retry_ms):
        _order_initialization(draft, wanted, context)
    elif draft.group.states.dropping:  # the group's deletion was abandoned, and the group is used again (GC-107)
        draft.write(records.StateMetadata(draft.group.group_id, replace(draft.group.states, dropping=False)))
    full = command.member_epoch == EPOCH_JOIN or command.subscribed is not None or current.assigned != old_assigned
    interval_ms = _interval_ms(draft.group, current, readiness, context, joins=command.member_epoch == EPOCH_JOIN)
    reply = HeartbeatReply(
        current.member_id, current.epoch, interval_ms, current.assigned if full else None, rebalanced=bump
    )
    return draft, reply


def removal(group: Group, member_id: str, reason: str, context: Context) -> Draft:
    """Write the records of a member's leave or expiry (GC-30)."""
    draft = Draft(group)
    for kind in (records.CURRENT, records.TARGET, records.MEMBER):
        draft.write(Tombstone(kind, group.group_id, member_id, reason))
    # An incomplete image does not show which topics exist: keep the hash; the next heartbeat computes it.
    known = context.view.complete
    metadata_hash = context.memo.of(draft.group, context.view).metadata_hash if known else group.metadata_hash
    draft.bump(metadata_hash, context.served_ms)
    if not draft.group.members:
        draft.write(records.TargetMetadata(group.group_id, draft.group.epoch, 0, {}))
    return draft


def _update_member(draft: Draft, old: Member | None, command: Heartbeat) -> bool:
    """Write the member's record if it changed (GC-24b). Returns whether its subscription changed."""
    before = old if old is not None else Member(command.member_id)
    rack_id = before.rack_id if command.rack_id is None else command.rack_id
    subscribed = before.subscribed
    if command.subscribed is not None and command.subscribed != subscribed:
        subscribed = tuple(sorted(set(command.subscribed)))
    changed = (
        old is None
        or rack_id != before.rack_id
        or subscribed != before.subscribed
        or command.client_id != before.client_id
        or command.client_host != before.client_host
        or command.principal != before.principal
    )
    if changed:
        draft.write(
            records.MemberMetadata(
                draft.group.group_id,
                command.member_id,
                rack_id,
                command.client_id,
                command.client_host,
                subscribed,
                command.principal,
            )
        )
    return subscribed != before.subscribed


def _assignor_changed(group: Group, context: Context) -> bool:
    """Return whether the target was computed by an assignor other than the group's current one (GC-24c). A target from
    an older build, whose assignor is not known, is kept."""
    return group.computed_by not in ("", computed_by(context.configs, context.assignor))


def _may_assign(group: Group, context: Context) -> bool:
    """Return whether the interval of GC-24f has passed, or does not apply (OP-19)."""
    fast = context.settings.fast_first_assignment and not group.has_targets
    return fast or _assignable_in_ms(group, context) == 0


def _assignable_in_ms(group: Group, context: Context) -> int:
    """The remaining milliseconds of the assignment interval (GC-24f); 0 when its start, from another node's clock, is
    in the future."""
    interval_ms = context.configs.assignment_interval_ms
    wall_ms, since_ms = context.wall_ms, group.assignment_ms
    if since_ms == 0 or wall_ms < since_ms:
        return 0
    return max(0, since_ms + interval_ms - wall_ms)


def _compute_target(draft: Draft, readiness: TopicReadiness, context: Context) -> None:
    """Run the assignor; write records only for members whose target changed (GC-24f). Raises the errors of GC-28."""
    group = draft.group
    by_name = {topic.name: topic_id for topic_id, topic in readiness.topics.items()}
    spec = GroupSpec(
        members={
            member_id: MemberSpec(
                frozenset(by_name[name] for name in group.members[member_id].subscribed if name in by_name),
                group.targets.get(member_id, {}),
            )
            for member_id in sorted(group.members)
        },
        assignable=readiness.assignable,
        topics=frozenset(readiness.topics),
        homogeneous=group.subscription.homogeneous(len(group.members)),
        members_per_partition=context.configs.members_per_partition,
    )
    targets = _run(context.assignor, spec, group.group_id)
    for member_id in spec.members:
        if group.targets.get(member_id) != targets[member_id]:
            draft.write(records.TargetMember(group.group_id, member_id, targets[member_id]))
    by = computed_by(context.configs, context.assignor)
    draft.write(records.TargetMetadata(group.group_id, group.epoch, context.wall_ms, readiness.assignable, by))


def _run(assignor: Assignor, spec: GroupSpec, group_id: str) -> dict[str, Assignment]:
    try:
        found = dict(assignor.assign(spec))
        check_targets(spec, found)
    except errors.KafkaError:
        raise
    except Exception as error:  # an exception of a custom assignor (GC-57) must not fail the shard
        cause = str(error) if isinstance(error, AssignorError) else f"{type(error).__name__}: {error}"
        raise errors.UnknownServerError(
            f"Failed to compute a new target assignment for group {group_id} with assignor {assignor.name}: {cause}"
        ) from error
    return found


def _reconcile(draft: Draft, member_id: str, readiness: TopicReadiness, bump: bool) -> Member:
    """Have the member adopt its target if that is newer, or if this heartbeat changed the group (GC-24g)."""
    group = draft.group
    member = group.members[member_id]
    if not bump and group.assignment_epoch == member.epoch and member.state == records.STABLE:
        return member
    subscribed = set(member.subscribed)
    ids = {topic_id: topic for topic_id, topic in readiness.topics.items() if topic.name in subscribed}
    updated = member.reconciled(group.assignment_epoch, group.targets.get(member_id, {}), ids)
    if updated is not member:
        draft.write(updated.current(group.group_id))
    return draft.group.members[member_id]


def _order_initialization(draft: Draft, wanted: list[tuple[Topic, tuple[int, ...]]], context: Context) -> None:
    """Write the entries in this heartbeat's batch (GC-71); the call is made after the batch is durable (GC-24i)."""
    group = draft.group
    attempt = context.next_attempt(context.now_ms)
    lifecycle = (group.lifecycle or NO_LIFECYCLE).start(wanted, group.epoch, context.now_ms, attempt)
    draft.write(records.StateMetadata(group.group_id, lifecycle))
    draft.order_initialization(lifecycle, attempt)


def _interval_ms(group: Group, member: Member, readiness: TopicReadiness, context: Context, *, joins: bool) -> int:
    """The heartbeat interval (GC-27). It is shorter for a member without partitions that waits until the group's first
    partitions are initialised, or only until the assignment interval ends (OP-19)."""
    interval_ms = context.configs.heartbeat_interval_ms
    settings = context.settings
    if member.assigned or not settings.fast_first_assignment:
        return interval_ms
    if readiness.incomplete and not group.has_targets:
        return min(interval_ms, settings.fast_join_interval_ms if joins else settings.fast_first_interval_ms)
    if group.assignment_epoch < group.epoch:
        return min(interval_ms, max(_assignable_in_ms(group, context), settings.fast_first_interval_ms))
    return interval_ms
