"""The job of every framework: it appends one mark to a file, which the benchmark reads.

A mark is 16 bytes: how long the job was in flight, and when it was sent, both in ns of the machine's monotonic clock.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Final

MARK: Final = struct.Struct("=qq")
#: The number of seconds after which an unacknowledged job is to be delivered again; 0 for each framework's default.
REDELIVER_S: Final = int(os.environ.get("BENCH_REDELIVER_S", "0"))
_file: Final = os.open(os.environ.get("BENCH_MARKS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def mark(sent_ns: int) -> None:
    """Record that the job that was sent at `sent_ns` has started."""
    os.write(_file, MARK.pack(time.monotonic_ns() - sent_ns, sent_ns))
