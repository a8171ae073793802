"""Handles fetch errors of single partitions: refreshes the metadata, raises the error or logs it (CL-34, CL-91)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kip932.errors import KafkaError, RetriableError, UnsupportedCompressionTypeError
from kip932.ids import TopicIdPartition
from sharegroups.aio.ack_outbox import OUTDATED
from sharegroups.aio.cluster import Cluster
from sharegroups.aio.session_owner import SessionOwner
from sharegroups.core.refused_partitions import RefusedPartitions

log = logging.getLogger(__name__)


class FetchRefusals:
    """The refusals of one leader's session. Call `answered` with each answer to a ShareFetch."""

    def __init__(self, group_id: str, cluster: Cluster, owner: SessionOwner) -> None:
        self._cluster = cluster
        self._owner = owner
        self._told = RefusedPartitions(group_id)

    def answered(
        self, errors: Mapping[TopicIdPartition, KafkaError], wanted: Mapping[TopicIdPartition, str], now_ms: int
    ) -> None:
        """Handle the errors of one answer. An error about an outdated leader or topic refreshes the metadata. A
        permanent error is raised by the next poll, or ends the membership (CL-111). Others, including outdated ones,
        are logged once they have lasted."""
        if not errors and not self._told.refused:
            return
        passing: dict[TopicIdPartition, str] = {}
        for partition, error in errors.items():
            if isinstance(error, OUTDATED):
                self._cluster.request_refresh()
            elif not isinstance(error, RetriableError):
                name = self._cluster.names.get(partition.topic_id, partition.text)
                fatal = isinstance(error, UnsupportedCompressionTypeError)
                tell = self._owner.gave_up if fatal else self._owner.failed
                tell(type(error)(f"{name}-{partition.partition}: {error.message}"))
                continue
            passing[partition] = f"{error.name}: {error.message}"
        for line in self._told.answered(passing, wanted, now_ms):
            log.warning("%s", line)
