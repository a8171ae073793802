"""A group's effective configuration as the partition leader uses it, looked up at each decision (PL-1003)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakValueDictionary

from partition_leader.share.core.backoff import NO_BACKOFF, Backoff
from partition_leader.share.core.events import GroupSettings


class EffectiveGroup(NamedTuple):
    """A group's effective values, clamped to the broker's bounds (PL-1002)."""

    lock_duration_ms: int
    delivery_count_limit: int
    max_record_locks: int
    renew_enabled: bool
    auto_offset_reset: str
    read_committed: bool
    dlq_enabled: bool = False
    dead_letter_topic: str = ""
    dead_letters_max: int = 5_000
    delayed_max: int = 5_000
    delay_max_ms: int = 86_400_000
    backoff: Backoff = NO_BACKOFF


Effective = Callable[[str], EffectiveGroup]


class GroupView:
    """One group's settings. Each read of a property sees the present configuration."""

    def __init__(self, group_id: str, views: GroupViews, version: Callable[[], int]) -> None:
        self._group_id = group_id
        self._views = views
        self._version = version
        self._seen = -1
        self._settings = GroupSettings()
        self._auto_offset_reset = ""
        self._read_committed = False

    @property
    def settings(self) -> GroupSettings:
        """Lock duration, delivery limit, record locks, renewals, dead-letter queue."""
        if self._seen != self._version():
            self._look()
        return self._settings

    @property
    def auto_offset_reset(self) -> str:
        """`share.auto.offset.reset`: latest, earliest or by_duration:<ISO-8601>."""
        if self._seen != self._version():
            self._look()
        return self._auto_offset_reset

    @property
    def read_committed(self) -> bool:
        """Return whether `share.isolation.level` is read_committed."""
        if self._seen != self._version():
            self._look()
        return self._read_committed

    def _look(self) -> None:
        """Cache the values that are read several times per record: the metadata has changed."""
        self._settings, self._auto_offset_reset, self._read_committed = self._views.current(self._group_id)
        self._seen = self._version()


class GroupViews:
    """Effective group configurations, computed once per group and metadata version. Only views in use are kept: a view
    is dropped with the last share-partition of its group."""

    def __init__(self, effective: Effective, version: Callable[[], int]) -> None:
        self._effective = effective
        self._version = version
        self._views: WeakValueDictionary[str, GroupView] = WeakValueDictionary()

    def view(self, group_id: str) -> GroupView:
        """Return the view of one group."""
        found = self._views.get(group_id)
        if found is None:
            found = self._views[group_id] = GroupView(group_id, self, self._version)
        return found

    def current(self, group_id: str) -> tuple[GroupSettings, str, bool]:
        """Return (settings, auto offset reset, read_committed) under the present metadata."""
        values = self._effective(group_id)
        settings = GroupSettings(
            lock_ms=values.lock_duration_ms,
            delivery_count_limit=values.delivery_count_limit,
            max_record_locks=values.max_record_locks,
            renew_enabled=values.renew_enabled,
            dlq_enabled=values.dlq_enabled,
            dead_letter_topic=values.dead_letter_topic,
            dead_letters_max=values.dead_letters_max,
            backoff=values.backoff,
            delay_max_ms=values.delay_max_ms,
            delayed_max=values.delayed_max,
        )
        return settings, values.auto_offset_reset, values.read_committed
