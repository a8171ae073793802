"""The experiments: what each shows, which faults it causes in a cluster, and the load meanwhile.

One definition runs on every driver. To add one, write a function that takes a `Trial`, and add a `Definition` to its
module's list, where `catalogue` finds it. A checker over its history judges what it shows beyond the invariants.
"""

from __future__ import annotations

from tests.chaos.experiments import (
    clocks,
    crashes,
    cuts,
    failover,
    members,
    pauses,
    recovery,
    replies,
    restarts,
    scarcity,
    stories,
)
from tests.chaos.experiments.definition import Definition


def catalogue() -> tuple[Definition, ...]:
    """Return every experiment, in the order in which they run."""
    modules = (members, restarts, crashes, pauses, stories, cuts, clocks, scarcity, replies, recovery, failover)
    return tuple(definition for module in modules for definition in module.EXPERIMENTS)


def select(names: list[str]) -> tuple[Definition, ...]:
    """Return the experiments with a given name, or whose name starts with one and a dash; without names, the default
    ones.

    Raises ValueError for a name that matches no experiment.
    """
    if not names:
        return tuple(each for each in catalogue() if each.by_default)
    for name in names:
        if not meant(name):
            known = ", ".join(definition.name for definition in catalogue())
            raise ValueError(f"there is no experiment {name}; there are {known}")
    wanted = {definition.name for name in names for definition in meant(name)}
    return tuple(definition for definition in catalogue() if definition.name in wanted)


def meant(name: str) -> tuple[Definition, ...]:
    """Return the experiments that a name matches, possibly none."""
    return tuple(each for each in catalogue() if each.name == name or each.name.startswith(f"{name}-"))
