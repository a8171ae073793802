"""How much topics hold, for how long it is kept, and what is left of the store: what `topics describe` adds to the
partitions (CT-150)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from kip932.sizes import size_text
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigEntry, ConfigResource, LogDirDescription, ReplicaInfo, TopicDescription
from sharegroups.cli.dlq.times import time_text
from sharegroups.cli.output import print_stderr, print_table
from sharegroups.insight.figures import age

#: How many topics' configs are requested at a time: each topic has about 30.
_CONFIGS_AT_ONCE: Final = 200
_CONSUMED: Final = "consumed"
_UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a topic keeps records: `ms` and `bytes` are None without a limit; `consumed`: whether records that
    every share group has finished are deleted as well."""

    ms: int | None
    bytes: int | None
    consumed: bool

    def text(self) -> str:
        """Return it for a table."""
        limits = [] if self.ms is None else [_duration(self.ms)]
        limits += [] if self.bytes is None else [f"{size_text(self.bytes)} a partition"]
        return "; ".join([*([_CONSUMED] if self.consumed else []), " or ".join(limits) or "no limit"])


@dataclass(slots=True)
class TopicSizes:
    """What is known of the sizes of topics. `logs`: of partitions whose leader answered; `stores`: the store nodes by
    name, each with what any leader said of it; `unknown`: why sizes are missing, a sentence for each cause."""

    logs: dict[TopicPartition, ReplicaInfo] = field(default_factory=dict)
    stores: dict[str, LogDirDescription] = field(default_factory=dict)
    store_of: dict[TopicPartition, str] = field(default_factory=dict)
    retention: dict[str, Retention] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def add(
        self, answers: Mapping[int, Mapping[str, LogDirDescription] | KafkaError], topics: Collection[str] | None = None
    ) -> None:
        """Add what leaders answered about these topics' logs, or all, and about their stores."""
        causes: dict[str, list[int]] = {}
        for node_id, answer in answers.items():
            if isinstance(answer, KafkaError):
                causes.setdefault(answer.message, []).append(node_id)
            else:
                self._add(node_id, answer, topics)
        for cause, nodes in causes.items():
            led = "" if len(nodes) == len(answers) else f" of what node {', '.join(map(str, nodes))} leads"
            self.unknown.append(f"Sizes{led} are not known. {cause}")

    def _add(self, node_id: int, answer: Mapping[str, LogDirDescription], topics: Collection[str] | None) -> None:
        for name, described in answer.items():
            if described.used_bytes is not None or name not in self.stores:
                self.stores[name] = described
            if described.error is not None:
                self.unknown.append(
                    f"Node {node_id} cannot read the store {name} now, so sizes there are estimates. "
                    f"{described.error.message}"
                )
            for place, info in described.replica_infos.items():
                if topics is None or place.topic in topics:
                    self.logs[place] = info
                    self.store_of[place] = name

    def of(self, topic: TopicDescription) -> list[ReplicaInfo | None]:
        """Return the sizes of a topic's logs; None for those that are not known."""
        return [self.logs.get(TopicPartition(topic.name, part.partition)) for part in topic.partitions]

    def stores_of(self, topic: TopicDescription) -> list[str]:
        """Return the store nodes that hold a topic's logs."""
        places = (TopicPartition(topic.name, part.partition) for part in topic.partitions)
        return sorted({self.store_of[place] for place in places if place in self.store_of})


def sizes_of(admin: Admin, topics: Sequence[TopicDescription], named: bool) -> TopicSizes:
    """Ask the leaders of these topics for their sizes. Raises nothing: what cannot be had is said in `unknown`."""
    found = TopicSizes()
    leaders = sorted({part.leader for topic in topics for part in topic.partitions if part.leader >= 0})
    wanted = {topic.name for topic in topics}
    if not leaders:
        return found
    try:
        answers = admin.describe_log_dirs(leaders, sorted(wanted) if named else None)
    except KafkaError as error:
        found.unknown.append(f"Sizes are not known. {error.message}")
        return found
    found.add(answers, wanted)
    _find_retention(admin, wanted, found)
    return found


def _find_retention(admin: Admin, topics: Collection[str], found: TopicSizes) -> None:
    ordered = sorted(topics)
    failed: dict[str, list[str]] = {}
    for start in range(0, len(ordered), _CONFIGS_AT_ONCE):
        some = [ConfigResource.topic(name) for name in ordered[start : start + _CONFIGS_AT_ONCE]]
        try:
            answers = admin.describe_configs(some)
        except KafkaError as error:
            found.unknown.append(f"Retention is not known. {error.message}")
            return
        for resource, configs in answers.items():
            if isinstance(configs, KafkaError):
                failed.setdefault(configs.name, []).append(configs.message)
            else:
                found.retention[resource.name] = _retention(configs)
    for messages in failed.values():
        others = f" (and of {len(messages) - 1} more topics)" if len(messages) > 1 else ""
        found.unknown.append(f"Retention is not known{others}. {messages[0]}")


def _retention(configs: Mapping[str, ConfigEntry]) -> Retention:
    def number(name: str) -> int | None:
        entry = configs.get(name)
        text = "" if entry is None else entry.value or ""
        return int(text) if text.isdecimal() else None  # −1: no limit

    policy = configs.get("sharegroups.retention")
    return Retention(
        number("retention.ms"), number("retention.bytes"), policy is not None and policy.value == _CONSUMED
    )


def _duration(duration_ms: int) -> str:
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if duration_ms >= unit and not duration_ms % unit:
            return f"{duration_ms // unit} {name}"
    return age(duration_ms) or "0 s"


def held(infos: Iterable[ReplicaInfo | None], now_ms: int) -> tuple[str, str, str]:
    """Return RECORDS, BYTES and OLDEST of these logs together. A number that is known only in part has `+`, an estimate
    `~`; `-`: nothing is known."""
    known, missing = [], False
    for info in infos:
        if info is None:
            missing = True
        else:
            known.append(info)
    if not known:
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    more = "+" if missing else ""
    about = "~" if any(info.is_estimate for info in known) else ""
    times = [info.oldest_append_time_ms for info in known if info.oldest_append_time_ms is not None]
    unread = missing or any(info.record_count and info.oldest_append_time_ms is None for info in known)
    oldest = _UNKNOWN
    if times:
        since = age(max(now_ms - min(times), 0))
        oldest = f"{time_text(min(times))} ({since}{' or more' if unread else ''})"
    records = sum(info.record_count for info in known)
    return f"{records}{more}", f"{about}{size_text(sum(info.size for info in known))}{more}", oldest


class TopicSize(NamedTuple):
    """How many partitions of a topic leaders named, and RECORDS, BYTES and OLDEST of these together."""

    topic: str
    partitions: int
    records: str
    size: str
    oldest: str


def topics_by_size(sizes: TopicSizes, at_ms: int) -> list[TopicSize]:
    """Return the topics that leaders named, the largest first."""
    logs: dict[str, list[ReplicaInfo]] = {}
    for place, info in sizes.logs.items():
        logs.setdefault(place.topic, []).append(info)
    largest = sorted(logs.items(), key=lambda item: (-sum(info.size for info in item[1]), item[0]))
    return [TopicSize(topic, len(infos), *held(infos, at_ms)) for topic, infos in largest]


def now_ms() -> int:
    """Return the time of this machine."""
    return int(time.time() * 1_000)


def print_topics(topics: Sequence[TopicDescription], topic_ids: Sequence[str], sizes: TopicSizes) -> None:
    """Print a row for each topic."""
    now = now_ms()
    rows = [
        (
            topic.name,
            topic_id,
            len(topic.partitions),
            *held(sizes.of(topic), now),
            sizes.retention[topic.name].text() if topic.name in sizes.retention else _UNKNOWN,
        )
        for topic, topic_id in zip(topics, topic_ids, strict=True)
    ]
    header = ("TOPIC", "TOPIC-ID", "PARTITIONS", "RECORDS", "BYTES", "OLDEST", "RETENTION")
    print_table(header, rows, (15, 22, 11, 15, 15, 20, 0))


def store_rows(sizes: TopicSizes) -> list[tuple[str, str, str, str]]:
    """Return name, memory in use, limit and what is left of each store node that says how much it uses, the fullest
    first, and of all together if there are several."""
    known = {name: each for name, each in sizes.stores.items() if each.used_bytes is not None}
    order = sorted(known.items(), key=lambda item: (_part(item[1]), item[1].used_bytes or 0), reverse=True)
    rows = [(name, *_memory(each)) for name, each in order]
    return rows if len(rows) < 2 else [*rows, ("(all)", *_memory(_sum(known.values())))]


def print_stores(sizes: TopicSizes) -> None:
    """Print the memory of the store nodes; nothing if none is known."""
    if rows := store_rows(sizes):
        print_table(("STORE", "USED", "LIMIT", "LEFT"), rows, (15, 15, 15, 0))


def _part(store: LogDirDescription) -> float:
    return (store.used_bytes or 0) / store.total_bytes if store.total_bytes else 0.0


def _sum(stores: Collection[LogDirDescription]) -> LogDirDescription:
    """Return the stores together; without a limit if one has none."""
    limits = [each.total_bytes for each in stores]
    left = [each.usable_bytes for each in stores]
    whole = None if None in limits else sum(limit or 0 for limit in limits)
    usable = None if None in left else sum(each or 0 for each in left)
    return LogDirDescription(None, {}, whole, usable, sum(each.used_bytes or 0 for each in stores))


def _memory(store: LogDirDescription) -> tuple[str, str, str]:
    used = size_text(store.used_bytes or 0)
    if store.total_bytes is None or store.usable_bytes is None:
        return used, "none", "what the machine has"
    percent = (store.used_bytes or 0) * 100 // store.total_bytes
    return used, size_text(store.total_bytes), f"{size_text(store.usable_bytes)} ({percent}% used)"


def note_unknown(sizes: TopicSizes) -> None:
    """Say on standard error why sizes are missing."""
    for sentence in sizes.unknown:
        print_stderr(f"Warning: {sentence}")


def size_document(info: ReplicaInfo | None) -> dict[str, object]:
    """Return a log's size for JSON; null where it is not known."""
    return {
        "records": info.record_count if info else None,
        "bytes": info.size if info else None,
        "bytes_estimated": info.is_estimate if info else None,
        "oldest_append_time_ms": info.oldest_append_time_ms if info else None,
    }


def topic_document(topic: TopicDescription, sizes: TopicSizes) -> dict[str, object]:
    """Return a topic's sizes, retention and stores for JSON; sums are null unless every part is known."""
    infos = [info for info in sizes.of(topic) if info is not None]
    whole = topic.error is None and len(infos) == len(topic.partitions)
    retention = sizes.retention.get(topic.name)
    return {
        "records": sum(info.record_count for info in infos) if whole else None,
        "bytes": sum(info.size for info in infos) if whole else None,
        "bytes_estimated": any(info.is_estimate for info in infos) if whole else None,
        "oldest_append_time_ms": min(_oldest(infos), default=None) if whole else None,
        "retention_ms": retention.ms if retention else None,
        "retention_bytes": retention.bytes if retention else None,
        "retention_consumed": retention.consumed if retention else None,
        "stores": [
            {
                "store": name,
                "used_bytes": sizes.stores[name].used_bytes,
                "limit_bytes": sizes.stores[name].total_bytes,
                "left_bytes": sizes.stores[name].usable_bytes,
            }
            for name in sizes.stores_of(topic)
        ],
    }


def _oldest(infos: Iterable[ReplicaInfo]) -> Iterator[int]:
    return (info.oldest_append_time_ms for info in infos if info.oldest_append_time_ms is not None)
