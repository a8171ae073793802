"""The blocking admin client. Each object runs the asyncio client's methods in its own loop thread."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from kip932.acls import Acl, AclFilter
from kip932.errors import KafkaError
from kip932.ids import PROGRESS_ROWS, TopicPartition
from kip932.quotas import QuotaEntity
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
    ScramCredentialInfo,
    ShareGroupDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from sharegroups.administration.group_admin import Offsets
from sharegroups.administration.log_dirs import LogDirs
from sharegroups.administration.log_reading import READ_BYTES
from sharegroups.aio.admin import Admin as AsyncAdmin
from sharegroups.aio.admin import Errors
from sharegroups.forks import ProcessBound
from sharegroups.loop_thread import LoopThread
from sharegroups.share_progress import ProgressPage

T = TypeVar("T")


class Admin(ProcessBound):
    """Administers topics, configs, groups, transactions and access control entries.

    Pass the settings as a dict, or as keyword arguments with `_` for `.`. Use it in a `with` statement, or call
    `close`. Raises ConfigError. It works only in the process that created it: in a process forked from that one, every
    call but `close` raises IllegalStateError.

    A call about several items returns a result or an error for each. It raises KafkaError if it fails as a whole.
    """

    _NOUN = "admin client"

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, transport: Transport | None = None, **keywords: Any
    ) -> None:
        self._bind_process()
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
        """Create topics; a name alone means one partition.

        Returns the error of each topic, or None (CM-21).
        """
        return self._call(self._inner.create_topics(topics, validate_only))

    def create_partitions(self, counts: Mapping[str, int], validate_only: bool = False) -> Errors:
        """Increase the partition counts of topics; they cannot decrease."""
        return self._call(self._inner.create_partitions(counts, validate_only))

    def delete_topics(self, names: Iterable[str]) -> Errors:
        """Delete topics with their records."""
        return self._call(self._inner.delete_topics(names))

    def list_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Describe all topics, or the named ones; the description of an unknown topic holds its error."""
        return self._call(self._inner.list_topics(names))

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its controller and its live nodes."""
        return self._call(self._inner.describe_cluster())

    def list_offsets(
        self, specs: Mapping[TopicPartition, int] | Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Return an offset of each partition: by timestamp, or by one of kip932.ids.OFFSET_*.

        Timestamps are ms since 1970. If `specs` is just a list of partitions, the end offset of each log is returned
        (CM-45).
        """
        return self._call(self._inner.list_offsets(specs))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Delete the records before these offsets; −1 means the log's end. Returns the new start offsets."""
        return self._call(self._inner.delete_records(before))

    def describe_log_dirs(self, node_ids: Iterable[int] | None = None, topics: Iterable[str] | None = None) -> LogDirs:
        """Return the sizes of logs by the node that leads them, and how much space is left in the store that holds them
        (CM-209).

        By default of all partition leaders and of all topics that this client's user may describe. A node that does not
        answer has an error in place of its log directories; ClusterAuthorizationFailedError without DESCRIBE on the
        cluster. Raises KafkaError when no node answers.
        """
        return self._call(self._inner.describe_log_dirs(node_ids, topics))

    def read_records(self, partition: TopicPartition, offset: int, max_bytes: int = READ_BYTES) -> RecordsRead:
        """Read records of a partition from `offset` on, whether or not they were consumed.

        Returns about `max_bytes` of records, but at least one batch. Reading does not affect any group (CL-92). Raises
        KafkaError; OffsetOutOfRangeError outside the log.
        """
        return self._call(self._inner.read_records(partition, offset, max_bytes))

    def describe_configs(
        self, resources: Iterable[ConfigResource], documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Return the configs of topics, nodes and groups, with their synonyms.

        With `documentation`, also the description of each config (CM-23).
        """
        return self._call(self._inner.describe_configs(resources, documentation))

    def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change the named configs; the others keep their values."""
        return self._call(self._inner.incremental_alter_configs(changes, validate_only))

    def list_groups(self, states: Iterable[str] | None = None, types: Iterable[str] | None = None) -> ListGroupsResult:
        """Return the groups of all coordinators, sorted by id.

        The result also has the errors that explain why groups may be missing: no node serves them, or a node did not
        answer in time (GC-123). Raises KafkaError when no node answers.
        """
        return self._call(self._inner.list_groups(states, types))

    def describe_share_groups(
        self, group_ids: Iterable[str], include_authorized_operations: bool = False
    ) -> dict[str, ShareGroupDescription | KafkaError]:
        """Describe each group: its state, members and assignments (GC-126).

        With `include_authorized_operations`, also the operations that the caller may perform on it (GC-128).
        """
        return self._call(self._inner.describe_share_groups(group_ids, include_authorized_operations))

    def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], backlog: bool = False
    ) -> dict[str, Offsets | KafkaError]:
        """Return start offsets and lags by group and partition.

        None instead of a list of partitions means all initialised partitions of the group (GC-110). The result for a
        partition without a start offset is None. `errors` of a group's offsets has the partitions that are left out
        because their offsets are currently unavailable. With `backlog`, the leaders are also asked how many records are
        in flight, how many are waiting, and for how long (GC-109).
        """
        return self._call(self._inner.list_share_group_offsets(groups, backlog))

    def list_share_group_partitions(self, group_id: str) -> dict[TopicPartition, KafkaError | None]:
        """Return all initialised partitions of a group.

        Each maps to None, or to the error for which list_share_group_offsets leaves it out. Raises KafkaError.
        """
        return self._call(self._inner.list_share_group_partitions(group_id))

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set start offsets of an empty group.

        Returns the error of each partition, or None (GC-101 to GC-106).
        """
        return self._call(self._inner.alter_share_group_offsets(group_id, offsets))

    def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete an empty group's state for these topics.

        Returns the error of each topic, or None (GC-97).
        """
        return self._call(self._inner.delete_share_group_offsets(group_id, topics))

    def delete_share_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete empty groups.

        Returns the error of each group, or None (GC-90).
        """
        return self._call(self._inner.delete_share_groups(group_ids))

    def explain_record(
        self,
        group_id: str,
        partition: TopicPartition,
        offset: int,
        last_offset: int | None = None,
        *,
        group: ShareGroupDescription | None = None,
    ) -> RecordsExplained:
        """Explain why a record is, or is not, delivered to a group now.

        With `last_offset`, explain every record from `offset` to `last_offset` inclusive; more than 1,000 offsets are
        refused. `group`: its description from a moment ago, so that its coordinator is not asked again. This changes
        nothing (CL-90). Raises KafkaError.
        """
        return self._call(self._inner.explain_record(group_id, partition, offset, last_offset, group=group))

    def list_share_progress(
        self,
        groups: Iterable[str] | None = None,
        topics: Iterable[str] | None = None,
        *,
        by_partition: bool = False,
        limit: int = PROGRESS_ROWS,
    ) -> ProgressPage:
        """Return the progress of groups, by topic or by partition, as the leaders know it; the largest lag first.

        Without `groups` or `topics`: all that the caller may describe. At most `limit` rows, 5,000 or fewer (CL-170).
        Raises KafkaError when no leader answers.
        """
        return self._call(self._inner.list_share_progress(groups, topics, by_partition=by_partition, limit=limit))

    def list_transactions(
        self,
        states: Iterable[str] | None = None,
        producer_ids: Iterable[int] | None = None,
        open_longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return the recently used transactional ids, sorted.

        The arguments restrict the result to these states, to these producers, and to transactions open for longer than
        `open_longer_than_ms` (CM-157). Raises KafkaError.
        """
        return self._call(self._inner.list_transactions(states, producer_ids, open_longer_than_ms))

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        """Return the record of each transactional id, or its error: TransactionalIdNotFoundError for an unknown one."""
        return self._call(self._inner.describe_transactions(transactional_ids))

    def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        """Abort a transaction that a producer left open, and return its description.

        The producer is fenced; a new one may start with the same id (CM-158). Raises KafkaError.
        """
        return self._call(self._inner.abort_transaction(transactional_id))

    def create_acls(self, acls: Iterable[Acl]) -> dict[Acl, KafkaError | None]:
        """Add access control entries.

        Returns the error of each entry, or None, also for one that existed already (CL-157).
        """
        return self._call(self._inner.create_acls(acls))

    def describe_acls(self, acl_filter: AclFilter | None = None) -> list[Acl]:
        """Return the access control entries that the filter matches, or all, sorted (CL-157). Raises KafkaError."""
        return self._call(self._inner.describe_acls(acl_filter))

    def delete_acls(self, filters: Iterable[AclFilter]) -> dict[AclFilter, list[Acl] | KafkaError]:
        """Remove the access control entries that each filter matches.

        Returns the removed entries of each filter, or its error (CL-157).
        """
        return self._call(self._inner.delete_acls(filters))

    def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        """Set quotas of clients, and remove those whose value is None.

        Returns the error of each entity, or None: all its changes are made, or none (CL-160). Raises KafkaError.
        """
        return self._call(self._inner.alter_client_quotas(changes, validate_only))

    def describe_client_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of all entities that have any (CL-160). Raises KafkaError."""
        return self._call(self._inner.describe_client_quotas())

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[ScramCredentialInfo] | KafkaError]:
        """Return the users with the mechanisms and iterations of their passwords, or for each its error.

        Without `users`, all of them, sorted (CL-159). Raises KafkaError.
        """
        return self._call(self._inner.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion]
    ) -> dict[str, KafkaError | None]:
        """Set and remove users' passwords. Returns the error of each user, or None (CL-159)."""
        return self._call(self._inner.alter_user_scram_credentials(alterations))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            self._check_open()
        return self._thread.call(work)
