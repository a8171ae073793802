"""Collects the runs of one call of a benchmark; prints each when it ends, and leaves out those that do not count."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.machine import versions
from benchmarks.processes import BenchmarkError


@dataclass(slots=True)
class Session:
    """Holds the runs so far, and prints each when it ends."""

    versions: dict[str, str] = field(default_factory=versions)
    runs: list[dict[str, Any]] = field(default_factory=list)
    failures: int = 0

    def add(self, run: dict[str, Any]) -> None:
        """Store and print one run."""
        self.runs.append(run)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        stamp = {"load": os.getloadavg()[0], "at": at, "versions": self.versions}
        print(json.dumps(run | stamp), flush=True)

    def attempt(self, name: str, number: int, work: Callable[[], dict[str, Any]]) -> None:
        """Run one system of one round. If the run cannot be counted, print why and leave it out."""
        try:
            self.add(work() | {"round": number})
        except BenchmarkError as error:
            self.failures += 1
            print(f"{name}, round {number}: {error}", file=sys.stderr, flush=True)
