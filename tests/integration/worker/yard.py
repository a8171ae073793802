"""A worker for `ends`: its jobs take a moment each, and print when they begin and end.

Run as `sharegroups worker tests.integration.worker.yard:worker`. The environment gives the cluster, the group, the
topic and the worker's name.
"""

from __future__ import annotations

import asyncio
import json
import os
import time

from sharegroups.worker import Worker, current_job

#: How long a job takes, in seconds.
JOB_S = float(os.environ.get("YARD_JOB_S", "0.02"))

worker = Worker(
    bootstrap_servers=os.environ.get("YARD_BOOTSTRAP", "127.0.0.1:7932"),
    group_id=os.environ.get("YARD_GROUP", "yard"),
    client_id=os.environ.get("YARD_NAME", "worker"),
    concurrency=4,
)


@worker.job(os.environ.get("YARD_TOPIC", "yard"))
async def work(_: bytes) -> None:
    """Wait for a moment."""
    _say("begun")
    await asyncio.sleep(JOB_S)
    _say("ended")


def _say(what: str) -> None:
    """Write a line in one piece, so that a SIGKILL does not truncate it. The monotonic clock is shared by all processes
    of the machine."""
    job = current_job()
    os.write(1, json.dumps([what, job.partition, job.offset, time.monotonic()]).encode() + b"\n")


if __name__ == "__main__":
    worker.run()
