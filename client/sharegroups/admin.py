"""The blocking admin client: every method of the asyncio one, run in the loop thread of this object."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from kip932.rpc.transport import Transport
from sharegroups.admin_values import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ListGroupsResult,
    NewTopic,
    RecordsExplained,
    RecordsRead,
    ShareGroupDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from sharegroups.aio.admin import Admin as AsyncAdmin
from sharegroups.aio.admin import Errors
from sharegroups.aio.group_admin import Offsets
from sharegroups.aio.log_reading import READ_BYTES
from sharegroups.forks import OfOneProcess
from sharegroups.loop_thread import LoopThread

T = TypeVar("T")


class Admin(OfOneProcess):
    """Administration. Settings as a dict, or as keywords with `_` for `.`; use it as `with`, or call `close`.

    Raises ConfigError. It works only in the process that made it, and not in one that is forked from that: every call
    but `close` raises IllegalStateError there.

    A call that changes several things returns each one's result or error. It raises KafkaError if it fails as a whole.
    """

    _WHAT = "admin client"

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, transport: Transport | None = None, **keywords: Any
    ) -> None:
        self._belongs_here()
        self._thread = LoopThread("sharegroups-admin")
        try:
            self._inner = self._thread.run(lambda: AsyncAdmin(settings, transport=transport, **keywords))
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._thread.call(self._inner.close())
            self._thread.stop()

    def create_topics(self, topics: Iterable[NewTopic | str], validate_only: bool = False) -> Errors:
        """Create topics (CM-21); a name alone means one partition."""
        return self._call(self._inner.create_topics(topics, validate_only))

    def create_partitions(self, counts: Mapping[str, int], validate_only: bool = False) -> Errors:
        """Raise the partition counts of topics; counts can only grow."""
        return self._call(self._inner.create_partitions(counts, validate_only))

    def delete_topics(self, names: Iterable[str]) -> Errors:
        """Delete topics with their records."""
        return self._call(self._inner.delete_topics(names))

    def list_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Describe all topics, or the named ones; the description of an unknown topic holds its error."""
        return self._call(self._inner.list_topics(names))

    def describe_cluster(self) -> ClusterDescription:
        """The cluster id and its live nodes."""
        return self._call(self._inner.describe_cluster())

    def list_offsets(
        self, specs: Mapping[TopicPartition, int] | Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Offsets by timestamp in ms, or by kip932.ids.OFFSET_* (CM-45); for a list of partitions, the logs' ends."""
        return self._call(self._inner.list_offsets(specs))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Move the start offsets of logs forward to these, −1 for the log's end; returns the new start offsets."""
        return self._call(self._inner.delete_records(before))

    def read_records(self, partition: TopicPartition, offset: int, max_bytes: int = READ_BYTES) -> RecordsRead:
        """Records of a partition from `offset` on, whoever may have consumed them (CL-92): about `max_bytes` of them,
        at least one batch. Reading changes nothing. Raises KafkaError, OffsetOutOfRangeError outside the log."""
        return self._call(self._inner.read_records(partition, offset, max_bytes))

    def describe_configs(
        self, resources: Iterable[ConfigResource], documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Configs of topics, nodes and groups, with their synonyms (CM-23)."""
        return self._call(self._inner.describe_configs(resources, documentation))

    def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change only the named configs; the others keep their values."""
        return self._call(self._inner.incremental_alter_configs(changes, validate_only))

    def list_groups(self, states: Iterable[str] | None = None, types: Iterable[str] | None = None) -> ListGroupsResult:
        """Groups of all coordinators, sorted by id, and what is missing because no node serves it or a node does not
        answer in time (GC-123). Raises KafkaError when no node at all answers."""
        return self._call(self._inner.list_groups(states, types))

    def describe_share_groups(
        self, group_ids: Iterable[str], include_authorized_operations: bool = False
    ) -> dict[str, ShareGroupDescription | KafkaError]:
        """Describe each group (GC-126), if wanted with what the caller may do with it (GC-128)."""
        return self._call(self._inner.describe_share_groups(group_ids, include_authorized_operations))

    def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], backlog: bool = False
    ) -> dict[str, Offsets | KafkaError]:
        """Start offsets and lags by group and partition (GC-110). For None: of all initialised partitions of the group.

        A partition without a start offset has None; `errors` of a group's offsets has the partitions that are left out,
        since their offsets cannot be told now. With `backlog` also what members hold, what waits, and for how
        long (GC-109): leaders are asked.
        """
        return self._call(self._inner.list_share_group_offsets(groups, backlog))

    def list_share_group_partitions(self, group_id: str) -> dict[TopicPartition, KafkaError | None]:
        """All initialised partitions of a group, each with the error for which list_share_group_offsets leaves it out.

        Raises KafkaError.
        """
        return self._call(self._inner.list_share_group_partitions(group_id))

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set start offsets of an empty group (GC-101 to GC-106)."""
        return self._call(self._inner.alter_share_group_offsets(group_id, offsets))

    def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete the state of topics of an empty group (GC-97)."""
        return self._call(self._inner.delete_share_group_offsets(group_id, topics))

    def delete_share_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete empty groups (GC-90)."""
        return self._call(self._inner.delete_share_groups(group_ids))

    def explain_record(
        self, group_id: str, partition: TopicPartition, offset: int, last_offset: int | None = None
    ) -> RecordsExplained:
        """Why a record is, or is not, delivered to a group now; or the records from `offset` to `last_offset`, 1,000
        at most (CL-90). Asking changes nothing. Raises KafkaError."""
        return self._call(self._inner.explain_record(group_id, partition, offset, last_offset))

    def list_transactions(
        self,
        states: Iterable[str] | None = None,
        producer_ids: Iterable[int] | None = None,
        open_longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Transactional ids that were used of late, sorted: all, or those in these states, of these producers, and open
        for longer than this (CM-157). Raises KafkaError."""
        return self._call(self._inner.list_transactions(states, producer_ids, open_longer_than_ms))

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        """The record of each transactional id, or its error: TransactionalIdNotFoundError where there is none."""
        return self._call(self._inner.describe_transactions(transactional_ids))

    def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        """Abort what a producer left open; the producer is fenced, a new one with the id may begin (CM-158). Returns
        what it was. Raises KafkaError."""
        return self._call(self._inner.abort_transaction(transactional_id))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            self._check_open()
        return self._thread.call(work)
