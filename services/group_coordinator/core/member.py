"""One member of a share group: its subscription, its epochs, and its current assignment. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from group_coordinator.core.records import KNOWN_STATES, STABLE, UNKNOWN_STATE, CurrentAssignment, MemberMetadata
from group_coordinator.core.views import Assignment

NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Member:
    """A member; `epoch` is ME, `previous_epoch` PE, `assigned` CA of the specification."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = NO_EPOCH
    state: int = STABLE
    assigned: Assignment = field(default_factory=dict)
    principal: str = ""

    def described_by(self, record: MemberMetadata) -> Member:
        """Return this member with a MEMBER record's values (GC-65)."""
        return Member(
            self.member_id,
            record.rack_id,
            record.client_id,
            record.client_host,
            record.subscribed,
            self.epoch,
            self.previous_epoch,
            self.state,
            self.assigned,
            record.principal,
        )

    def holding(self, epoch: int, previous_epoch: int, state: int, assigned: Assignment) -> Member:
        """Return this member with these epochs and this current assignment; an unknown state becomes 127 (GC-60)."""
        return Member(
            self.member_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.subscribed,
            epoch,
            previous_epoch,
            state if state in KNOWN_STATES else UNKNOWN_STATE,
            assigned,
            self.principal,
        )

    def metadata(self, group_id: str) -> MemberMetadata:
        """Return its MEMBER record."""
        return MemberMetadata(
            group_id, self.member_id, self.rack_id, self.client_id, self.client_host, self.subscribed, self.principal
        )

    def current(self, group_id: str) -> CurrentAssignment:
        """Return its CURRENT record."""
        return CurrentAssignment(group_id, self.member_id, self.epoch, self.previous_epoch, self.state, self.assigned)

    def reconciled(self, epoch: int, target: Assignment, subscribed_ids: Mapping[bytes, object]) -> Member:
        """Return the member after it adopts a target, limited to its subscription; there is no revocation phase
        (GC-24g)."""
        assigned = {topic_id: indexes for topic_id, indexes in target.items() if topic_id in subscribed_ids}
        if epoch == self.epoch and self.state == STABLE:
            return self if assigned == self.assigned else self.holding(epoch, self.previous_epoch, STABLE, assigned)
        return self.holding(epoch, self.epoch, STABLE, assigned)
