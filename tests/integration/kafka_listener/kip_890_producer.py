"""A transactional producer of KIP-890 that sends single requests, so that a test can repeat, delay and mix them up."""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from tests.integration.kafka_listener.share_members import ask
from tests.support.kafka_made import kafka_batch, values
from tests.support.node import BOUND_S, Cluster

NONE, NOT_LEADER, CONCURRENT = 0, 6, 51
_AGAIN: Final = frozenset({NOT_LEADER, CONCURRENT})
_INIT, _PRODUCE, _END = 5, 12, 5


class Identity(NamedTuple):
    """A producer id with an epoch: it names one transaction."""

    producer_id: int
    epoch: int


class Kip890Producer:
    """Keeps the identity of its present transaction, as a client does. Each request has a connection of its own."""

    def __init__(self, node: Cluster, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.node = node
        self.transactional_id = transactional_id
        found = self._again("InitProducerId", _INIT, transaction_timeout_ms=timeout_ms, producer_id=-1)
        assert found.error_code == NONE
        self.identity = Identity(found.producer_id, found.producer_epoch)

    def produce(
        self, topic: str, value: bytes, partition: int = 0, *, sequence: int = 0, identity: Identity | None = None
    ) -> int:
        """Produce one record; return its error. `identity`: of another transaction than the present one."""
        used = identity or self.identity
        batch = kafka_batch(
            values(value),
            producer_id=used.producer_id,
            producer_epoch=used.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        kinds = api("Produce").request
        request = kinds(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                kinds.TopicProduceData(
                    name=topic, partition_data=[kinds.PartitionProduceData(index=partition, records=batch)]
                )
            ],
        )
        deadline = time.monotonic() + BOUND_S
        while True:  # a new partition's leader may still be loading
            (one,) = ask(self.node, "Produce", _PRODUCE, request).responses[0].partition_responses
            if one.error_code not in _AGAIN or time.monotonic() > deadline:
                code: int = one.error_code
                return code
            time.sleep(0.05)

    def end(self, *, committed: bool, identity: Identity | None = None) -> tuple[int, Identity]:
        """Send EndTxn, again while markers are missing; return its error and the next identity, without taking it."""
        used = identity or self.identity
        found = self._again(
            "EndTxn", _END, producer_id=used.producer_id, producer_epoch=used.epoch, committed=committed
        )
        return found.error_code, Identity(found.producer_id, found.producer_epoch)

    def finish(self, *, committed: bool) -> None:
        """End the transaction, which must succeed, and take the next identity."""
        code, self.identity = self.end(committed=committed)
        assert code == NONE

    def _again(self, name: str, version: int, **fields: Any) -> Any:
        request = api(name).request(transactional_id=self.transactional_id, **fields)
        deadline = time.monotonic() + BOUND_S
        while True:
            found = ask(self.node, name, version, request)
            if found.error_code != CONCURRENT or time.monotonic() > deadline:
                return found
            time.sleep(0.05)
