"""Tells the application what became of its records: calls the `on_delivery` of a batch's records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from sharegroups.core.produce_lane import Batch
from sharegroups.produced import ProducedRecord
from sharegroups.reports import DeliveryReport

OnDelivery = Callable[[KafkaError | None, DeliveryReport], None]


def tell(
    batch: Batch[ProducedRecord, OnDelivery], partition: TopicPartition, offset: int, error: KafkaError | None = None
) -> None:
    """Call each watcher of the batch, whose first record has this offset; with an error none has one.

    A watcher that raises is reported to the event loop's exception handler, and the others are told nevertheless: the
    records are stored or not, whatever the application does with that.
    """
    for index, on_delivery in batch.watchers:
        report = DeliveryReport(partition, -1 if error else offset + index, batch.records[index])
        try:
            on_delivery(error, report)
        except Exception as raised:
            text = f"on_delivery of a record for {partition.topic}-{partition.partition} raised an exception"
            asyncio.get_running_loop().call_exception_handler({"message": text, "exception": raised})
