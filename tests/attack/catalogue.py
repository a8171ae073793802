"""All attacks, for `make attack` and the suite."""

from __future__ import annotations

from typing import Final

from tests.attack.attacks.batches import BATCH_ATTACKS
from tests.attack.attacks.calls import CALL_ATTACKS
from tests.attack.attacks.circles import CIRCLE_ATTACKS
from tests.attack.attacks.clocks import CLOCK_ATTACKS
from tests.attack.attacks.connections import CONNECTION_ATTACKS
from tests.attack.attacks.copies import COPY_ATTACKS
from tests.attack.attacks.floods import FLOOD_ATTACKS
from tests.attack.attacks.frames import FRAME_ATTACKS
from tests.attack.attacks.handshakes import COUNTED_ATTACK, HANDSHAKE_ATTACKS
from tests.attack.attacks.members import MEMBER_ATTACKS
from tests.attack.attacks.memory import MEMORY_ATTACKS
from tests.attack.attacks.parsed import PARSED_ATTACKS
from tests.attack.attacks.refusals import REFUSAL_ATTACKS
from tests.attack.definition import Attack

ATTACKS: Final[tuple[Attack, ...]] = (
    *CONNECTION_ATTACKS,
    *FRAME_ATTACKS,
    *FLOOD_ATTACKS,
    *CALL_ATTACKS,
    *MEMBER_ATTACKS,
    *BATCH_ATTACKS,
    *MEMORY_ATTACKS,
    *PARSED_ATTACKS,
    *CLOCK_ATTACKS,
    *CIRCLE_ATTACKS,
    *COPY_ATTACKS,
    *HANDSHAKE_ATTACKS,
    *REFUSAL_ATTACKS,
    COUNTED_ATTACK,
)


def named(name: str) -> Attack:
    """Return the attack of this name. Raises ValueError, with the existing names, if there is none."""
    for attack in ATTACKS:
        if attack.name == name:
            return attack
    raise ValueError(f"there is no attack {name}; there are {', '.join(each.name for each in ATTACKS)}")
