"""The workloads of one run, drawn from its seed, each with its own random source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.shape import CHANGES, DELAYS, LETTERS, RIGHTS, TRANSACTIONS
from tests.simulation.workload import Workload
from tests.simulation.workload.administering import Administrator
from tests.simulation.workload.cast import Cast, GroupRules
from tests.simulation.workload.changing import changed_groups
from tests.simulation.workload.groups import ShareGroup
from tests.simulation.workload.guests import Guests
from tests.simulation.workload.misbehaving import Misbehaving
from tests.simulation.workload.operating import Operator
from tests.simulation.workload.postmaster import Postmaster
from tests.simulation.workload.producing import BULK, BurstyProducer, Habits
from tests.simulation.workload.transacting import TransactionalProducer, TransactionHabits
from tests.simulation.workload.tuning import Tuner

if TYPE_CHECKING:
    from tests.simulation.world import World


def draw_crew(world: World, rng: Random) -> list[Workload]:
    """Draw one to three topics, one to three groups, producers for all topics, and perhaps an administrator and
    misbehaving members; if the run has that pressure, also groups that are changed.

    If workloads are left out, the others still draw the same values, and the topics are created in any case.
    """
    partitions = {f"t{number}": rng.choice([1, 2, 2, 3]) for number in range(rng.choice([1, 2, 2, 3]))}
    topics = tuple(partitions)
    names = [f"g{number}" for number in range(rng.choice([1, 1, 1, 1, 1, 2, 2, 2, 3]))]
    size_max = 2 if len(names) == 1 else 1
    pressures = world.shape.pressures
    drawn = [GroupRules.draw(_source(rng), name, topics, size_max) for name in names]
    groups = tuple(each.pressed(world.random(f"{each.name}/pressed"), pressures) for each in drawn)
    cast = Cast(world, partitions, groups)
    crew: list[Workload] = [_producer(cast, _source(rng), f"p{number}", topics) for number in range(2)]
    crew += [ShareGroup(cast, _source(rng), rules) for rules in groups]
    if rng.random() < 0.5:
        crew.append(Misbehaving(cast, _source(rng), "rogue", rng.choice(groups)))
    if rng.random() < 0.7:
        crew.append(Administrator(cast, _source(rng), "admin", topics[1:] if rng.random() < 0.6 else ()))
    if TRANSACTIONS in pressures:
        crew += [_transactional(cast, world.random(f"{TRANSACTIONS}/{name}"), name, topics) for name in ("x0", "x1")]
        operator = world.random(f"{TRANSACTIONS}/operator")
        crew += [Operator(cast, operator, "operator")] if operator.random() < 0.5 else []
    if CHANGES in pressures:
        crew += changed_groups(cast, world.random(CHANGES), topics)
    if LETTERS in pressures:
        crew.append(Postmaster(cast, world.random(LETTERS), "postmaster"))
    if DELAYS in pressures:
        crew.append(Tuner(cast, world.random(DELAYS), "tuner"))
    if RIGHTS in pressures:
        source = world.random(RIGHTS)
        crew.append(Guests(cast, source, "guests", source.choice(groups)))
    return crew


def _source(rng: Random) -> Random:
    """Return a separate random source, so that a workload's draws do not depend on what others do."""
    return Random(rng.getrandbits(64))


def _transactional(cast: Cast, rng: Random, name: str, topics: Sequence[str]) -> TransactionalProducer:
    """Return a producer that writes to the first topic, and perhaps to others."""
    some = tuple(topic for topic in topics[1:] if rng.random() < 0.6)
    return TransactionalProducer(cast, rng, name, TransactionHabits.draw(rng, (topics[0], *some)))


def _producer(cast: Cast, rng: Random, name: str, topics: Sequence[str]) -> BurstyProducer:
    """Return a producer that writes to the first topic, and perhaps to others."""
    some = tuple(topic for topic in topics[1:] if rng.random() < 0.6)
    habits = Habits.draw(rng, (topics[0], *some))
    if "bulk" in cast.world.shape.pressures:
        habits = replace(habits, burst=BULK, batch=1, spread=0.0)
    return BurstyProducer(cast, rng, name, habits)
