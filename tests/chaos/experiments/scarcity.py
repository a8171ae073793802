"""Too little of something: memory of the store."""

from __future__ import annotations

from typing import Final

from tests.chaos.deployment import PARTITION_LEADER
from tests.chaos.experiments.definition import Definition
from tests.chaos.trial import Trial

#: What a producer is told when the store takes no more: at once, or when its own time for a record is over.
REFUSED: Final = frozenset({"KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"})
#: Enough for a second or so of work.
STORE_ROOM: Final = 64 * 1024


def store_full(trial: Trial) -> None:
    """The store's master reaches its maxmemory: nothing more is confirmed until it is given room."""
    trial.pass_time(0.5, 1.0)
    master = trial.master()
    trial.leave_store(master, STORE_ROOM)
    trial.until(lambda: _told(trial, "OOM"), "refusal of a write in the log of a leader")
    trial.leave_store(master, -STORE_ROOM)  # buffers come and go: from here on no write has room by chance
    error = trial.refused_produce()
    assert error in REFUSED, f"a record that the full store cannot take failed with {error or 'no error'}"
    trial.pass_time(3.5, 4.0)  # longer than a lease: those are written too
    trial.give_store_back(master)
    trial.load.wait_working(trial.load.consumers())


def _told(trial: Trial, word: str) -> bool:
    logs = trial.deployment.logs()
    return any(word in logs[name] for name in trial.names(PARTITION_LEADER))


EXPERIMENTS: Final = (
    Definition(
        "store-memory-full",
        "The store reaches its maxmemory and is given room again",
        ("schedule: a full store",),
        store_full,
    ),
)
