"""Workers of `sharegroups worker`: one whose job does nothing, on a thread, and one whose job takes a while."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from benchmarks.worker_apps.marks import mark
from sharegroups.worker import Worker

_GIVEN: Final[dict[str, Any]] = {
    "bootstrap_servers": os.environ.get("BENCH_BOOTSTRAP", "127.0.0.1:7932"),
    "group_id": os.environ.get("BENCH_GROUP", "bench"),
}
noop = Worker(**_GIVEN)
timed = Worker(**_GIVEN, concurrency=1)


@noop.job("noop", value=int)
def nothing(sent_ns: int) -> None:
    """Do nothing but leave the mark."""
    mark(sent_ns)


@timed.job(os.environ.get("BENCH_GROUP", "timed"), value=float)
def sleep(seconds: float) -> None:
    """Sleep; the mark gives the time of the end, on the machine's clock."""
    time.sleep(seconds)
    mark(0)
