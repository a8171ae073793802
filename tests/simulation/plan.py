"""The circumstances of one run: the cluster's shape, how long clients work, and which faults strike when. Plain JSON
inside.

A plan is drawn from a seed, each part from its own random source, so that removing one part leaves the others
unchanged. It does not define the clients' actions, which are drawn from the seed while they work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any, Final

from tests.simulation.faults import Fault
from tests.simulation.faults.catalogue import KINDS, amid, draw
from tests.simulation.faults.clients import frozen
from tests.simulation.shape import CHANGES, FROZEN
from tests.simulation.world import ProcessShape, Shape

#: Possible numbers of faults in a run, with their weights.
_COUNTS: Final = {0: 2, 1: 4, 2: 5, 3: 4, 4: 3, 6: 2, 9: 1}
_WORK_MS: Final = (6_500, 11_000)
#: The earliest time of a fault; by then, clients have started.
_FIRST_MS: Final = 500
#: The probability that all faults of a run strike close together.
_CLOSE: Final = 0.3
#: The probability of other faults in runs with paused clients; timely removals are checked only in runs without others.
_BESIDE_OTHERS: Final = 0.3
#: The minimum number of operations in a history.
OPERATIONS_MIN: Final = 200


@dataclass(frozen=True)
class Step:
    """A fault and when it strikes, in milliseconds of work."""

    at_ms: int
    fault: Fault


@dataclass(frozen=True)
class Plan:
    """The circumstances of one run. The work continues, within a limit, until there were `operations_min`. `without`:
    workloads that only drain and do no work; `drawn`: True if the plan is exactly what the seed gives."""

    shape: Shape
    work_ms: int
    steps: tuple[Step, ...] = ()
    without: tuple[str, ...] = ()
    operations_min: int = 0
    drawn: bool = field(default=False, compare=False)

    @classmethod
    def draw(cls, seed: int) -> Plan:
        """Draw the plan of a seed."""
        rng = Random(f"{seed}/plan")
        shape = Shape.draw(Random(f"{seed}/shape"))
        work_ms = rng.randrange(*_WORK_MS, 100)
        count = rng.choices(list(_COUNTS), list(_COUNTS.values()))[0]
        first_ms, last_ms = _window(rng, work_ms)
        steps = [
            Step(rng.randrange(first_ms, last_ms), draw(Random(f"{seed}/fault/{number}"), shape))
            for number in range(count)
        ]
        if CHANGES in shape.pressures:
            changes = Random(f"{seed}/{CHANGES}")
            steps += [Step(changes.randrange(first_ms, last_ms), each) for each in amid(changes, shape)]
        if FROZEN in shape.pressures:
            standing = Random(f"{seed}/{FROZEN}")
            steps = steps if standing.random() < _BESIDE_OTHERS else []
            steps += [Step(standing.randrange(_FIRST_MS, work_ms - 4_000), each) for each in frozen(standing)]
        ordered = tuple(sorted(steps, key=lambda step: step.at_ms))
        return cls(shape, work_ms, ordered, operations_min=OPERATIONS_MIN, drawn=True)

    def cut(self, work_ms: int) -> Plan:
        """Return the same plan with less time, without the faults that would strike later."""
        steps = tuple(step for step in self.steps if step.at_ms < work_ms)
        return replace(self, work_ms=work_ms, steps=steps, operations_min=0)

    def text(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(self.as_json(), separators=(",", ":"))

    def as_json(self) -> dict[str, Any]:
        """Return it as values that JSON supports."""
        shape = self.shape
        return {
            "shape": {
                "processes": {each.name: sorted(each.roles) for each in shape.processes},
                "replicas": shape.replicas,
                "keepalive_ms": shape.keepalive_ms,
                "flags": dict(shape.flags),
                **({"pressures": list(shape.pressures)} if shape.pressures else {}),
            },
            "work_ms": self.work_ms,
            "operations_min": self.operations_min,
            "without": list(self.without),
            "steps": [[step.at_ms, _word(step.fault), _parameters(step.fault)] for step in self.steps],
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Plan:
        """Read a value returned by `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        shape = said["shape"]
        processes = tuple(ProcessShape(name, frozenset(roles)) for name, roles in shape["processes"].items())
        return cls(
            Shape(
                processes,
                int(shape["replicas"]),
                dict(shape["flags"]),
                int(shape["keepalive_ms"]),
                tuple(shape.get("pressures", ())),  # scenarios kept before this field existed have none
            ),
            int(said["work_ms"]),
            tuple(Step(int(at_ms), _fault(word, parameters)) for at_ms, word, parameters in said["steps"]),
            tuple(said["without"]),
            int(said["operations_min"]),
        )

    def in_words(self) -> list[str]:
        """Describe it in words, one line for each part."""
        shape = self.shape
        processes = "; ".join(f"{each.name}: {', '.join(sorted(each.roles))}" for each in shape.processes)
        flags = " ".join(f"{name}={value}" for name, value in shape.flags.items())
        return [
            f"cluster: {processes}; {shape.replicas} replicas of the store; {flags or 'no flags'}; "
            f"keepalive {shape.keepalive_ms} ms; {', '.join(shape.pressures) or 'no pressures'}",
            f"clients work for {self.work_ms / 1000:.1f} s",
            *(f"  at {step.at_ms / 1000:6.3f} s: {step.fault}" for step in self.steps),
        ]


def _window(rng: Random, work_ms: int) -> tuple[int, int]:
    """Draw when faults strike: at any time during the work, or all within a short period."""
    if rng.random() < _CLOSE:
        first_ms = rng.randrange(_FIRST_MS, work_ms - 4_000)
        return first_ms, first_ms + 1_500
    return _FIRST_MS, work_ms - 1_000


def _word(fault: Fault) -> str:
    return type(fault).__name__


def _parameters(fault: Fault) -> dict[str, Any]:
    return asdict(fault)  # type: ignore[call-overload, no-any-return]  # every fault is a dataclass


def _fault(word: str, parameters: Mapping[str, Any]) -> Fault:
    kind = KINDS.get(word)
    if kind is None:
        raise ValueError(f"there is no fault {word!r}; expected one of {', '.join(sorted(KINDS))}")
    return kind(**{name: _plain(value) for name, value in parameters.items()})


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
