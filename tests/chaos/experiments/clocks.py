"""Wall clocks that jump by minutes, and clocks that run fast or slow, in the services that the load depends on."""

from __future__ import annotations

from typing import Final

from sharegroups import AcknowledgeType
from tests.chaos.deployment import PARTITION_LEADER, SERVICES, Cut, Unsupported
from tests.chaos.experiments.definition import Definition
from tests.chaos.load import LoadOptions
from tests.chaos.trial import Trial

AHEAD_MS: Final = 7 * 60_000
BEHIND_MS: Final = -13 * 60_000
#: The maximum by which Linux slews a clock (adjtimex: a tick of 9 to 11 ms); a crystal is off by at most 100 ppm.
DRIFT_PPM: Final = 100_000
#: Longer than the steps during which a lock must last, and short enough to wait for.
LOCK_MS: Final = 6_000
BEYOND_LEASE_S: Final = (3.8, 4.4)


def jump(trial: Trial) -> None:
    """Make the owners' wall clocks jump ahead and back, which must neither end a lock early nor prolong one."""
    trial.wear_clocks(*trial.everybody())
    topic = f"{trial.load.topic}-held"
    trial.load.create_topic(topic, 1)
    trial.produce(20, topic)
    one = trial.hand("m1", topic)
    held = one.take(20)
    owners = (
        trial.owners.leader(topic, 0),
        trial.owners.share_coordinator(trial.load.group, topic, 0),
        trial.coordinator(),
    )
    for owner in owners:
        trial.set_clock(owner, wall_ms=AHEAD_MS)
    one.settle(held[:10], AcknowledgeType.ACCEPT)
    assert not (errors := one.commit()), f"acceptances of records whose locks run: {errors}"
    for owner in owners:
        trial.set_clock(owner, wall_ms=BEHIND_MS)
    trial.hand("m2", topic).take_and_accept(range(10, 20))
    trial.load.wait_working(trial.load.consumers())


def drift(trial: Trial) -> None:
    """Make the clocks of an owner of each service slow and those of another of its nodes fast; then cut a slow leader
    and a fast one off from the store.

    The slow one considers its lease valid for longer than the store does. What it confirms in that time must be refused
    by the store, or else no other node may contradict it.
    """
    trial.wear_clocks(*trial.everybody())
    for role in SERVICES:
        slow = trial.an_owner(role)
        fast = next(name for name in trial.names(role) if name != slow) if len(trial.names(role)) > 1 else ""
        trial.set_clock(slow, rate_ppm=-DRIFT_PPM)
        if fast:
            trial.set_clock(fast, rate_ppm=DRIFT_PPM)
    trial.pass_time(1.0, 2.0)
    for rate_ppm in (-DRIFT_PPM, DRIFT_PPM):
        leader = trial.an_owner(PARTITION_LEADER)
        trial.set_clock(leader, rate_ppm=rate_ppm)
        _lose_store(trial, leader)
        trial.pass_time(0.5, 1.0)
    trial.load.wait_working(trial.load.consumers())


def _lose_store(trial: Trial, leader: str) -> None:
    """Cut a leader off from the store for longer than a lease. Clients still reach it, unless the driver cannot cut
    links: then it is paused."""
    try:
        trial.cut(leader, trial.master(), Cut.SILENT)
    except Unsupported:
        trial.pause(leader)
        trial.pass_time(*BEYOND_LEASE_S)
        trial.resume(leader)
    else:
        trial.pass_time(*BEYOND_LEASE_S)
        trial.heal()


EXPERIMENTS: Final = (
    Definition(
        "clocks-jump",
        "Wall clocks of the owners jump 7 minutes ahead and 13 back; locks end when they are due",
        ("schedule: clock jumps",),
        jump,
        LoadOptions(consumers=2, rate=60, lock_ms=LOCK_MS),
    ),
    Definition(
        "clocks-drift",
        "Owners whose clocks run 10 % slow, and others 10 % fast, while leases end",
        ("schedule: clock jumps",),
        drift,
    ),
)
