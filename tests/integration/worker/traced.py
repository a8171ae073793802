"""A producer and a worker for `test_traces`. The first delivery of a record fails; that of "bad" is rejected, unless it
was redriven. The second one writes to a database, under a span of its own.

Run as `python -m tests.integration.worker.traced produce VALUE…` or `… work`. The environment gives the cluster, the
group, the topic, where handlers run, and the file for what hooks see.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys

from opentelemetry import trace

from sharegroups import JobInfo, Producer, Reject, Retry, Worker, current_job

_BOOTSTRAP = os.environ.get("TRACED_BOOTSTRAP", "127.0.0.1:7932")
_TOPIC = os.environ.get("TRACED_TOPIC", "traced")
_TRACER = trace.get_tracer("program")

worker = Worker(
    bootstrap_servers=_BOOTSTRAP,
    group_id=os.environ.get("TRACED_GROUP", "traced"),
    continue_trace=True,
    processes=os.environ.get("TRACED_PROCESSES") == "yes",
    concurrency=1,
)


@worker.job(_TOPIC, retry=Retry(backoff=0.01))
def work(value: bytes) -> None:
    """Fail once, then store the job."""
    job = current_job()
    is_redriven = any(name.startswith("__dlq.redrive.") for name, _ in job.headers)
    if value == b"bad" and not is_redriven:
        raise Reject("it is bad")
    if value == b"kills" and job.delivery_count == 1:
        os._exit(9)
    if value == b"job" and job.delivery_count == 1:
        raise ValueError("the first time")
    with _TRACER.start_as_current_span("INSERT jobs"), sqlite3.connect(":memory:") as database:
        database.execute("create table jobs (value)")
        database.execute("insert into jobs values (?)", [value])


@worker.on("start")
def start() -> None:
    """Note it."""
    _note("start")


@worker.on("stop")
def stop() -> None:
    """Note it."""
    _note("stop")


@worker.on("before")
def before(job: JobInfo) -> None:
    """Note it, and fail."""
    _note("before", job.offset)
    raise SystemExit(5)


@worker.on("failed")
def failed(job: JobInfo, error: BaseException) -> None:
    """Note it."""
    _note("failed", job.offset, f"{type(error).__name__}: {error}")


@worker.on("after")
def after(job: JobInfo) -> None:
    """Note it."""
    _note("after", job.offset)


def _note(event: str, *what: object) -> None:
    span = f"{trace.get_current_span().get_span_context().span_id:016x}"
    line = json.dumps([event, os.getpid(), span, *what])
    with open(os.environ["TRACED_HOOKS"], "a") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        with _TRACER.start_as_current_span("request"), Producer(bootstrap_servers=_BOOTSTRAP) as producer:
            for text in sys.argv[2:]:
                producer.send(_TOPIC, text)
    else:
        worker.run()
