"""Runs a module of the product on a host whose wall clock is wrong: FILE SWEEP_S MODULE ARGUMENT….

FILE holds by how many milliseconds the clock is ahead, and may be changed at any time; retention sweeps every SWEEP_S
seconds.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

import partition_leader.role
from shard_runtime.clock import SystemClock


def main() -> None:
    """Put the clock wrong, then become the module."""
    _, file, sweep_s, module, *arguments = sys.argv

    def wall_ms(_clock: SystemClock) -> int:
        return time.time_ns() // 1_000_000 + int(Path(file).read_text() or 0)

    setattr(SystemClock, "wall_ms", wall_ms)  # noqa: B010 - a type checker forbids the assignment
    setattr(partition_leader.role, "RETENTION_INTERVAL_S", float(sweep_s))  # noqa: B010 - it is final
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
