"""Transactions of a producer (CM-44): fence older producers of the same id, then commit or abort on every partition.

The leaders write the markers; this module asks each of them, and retries until all have answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from kip932.api.v1.write_txn_markers_pb2 import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kip932.errors import KafkaError, NetworkError, RequestTimedOutError, RetriableError, error_for
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import TransportError
from sharegroups import wire
from sharegroups.aio.cluster import Cluster
from sharegroups.aio.sender import Sender, Transaction
from sharegroups.config import Config
from sharegroups.errors import IllegalStateError


class Transactions:
    """The transactions of one producer, one at a time."""

    def __init__(self, cluster: Cluster, config: Config, sender: Sender, flush: Callable[[], Awaitable[int]]) -> None:
        self._cluster = cluster
        self._config = config
        self._sender = sender
        self._flush = flush
        self._open = False
        if config["transactional.id"]:
            sender.transaction = Transaction(config["transactional.id"], config["transaction.timeout.ms"])

    async def begin(self) -> None:
        """Begin a transaction. Raises IllegalStateError without transactional.id or inside another transaction."""
        if self._sender.transaction is None:
            raise IllegalStateError("a transaction needs the setting transactional.id")
        if self._open:
            raise IllegalStateError("a transaction is open already; end it first")
        self._open = True
        self._cluster.start()
        self._sender.touched.clear()
        self._sender.transaction_error = None
        if self._sender.identity is None:
            await self._sender.identify()

    async def end(self, commit: bool) -> None:
        """Flush, then have the leaders mark every partition. Raises KafkaError when that cannot be done in time.

        If a record could not be delivered, the transaction is aborted even with `commit`, and its error is raised.
        """
        await self._flush()
        self._open = False
        failed = self._sender.transaction_error
        await self._mark_all(commit and failed is None)
        if failed is not None:
            self._sender.identity = None  # its sequences have a gap; the next transaction's identity fences this one
            if commit:
                raise failed

    async def _mark_all(self, commit: bool) -> None:
        ids: set[TopicIdPartition] = set()
        for name, number in self._sender.touched:
            topic = self._cluster.topics.get(name)
            if topic is not None:
                ids.add(TopicIdPartition(topic.topic_id, number))
        backoff = self._cluster.backoff()
        last: KafkaError = NetworkError("no leader answered")
        try:
            async with asyncio.timeout(self._config["default.api.timeout.ms"] / 1000):
                while ids:
                    ids, problem = await self._mark(ids, commit)
                    if ids:
                        last = problem or last
                        self._cluster.request_refresh()
                        await asyncio.sleep(backoff.next_ms() / 1000)
        except TimeoutError:
            raise RequestTimedOutError(f"the transaction was not ended everywhere: {last}") from None

    async def _mark(
        self, partitions: Iterable[TopicIdPartition], commit: bool
    ) -> tuple[set[TopicIdPartition], KafkaError | None]:
        """One round; returns the partitions to retry, and the last error."""
        by_node: dict[str, list[TopicIdPartition]] = {}
        again: set[TopicIdPartition] = set()
        last: KafkaError | None = None
        for partition in partitions:
            leader = self._cluster.leader(partition)
            address = self._cluster.address(leader.node_id) if leader is not None else None
            if address is None:
                again.add(partition)
            else:
                by_node.setdefault(address, []).append(partition)
        for address, parts in by_node.items():
            try:
                response = await self._cluster.transport.call(
                    address, wire.WRITE_TXN_MARKERS, self._request(parts, commit), self._cluster.timeout_s
                )
            except TransportError as error:
                again.update(parts)
                last = NetworkError(str(error))
            else:
                failed = _errors(response)
                for problem in failed.values():
                    if not isinstance(problem, RetriableError):
                        raise problem
                    last = problem
                again.update(failed)
        return again, last

    def _request(self, partitions: list[TopicIdPartition], commit: bool) -> WriteTxnMarkersRequest:
        identity, transaction = self._sender.identity, self._sender.transaction
        assert identity is not None
        assert transaction is not None
        request = WriteTxnMarkersRequest()
        marker = request.markers.add(
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            transaction_result=commit,
            transactional_id=transaction.transactional_id,
        )
        for topic_id, numbers in wire.by_topic(partitions).items():
            marker.topics.add(topic_id=topic_id, partition_indexes=numbers)
        return request


def _errors(response: WriteTxnMarkersResponse) -> dict[TopicIdPartition, KafkaError]:
    failed: dict[TopicIdPartition, KafkaError] = {}
    for marker in response.markers:
        for topic in marker.topics:
            for part in topic.partitions:
                if error := error_for(part.error_code, part.error_message):
                    failed[TopicIdPartition(topic.topic_id, part.partition_index)] = error
    return failed
