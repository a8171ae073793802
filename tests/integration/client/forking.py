"""The program that `test_forks.py` runs: clients and a worker in a child of this process, forked by the given method.

Usage: `python forking.py BOOTSTRAP TOPIC METHOD BEFORE WHAT`.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from typing import Any

from sharegroups import Admin, IllegalStateError, Producer, ShareConsumer, Worker


def use_clients(at: dict[str, Any], topic: str) -> str:
    """Send a record, list topics, receive it."""
    failed: list[object] = []
    with Producer(at) as producer:
        producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error))
        left = producer.flush(20)
    with Admin(at) as admin:
        listed = len(admin.list_topics([topic]))
    received = 0
    with ShareConsumer(at, group_id=topic) as consumer:
        consumer.subscribe([topic])
        while not received:
            received = sum(1 for _ in consumer.poll(timeout=20))
        consumer.commit_sync()
    return f"left {left} failed {failed} listed {listed} received {received}"


def handle(_: bytes) -> None:
    """Do nothing."""


def use_worker(at: dict[str, Any], topic: str, processes: bool) -> str:
    """Run a worker until it has done a job."""
    worker = Worker(at, group_id="w-" + topic, concurrency=1, processes=processes)
    worker.job(topic)(handle)
    threading.Thread(target=stop_when_done, args=(worker,), daemon=True).start()
    worker.run()
    return worker.progress().split(" done")[0]


def stop_when_done(worker: Worker) -> None:
    """Stop the worker after its first job, or after 20 s."""
    over = threading.Event()
    for _ in range(200):
        if over.wait(0.1) or (hasattr(worker, "tally") and not worker.progress().startswith("0 done")):
            break
    worker.stop()


def child(said: Any, what: str, at: dict[str, Any], topic: str) -> None:
    """The child's body: use clients or a worker, and put the result, or the error of a refusal, into `said`."""
    try:
        said.put(use_clients(at, topic) if what == "clients" else use_worker(at, topic, what == "processes"))
    except IllegalStateError as error:
        said.put(f"refused: {error}")


def main() -> None:
    """Run one combination from the table, and print the child's result."""
    bootstrap, topic, method, before, what = sys.argv[1:]
    at = {"bootstrap.servers": bootstrap}
    if before == "used":
        with Admin(at) as admin:
            admin.list_topics([topic])
    context: Any = multiprocessing.get_context(method)
    said = context.Queue()
    process = context.Process(target=child, args=(said, what, at, topic))
    process.start()
    print(said.get(timeout=50))
    process.join(10)
    print(process.exitcode)


if __name__ == "__main__":
    main()
