"""The planted bugs, each a mistake that somebody could make in this very code."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.parts import PARTS
from tests.simulation.mutants.schedules import SCHEDULES
from tests.simulation.mutants.wiring import WIRING

MUTANTS: Final[tuple[Mutant, ...]] = (*SCHEDULES, *WIRING, *PARTS)
