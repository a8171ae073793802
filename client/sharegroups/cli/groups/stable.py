"""The notes of `groups describe --verbose` about groups that wait for the end of a transaction (CT-134)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from shlex import quote
from typing import Final, NamedTuple

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigResource, GroupOffsets, ShareGroupOffset
from sharegroups.cli.groups.tables import age

#: How many partitions of all groups together are checked, those with the oldest records first.
LOOKED_AT_MAX: Final = 50
_LEVEL: Final = "share.isolation.level"


class Kept(NamedTuple):
    """A partition whose last stable offset is held back by an open transaction."""

    partition: TopicPartition
    last_stable_offset: int
    transactional_id: str
    open_ms: int

    def text(self, group_id: str) -> str:
        """Return the hint: which records wait for which transaction, and what to try next."""
        return (
            f"Note: group {group_id!r}, {self.partition.topic}-{self.partition.partition}: records from offset "
            f"{self.last_stable_offset} on wait for a transaction, that of transactional id {self.transactional_id!r}, "
            f"open for {age(self.open_ms)}. See: sharegroups transactions describe --transactional-id "
            f"{quote(self.transactional_id)}"
        )

    def document(self) -> dict[str, object]:
        """Return the same for `--output json`."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "last_stable_offset": self.last_stable_offset,
            "transactional_id": self.transactional_id,
            "open_ms": self.open_ms,
        }


def kept_back(admin: Admin, found: Mapping[str, GroupOffsets | KafkaError]) -> dict[str, list[Kept]]:
    """Return by group the partitions with a lag that wait for a transaction. Since this is only a hint, partitions that
    cannot be checked now are left out."""
    kept: dict[str, list[Kept]] = {name: [] for name in found}
    offsets = {name: listed for name, listed in found.items() if isinstance(listed, GroupOffsets)}
    committed = _read_committed(admin, offsets)
    waiting = [(name, *each) for name in committed for each in _behind(offsets[name])]
    waiting.sort(key=lambda each: -(each[2].oldest_age_ms or 0) if each[2] else 0)
    for name, partition, entry in waiting[:LOOKED_AT_MAX]:
        with suppress(KafkaError):
            start = entry.start_offset if entry is not None else 0
            told = admin.explain_record(name, partition, max(start, 0))
            if told.stable_kept_by is not None and told.last_stable_offset is not None:
                open_ms = told.stable_kept_ms or 0
                kept[name].append(Kept(partition, told.last_stable_offset, told.stable_kept_by, open_ms))
    return {name: sorted(each) for name, each in kept.items()}


def _behind(offsets: GroupOffsets) -> Iterator[tuple[TopicPartition, ShareGroupOffset | None]]:
    for partition, entry in offsets.items():
        if entry is None or entry.lag != 0:
            yield partition, entry


def _read_committed(admin: Admin, groups: Mapping[str, GroupOffsets]) -> list[str]:
    wanted = [ConfigResource.group(name) for name, offsets in groups.items() if any(_behind(offsets))]
    if not wanted:
        return []
    with suppress(KafkaError):
        configs = admin.describe_configs(wanted)
        return [
            resource.name
            for resource, told in configs.items()
            if isinstance(told, Mapping) and _LEVEL in told and told[_LEVEL].value == "read_committed"
        ]
    return []
