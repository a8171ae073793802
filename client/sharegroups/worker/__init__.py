"""Workers: they call your functions for the records of a share group.

    from sharegroups.worker import Retry, Worker

    worker = Worker(bootstrap_servers="127.0.0.1:7932", group_id="mail")

    @worker.job("orders", value=json.loads, retry=Retry(backoff=1, maximum=60))
    def send_mail(order): ...

A layer on top of `sharegroups.aio.ShareConsumer` that uses only its public API; docs/howto/workers.md describes how to
run a worker. gRPC is imported when a worker starts, so handler processes do not load it.
"""

from sharegroups.worker.core.policy import Accept, Reject, Release, Retry
from sharegroups.worker.hooks import JobInterrupted
from sharegroups.worker.job import JobInfo, current_job
from sharegroups.worker.pools import WorkerError
from sharegroups.worker.worker import Worker

__all__ = ["Accept", "JobInfo", "JobInterrupted", "Reject", "Release", "Retry", "Worker", "WorkerError", "current_job"]
