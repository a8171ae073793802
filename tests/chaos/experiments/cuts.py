"""Links cut while work goes on: silent, in one direction, and with the name removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.chaos.deployment import SERVICES, STORE, Cut
from tests.chaos.experiments.definition import Definition
from tests.chaos.trial import Trial

DELAY_MS: Final = 60
#: In percent. With one packet in five lost, TCP sometimes stalls for seconds, longer than a lease allows.
MUCH_LOSS: Final = 20
SOME_LOSS: Final = 5


def links(trial: Trial) -> Iterator[tuple[str, str]]:
    """Yield the links between services, and to the store, on which the load depends when this is called."""
    store = trial.master()
    yield trial.leader(partition := trial.a_partition()), trial.state_keeper(partition)
    yield trial.leader(trial.a_partition()), trial.coordinator()
    yield trial.state_keeper(trial.a_partition()), store
    yield trial.coordinator(), store
    yield trial.leader(trial.a_partition()), store


def cut_silently(trial: Trial) -> None:
    """Cut each link in turn, both ways; the last one for longer than a lease."""
    for one, other in links(trial):
        trial.cut(one, other, Cut.SILENT)
        trial.pass_time(1.2, 2.0)
        trial.heal()
        trial.pass_time(0.3, 0.6)
    store = trial.master()
    trial.cut(trial.leader(trial.a_partition()), store, Cut.SILENT)
    trial.pass_time(3.8, 4.4)
    trial.heal()
    trial.pass_time(1.0, 1.5)


def cut_one_way(trial: Trial) -> None:
    """Cut each link in each direction."""
    for one, other in links(trial):
        for first, second in ((one, other), (other, one)):
            trial.cut(first, second, Cut.ONE_WAY)
            trial.pass_time(0.8, 1.4)
            trial.heal()
            trial.pass_time(0.2, 0.5)
    trial.pass_time(1.0, 1.5)


def take_names_away(trial: Trial) -> None:
    """Take a leader, a share coordinator and the group's coordinator off the network in turn, and put them back."""
    for role in SERVICES:
        name = trial.an_owner(role)
        others = [other for other in trial.everybody() if other != name]
        trial.cut(trial.rng.choice(others), name, Cut.GONE)
        trial.pass_time(2.0, 4.0)
        trial.heal()
        trial.pass_time(0.5, 1.0)
    trial.pass_time(1.0, 1.5)


def cut_clients(trial: Trial) -> None:
    """Cut a consumer and the producer off from a leader: both ways, then each way."""
    for worker in ("consumer0", "producer"):
        leader = trial.leader(trial.a_partition())
        for first, second, kind in (
            (worker, leader, Cut.SILENT),
            (worker, leader, Cut.ONE_WAY),
            (leader, worker, Cut.ONE_WAY),
        ):
            trial.cut(first, second, kind)
            trial.pass_time(1.2, 2.4)
            trial.heal()
            trial.pass_time(0.3, 0.6)
    trial.load.wait_working(["consumer0"])


def delay(trial: Trial) -> None:
    """Delay everything that goes to an owner, then to the store."""
    for role in (*SERVICES, STORE):
        trial.slow(trial.an_owner(role) if role in SERVICES else trial.master(), DELAY_MS)
        trial.pass_time(1.5, 2.5)
        trial.heal()
    trial.pass_time(0.5, 1.0)


def lose_packets(trial: Trial) -> None:
    """Lose packets of an owner of each service, then the store, then all, at random; TCP retransmits them, late."""
    for role in (*SERVICES, STORE):
        trial.lose(trial.an_owner(role) if role in SERVICES else trial.master(), MUCH_LOSS)
        trial.pass_time(1.5, 2.5)
        trial.heal()
    for name in (*trial.everybody(), trial.master()):
        trial.lose(name, SOME_LOSS)
    trial.pass_time(2.5, 3.5)
    trial.heal()
    trial.pass_time(0.5, 1.0)


EXPERIMENTS: Final = (
    Definition(
        "cuts-silent",
        "Leader, share coordinator, group coordinator and store lose each other: packets vanish both ways",
        (
            "S-112",
            "schedule: two-way cuts leader - share coordinator, leader - group coordinator, coordinator - store",
        ),
        cut_silently,
    ),
    Definition(
        "cuts-one-way",
        "The same links, each direction by itself",
        (
            "S-112",
            "schedule: one-way cuts leader - share coordinator, leader - group coordinator, coordinator - store",
        ),
        cut_one_way,
    ),
    Definition(
        "cuts-name-gone",
        "An owner leaves the network: its name and its address are gone",
        ("schedule: cuts with the name gone",),
        take_names_away,
    ),
    Definition(
        "cuts-clients",
        "A consumer and the producer lose a leader, both ways and one way",
        ("schedule: one-way and two-way cuts client - leader",),
        cut_clients,
    ),
    Definition(
        "delays",
        "Latency on what goes to each service and to the store",
        ("schedule: delayed requests",),
        delay,
    ),
    Definition(
        "packets-lost",
        "Packets of each service and of the store are lost at random, then those of all nodes",
        ("schedule: lost packets",),
        lose_packets,
    ),
)
