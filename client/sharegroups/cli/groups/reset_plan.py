"""Determines the offsets that `groups reset-offsets` will set. It only reads from the cluster (CT-24)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kip932.errors import GroupIdNotFoundError, KafkaError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin
from sharegroups.cli.groups.asking import members_text, not_found, refuse
from sharegroups.cli.groups.log_starts import note_deleted_records
from sharegroups.cli.groups.reset_request import Request
from sharegroups.cli.output import print_stderr

Plan = dict[TopicPartition, int]
_NOTHING = "Nothing was set."


def require_resettable(admin: Admin, request: Request) -> None:
    """Return if the group is empty, or if it is missing and `create` is set. Otherwise print the reason and exit with
    1."""
    name = request.group
    found = admin.describe_share_groups([name])[name]
    if isinstance(found, GroupIdNotFoundError):
        if not request.create:
            text = not_found(admin, [name])[name]
            refuse(f"{text}. To make a group that begins at these offsets, add --create")
    elif isinstance(found, KafkaError):
        raise found
    elif found.state not in ("Empty", "Dead"):
        refuse(f"Share group '{name}' is not empty. {members_text(name, len(found.members))}")


def plan_of(admin: Admin, request: Request) -> Plan:
    """Return the new offset of each partition. Raises KafkaError; exits with 1 for partitions that cannot be set."""
    parts = _partitions(admin, request)
    if not parts:
        return {}
    latest = _log_offsets(admin, dict.fromkeys(parts, OFFSET_LATEST))
    if request.target == "to-latest":
        return latest
    if request.target == "to-current":
        return _current(admin, request.group, parts, latest)
    earliest = _log_offsets(admin, dict.fromkeys(parts, OFFSET_EARLIEST))
    note_deleted_records(admin, earliest)
    if request.target == "to-earliest":
        return earliest
    if request.timestamp_ms is not None:
        found = _log_offsets(admin, dict.fromkeys(parts, request.timestamp_ms))
        return {part: _at_or_latest(part, found[part], earliest[part], latest[part]) for part in parts}
    asked = request.plan if request.plan is not None else dict.fromkeys(parts, request.offset or 0)
    return {part: _clamped(part, asked[part], earliest[part], latest[part]) for part in parts}


def _partitions(admin: Admin, request: Request) -> list[TopicPartition]:
    """Return the requested partitions, sorted. Exits with 1 unless each exists and has a leader."""
    if request.plan is not None:
        wanted: Mapping[str, Sequence[int] | None] = _by_topic(request.plan)
    elif request.topics:
        wanted = request.topics
    else:
        wanted = _by_topic(admin.list_share_group_partitions(request.group))
    topics = admin.list_topics(list(wanted)) if wanted else {}
    unknown = [name for name in wanted if name not in topics or topics[name].error is not None]
    if unknown:
        known = list(admin.list_topics())
        faults = " ".join(f"Topic {name!r} does not exist.{did_you_mean(name, known)}" for name in unknown)
        refuse(f"{faults} {_NOTHING} All topics: sharegroups topics list")
    counts = {name: len(topics[name].partitions) for name in wanted}
    parts = [
        TopicPartition(name, number)
        for name, numbers in sorted(wanted.items())
        for number in (range(counts[name]) if numbers is None else sorted(numbers))
    ]
    if missing := [part for part in parts if part.partition >= counts[part.topic]]:
        has = "; ".join(f"{name} has 0 to {counts[name] - 1}" for name in dict.fromkeys(each.topic for each in missing))
        refuse(f"The partitions {_quoted(missing)} do not exist: {has}. {_NOTHING}")
    leaders = {(name, each.partition): each.leader for name in wanted for each in topics[name].partitions}
    if alone := [part for part in parts if leaders.get(part, -1) < 0]:
        refuse(f"The partitions {_quoted(alone)} have no leader. {_NOTHING} Try again when a node leads them.")
    return parts


def _by_topic(parts: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in parts:
        found.setdefault(topic, []).append(number)
    return found


def _quoted(parts: Iterable[TopicPartition]) -> str:
    return '"' + ",".join(f"{topic}-{number}" for topic, number in parts) + '"'


def _log_offsets(admin: Admin, specs: Mapping[TopicPartition, int]) -> Plan:
    """Return offsets of the logs; −1 if no record has the timestamp or a later one. Exits with 1 when a leader does not
    return one."""
    found: Plan = {}
    faults: list[str] = []
    for part, offset in admin.list_offsets(specs).items():
        if isinstance(offset, KafkaError):
            faults.append(f"{part.topic}-{part.partition}: {offset.name}: {offset.message}")
        else:
            found[part] = offset
    if faults:
        refuse(f"Offsets of the log are not known for {'; '.join(faults)}. {_NOTHING} Try again in some seconds.")
    return found


def _current(admin: Admin, group: str, parts: Sequence[TopicPartition], latest: Plan) -> Plan:
    found = admin.list_share_group_offsets({group: parts})[group]
    if isinstance(found, KafkaError):
        raise found
    if unknown := [part for part in parts if part not in found]:
        refuse(f"The start offset is not known now for {_quoted(unknown)}. {_NOTHING} Try again in some seconds.")
    plan: Plan = {}
    for part in parts:
        entry = found[part]
        if entry is None:
            print_stderr(
                f"Warn: Partition {part.partition} from topic {part.topic} has no start offset. Using latest offset."
            )
        plan[part] = latest[part] if entry is None else entry.start_offset
    return plan


def _at_or_latest(part: TopicPartition, found: int, earliest: int, latest: int) -> int:
    """Return the offset that to-datetime sets for a partition: the one found, else the latest, with a warning.

    The warning, which is Kafka's, calls a partition empty even if it merely has no record of that time or later.
    """
    if found >= 0:
        return found
    why = "is empty" if earliest == latest else "has no record at or after that time"
    print_stderr(
        f"Warn: Partition {part.partition} from topic {part.topic} {why}. Falling back to latest known offset."
    )
    return latest


def _clamped(part: TopicPartition, wanted: int, earliest: int, latest: int) -> int:
    """Return the offset; if it is outside the log, print a warning and return the nearest end of the log."""
    if earliest <= wanted <= latest:
        return wanted
    new, end = (earliest, "begins at") if wanted < earliest else (latest, "ends at")
    print_stderr(
        f"Warn: New offset {wanted} for partition {part.partition} of topic {part.topic} is outside its log, "
        f"which {end} {new}. Value will be set to {new}."
    )
    return new
