"""Workers: functions that run for the records of a share group.

    from sharegroups.worker import Retry, Worker

    worker = Worker(bootstrap_servers="127.0.0.1:7932", group_id="mail")

    @worker.job("orders", value=json.loads, retry=Retry(backoff=1, maximum=60))
    def send_mail(order): ...

A layer on `sharegroups.aio.ShareConsumer`; it uses nothing that a program of yours could not use. docs/howto/workers.md
tells how to run it. gRPC is imported when a worker starts, so that a process for handlers does without.
"""

from sharegroups.worker.core.policy import Accept, Reject, Release, Retry
from sharegroups.worker.job import JobInfo, current_job
from sharegroups.worker.pools import WorkerError
from sharegroups.worker.worker import Worker

__all__ = ["Accept", "JobInfo", "Reject", "Release", "Retry", "Worker", "WorkerError", "current_job"]
