"""The audit log: a line of JSON before a change begins, and one when it has ended (CT-165)."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TextIO

from kip932.printable import printable_json
from sharegroups.cli.dlq.times import time_text


class AuditLog:
    """Writes to a file, or to standard error without one. Raises OSError if it cannot be opened."""

    def __init__(self, path: Path | None = None) -> None:
        self._file: TextIO | None = None if path is None else path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, user: str, client: str, action: str, outcome: str, *, now_ms: int, **more: object) -> None:
        """Write one line: who, from where, what, and how it ended or that it begins. Raises OSError."""
        row = {"time": time_text(now_ms), "event": "console_action", "user": user, "from": client, "action": action}
        text = printable_json(json.dumps(row | more | {"outcome": outcome}, ensure_ascii=False, default=str))
        with self._lock:
            print(text, file=self._file or sys.stderr, flush=True)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
