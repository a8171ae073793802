"""The planted bugs, each a mistake that is easy to make in this code."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.access import ACCESS
from tests.simulation.mutants.changes import CHANGES
from tests.simulation.mutants.clocks import CLOCKS
from tests.simulation.mutants.consumption import CONSUMPTION
from tests.simulation.mutants.delays import DELAYS
from tests.simulation.mutants.kafka_listener import KAFKA_LISTENER
from tests.simulation.mutants.letters import LETTERS
from tests.simulation.mutants.lost_members import LOST_MEMBERS
from tests.simulation.mutants.moves import MOVES
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.parts import PARTS
from tests.simulation.mutants.reasons import REASONS
from tests.simulation.mutants.removed_members import REMOVED_MEMBERS
from tests.simulation.mutants.rights import RIGHTS
from tests.simulation.mutants.schedules import SCHEDULES
from tests.simulation.mutants.share_partition import SHARE_PARTITION
from tests.simulation.mutants.transactions import TRANSACTIONS
from tests.simulation.mutants.wiring import WIRING

MUTANTS: Final[tuple[Mutant, ...]] = (
    *SCHEDULES, *CHANGES, *LETTERS, *TRANSACTIONS, *CONSUMPTION, *WIRING, *PARTS, *SHARE_PARTITION, *LOST_MEMBERS,
    *DELAYS, *REMOVED_MEMBERS, *CLOCKS, *ACCESS, *MOVES, *RIGHTS, *REASONS, *KAFKA_LISTENER,
)  # fmt: skip
