"""A resource runs short: memory in the store or in a service, space on a disk, or disk speed."""

from __future__ import annotations

from typing import Final

from tests.chaos.deployment import PARTITION_LEADER
from tests.chaos.experiments.definition import Definition
from tests.chaos.load import LoadOptions
from tests.chaos.trial import Trial

#: The errors that a producer gets if the store accepts no more: at once, or when its timeout for a record ends.
REFUSED: Final = frozenset({"KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"})
#: In a leader's log: the store refused a write, or the leader refused records before that happened (CM-214). Either
#: will do here, so this does not show CM-214: test_store_room.py and test_full_store.py do.
REFUSALS: Final = ("OOM", "records_refused_store_full")
#: Space for about a second of work.
STORE_ROOM: Final = 64 * 1024
DISK_MIB: Final = 64
#: Each write by the store takes several disk writes: an fsync then takes half a second.
SLOW_WRITES: Final = 10
#: What the leader itself needs, plus about fifty of the records that it receives.
LEADER_MIB: Final = 112
BIG: Final = LoadOptions(rate=40, value_bytes=400_000)


def store_full(trial: Trial) -> None:
    """Let the store's master near its maxmemory, so that leaders refuse records or it does; then leave no write any
    room at once: nothing more is confirmed until the limit is lifted."""
    trial.pass_time(0.5, 1.0)
    master = trial.master()
    trial.leave_store(master, STORE_ROOM)
    trial.until(lambda: _logged(trial, *REFUSALS), "refusal of a write in the log of a leader")
    trial.give_store_back(master)
    trial.load.wait_working(trial.load.consumers())
    trial.leave_store(master, -STORE_ROOM)  # buffers vary in size; from here on no write has room, not even by chance
    trial.until(lambda: _logged(trial, "OOM"), "refusal by the store in the log of a leader")
    error = trial.refused_produce()
    assert error in REFUSED, f"a record that the full store cannot take failed with {error or 'no error'}"
    trial.pass_time(3.5, 4.0)  # longer than a lease, whose renewals are writes too
    trial.give_store_back(master)
    trial.load.wait_working(trial.load.consumers())


def disk_full(trial: Trial) -> None:
    """Let the store's master run out of disk space: it ends, since it cannot keep what it confirms, and is started
    again."""
    store = trial.master()
    trial.move_to_disk(store, DISK_MIB)
    trial.load.wait_working(trial.load.consumers())
    trial.fill_disk(store)
    trial.until(lambda: trial.has_ended(store), "end of a store whose disk is full")
    trial.pass_time(1.0, 2.0)
    trial.free_disk(store)
    trial.start(store)
    trial.load.wait_working(trial.load.consumers())


def disk_slow(trial: Trial) -> None:
    """Slow down the disk of the store's master twice: for longer than a lease, and for a moment."""
    store = trial.master()
    trial.move_to_disk(store, DISK_MIB)
    trial.load.wait_working(trial.load.consumers())
    for least_s, most_s in ((5.0, 6.0), (1.0, 1.5)):
        trial.slow_disk(store, SLOW_WRITES)
        trial.pass_time(least_s, most_s)
        trial.hasten_disk(store)
        trial.pass_time(0.5, 1.0)
    trial.load.wait_working(trial.load.consumers())


def leader_short(trial: Trial) -> None:
    """Give a leader little memory while large records arrive: it is slow, or the kernel kills it and it is
    restarted."""
    leader = trial.an_owner(PARTITION_LEADER)
    trial.kill(leader)
    trial.limit_memory(leader, LEADER_MIB)
    trial.start(leader)
    for _ in range(2):
        trial.pass_time(3.0, 4.0)
        if trial.has_ended(leader):
            trial.start(leader)
    trial.has_ended(leader)
    trial.lift_memory(leader)
    trial.start(leader)
    trial.load.wait_working(trial.load.consumers())


def _logged(trial: Trial, *words: str) -> bool:
    logs = trial.deployment.logs()
    return any(word in logs[name] for name in trial.names(PARTITION_LEADER) for word in words)


EXPERIMENTS: Final = (
    Definition(
        "store-memory-full",
        "The store nears its maxmemory, is given room again, has none at once, and is given room again",
        ("schedule: a full store",),
        store_full,
    ),
    Definition(
        "store-disk-full",
        "The disk of the store's master has no room left, and then has",
        ("schedule: a full disk",),
        disk_full,
    ),
    Definition(
        "store-disk-slow",
        "The disk of the store's master takes ten writes a second",
        ("schedule: a slow disk",),
        disk_slow,
    ),
    Definition(
        "leader-memory-short",
        "A leader with little memory is sent large records",
        ("schedule: memory pressure",),
        leader_short,
        BIG,
        by_default=False,
    ),
)
