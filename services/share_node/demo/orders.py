"""The messages between the demo and its worker processes: orders in the environment, results on standard output."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from share_node.demo.jobs import BrokenRecordError, Job, Tally, fails_first_attempt, job_for
from sharegroups import current_job
from sharegroups.cli.output import lines_of, pairs

_PREFIX: Final = "SHAREGROUPS_DEMO_"


class Orders(NamedTuple):
    """A worker's cluster, topic, group, number and input. `input`: the user's own file; "" for the standard library.
    `command_config`: the file of client settings, "" for none; its path is passed on, never what is in it."""

    bootstrap: str = "127.0.0.1:7932"
    topic: str = "demo"
    group: str = "demo"
    number: str = "1"
    input: str = ""
    command_config: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Orders:
        """Read the orders from the environment."""
        return cls(**{name: environment[key] for name in cls._fields if (key := _PREFIX + name.upper()) in environment})

    def environment(self) -> dict[str, str]:
        """Return the variables for a worker's environment."""
        return {_PREFIX + name.upper(): value for name, value in self._asdict().items()}

    @property
    def client(self) -> dict[str, str]:
        """The settings of clients of the cluster. Raises UsageFailure for a line that is not name=value, OSError for a
        file that cannot be read."""
        file = Path(self.command_config) if self.command_config else None
        return pairs(lines_of(file)) | {"bootstrap.servers": self.bootstrap}

    @property
    def job(self) -> Job:
        """The work for each record. Raises InputError."""
        return job_for(self.input or None)


def fail_now_and_then() -> None:
    """Raise ConnectionError at the first delivery of every ninth record, like a service that is briefly unavailable."""
    job = current_job()
    if job.delivery_count == 1 and fails_first_attempt((job.key or b"").decode()):
        raise ConnectionError("planted: the first try fails for every ninth record")


@contextlib.contextmanager
def reported() -> Iterator[Tally]:
    """Report on a job: yield its tally, then write a line of JSON with the outcome and the tally, *before* the worker
    acknowledges the record.

    So the demo may receive a result twice, but never misses one.
    """
    tally, outcome = Tally(), "accepted"
    try:
        yield tally
    except BrokenRecordError:
        outcome = "rejected"
        raise
    except Exception:
        outcome = "released"
        raise
    finally:
        job = current_job()
        report = {"partition": job.partition, "offset": job.offset, "count": job.delivery_count}
        line = json.dumps(report | {"outcome": outcome, "tally": tally if outcome == "accepted" else {}}) + "\n"
        os.write(sys.stdout.fileno(), line.encode())  # in one piece: other threads write, too


def leave_when_dismissed() -> None:
    """Send this process a SIGTERM when its standard input closes: when the demo dismisses it, or the demo itself
    ends."""

    def wait() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
