"""B5, one by one: at most one record per fetch, its acknowledgement on the next fetch, for a fixed time.

One consumer on one partition, then 16 on four. Each record has its own batch, so that a reply is as small as the
20-byte echo of B4, which is the denominator. An operation is one record with its confirmed acknowledgement.
"""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks import drain
from benchmarks.goals import FOREIGN_CPU_MAX
from benchmarks.machine import Meter
from benchmarks.processes import BenchmarkError

SHAPES: Final = {shape.name: shape for shape in (drain.Shape(1, 1), drain.Shape(4, 16))}
#: Records produced per second of the run: far more than can be consumed.
_RECORDS_PER_S: Final = 15_000
_DONE_S: Final = 60.0


def run(system: drain.System, shape: drain.Shape, seconds: float) -> dict[str, Any]:
    """Run for `seconds`. Raises BenchmarkError."""
    records = int(_RECORDS_PER_S * seconds)
    task = drain.Task(shape, records, benchmark="B5", fetch_records=1, batch_records=1)
    with drain.prepared(system, task) as (board, _):
        pids = {f"consumer-{number}": consumer.pid for number, consumer in enumerate(system.consumers)}
        meter = Meter({**system.servers, **pids})
        gate = time.monotonic()
        for consumer in system.consumers:
            consumer.send("go")
        system.crew.rest(seconds)
        slots = board.slots()
        wall_s = time.monotonic() - gate
        usage = meter.read()
        board.end()
        for consumer in system.consumers:
            consumer.expect("done", _DONE_S)
    operations = sum(records for _, _, records in slots)
    if not 0 < operations < task.produced:
        raise BenchmarkError(f"B5 {shape.name}: {operations} of {task.produced} records done; expected fewer, and some")
    return {
        "benchmark": "B5",
        "system": system.name,
        "shape": shape.name,
        "fsync": task.fsync,
        "operations": operations,
        "wall_s": round(wall_s, 4),
        "ops_per_s": round(operations / wall_s, 1),
        "cpu_s": usage.cpu_s,
        "cpu_us_per_record": round(sum(usage.cpu_s.values()) * 1e6 / operations, 1),
        "foreign_cpu": round(usage.foreign_share, 3),
        "flagged": usage.foreign_share > FOREIGN_CPU_MAX,
        "settings": system.settings(),
    }
