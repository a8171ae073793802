"""Reports the outcome of records to the application: calls the `on_delivery` of a batch's records."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from sharegroups.producing.core.produce_lane import Batch
from sharegroups.producing.produced import ProducedRecord
from sharegroups.reports import DeliveryReport

OnDelivery = Callable[[KafkaError | None, DeliveryReport], None]


def report_delivery(
    batch: Batch[ProducedRecord, OnDelivery], partition: TopicPartition, offset: int, error: KafkaError | None = None
) -> None:
    """Call each watcher of the batch. `offset`: that of the first record; ignored when there is an error.

    If a watcher raises, the error is reported to the event loop's exception handler, and the others are still called:
    their records' outcome does not depend on it.
    """
    for index, on_delivery in batch.watchers:
        report = DeliveryReport(partition, -1 if error else offset + index, batch.records[index])
        try:
            on_delivery(error, report)
        except BaseException as raised:
            report_raised(f"on_delivery of a record for {partition.topic}-{partition.partition}", raised)


def report_raised(name: str, raised: BaseException) -> None:
    """Report an exception of an application's function to the event loop's exception handler (CL-134, CL-96).

    This includes SystemExit, which, if re-raised, would end the loop, and with it all remaining work of the client.
    KeyboardInterrupt in the main thread is the user's Ctrl-C, and is re-raised.
    """
    asyncio.get_running_loop().call_exception_handler({"message": f"{name} raised an exception", "exception": raised})
    if isinstance(raised, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise raised
