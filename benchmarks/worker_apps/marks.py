"""What the job of every framework does: it appends one mark to a file, which the benchmark reads.

A mark is 16 bytes: for how long the job was under way, and when it was sent, in ns of the machine's monotonic clock.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Final

MARK: Final = struct.Struct("=qq")
#: After how many seconds a job that was not acknowledged shall come again; 0 for each framework's default.
REDELIVER_S: Final = int(os.environ.get("BENCH_REDELIVER_S", "0"))
_file: Final = os.open(os.environ.get("BENCH_MARKS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def mark(sent_ns: int) -> None:
    """The job that was sent at `sent_ns` has begun."""
    os.write(_file, MARK.pack(time.monotonic_ns() - sent_ns, sent_ns))
