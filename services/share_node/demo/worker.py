"""A worker of the demo, in a process of its own: like one that you write, except for `orders` and `reported`."""

import os

from share_node.demo.jobs import BrokenRecordError
from share_node.demo.orders import Orders, fail_now_and_then, leave_when_dismissed, reported
from sharegroups import Reject, Retry, Worker

orders = Orders.of(os.environ)
worker = Worker({**orders.client, "group.id": orders.group, "client.id": f"demo-worker-{orders.number}"}, concurrency=2)
job = orders.job


@worker.job(orders.topic, retry=Retry(backoff=0.2, maximum=2), outcomes={BrokenRecordError: Reject})
def count(value: bytes) -> None:
    """Count the contents of one record. One that cannot be parsed is rejected; after any other failure it is tried
    again."""
    with reported() as tally:
        fail_now_and_then()
        tally.update(job.process(value))


if __name__ == "__main__":
    leave_when_dismissed()
    worker.run()
