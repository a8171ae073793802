"""How long a service takes to serve again after its owner was killed with SIGKILL, measured many times.

Also what clients notice of a rolling restart: no failed calls, but a stall.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.chaos.deployment import GROUP_COORDINATOR, PARTITION_LEADER, SHARE_COORDINATOR
from tests.chaos.experiments.definition import Definition, no_failed_calls
from tests.chaos.experiments.restarts import rolling_restart
from tests.chaos.load import LoadOptions
from tests.chaos.trial import Trial
from tests.chaos.verdict import CONSUMER

KILLS: Final = 21
CONSUMER_KILLS: Final = 10
#: Observed ten times a second, which gives the precision of a group coordinator's recovery time.
WATCHED: Final = LoadOptions(observe_s=0.1)


def kill_again_and_again(trial: Trial, role: str) -> None:
    """Keep the killed node down until its successor serves, so that the take-over is what is measured."""
    for _ in range(KILLS):
        name = trial.an_owner(role)
        trial.kill(name)
        trial.until_served_again(role)
        trial.start(name)
        trial.pass_time(1.5, 2.5)  # a returned node takes its share back, and leases start at random times


KILLED: Final = tuple(
    Definition(
        f"recovery-{role.replace('_', '-')}",
        f"{KILLS} kills of a {role.replace('_', ' ')}: time until it is served again",
        ("recovery times",),
        partial(kill_again_and_again, role=role),
        WATCHED,
        by_default=False,
        measures_recovery=True,
    )
    for role in (PARTITION_LEADER, SHARE_COORDINATOR, GROUP_COORDINATOR)
)


def kill_consumers(trial: Trial) -> None:
    """Keep each killed consumer down until others serve its partitions, of which it was the only member (GC-36)."""
    names = [f"consumer{number}" for number in range(trial.load.options.consumers)]
    for kill in range(CONSUMER_KILLS):
        trial.kill_consumer(names.pop(0))
        trial.until_served_again(CONSUMER)
        names.append(f"successor{kill}")
        trial.load.start_worker(names[-1], "consumer")
        trial.load.wait_working(names[-1:])
        trial.pass_time(1.5, 2.5)


CONSUMERS_KILLED: Final = Definition(
    "recovery-consumer",
    f"{CONSUMER_KILLS} kills of a consumer: time until its partitions are served by others",
    ("recovery times",),
    kill_consumers,
    by_default=False,
    measures_recovery=True,
)
RESTARTED: Final = Definition(
    "recovery-rolling-restart",
    "Every service node restarted in good order: failed calls and the longest stall",
    ("recovery times", "S-106"),
    rolling_restart,
    checks=(no_failed_calls,),
    by_default=False,
)

EXPERIMENTS: Final = (*KILLED, CONSUMERS_KILLED, RESTARTED)
