"""The consequences of a persister error for a share-partition."""

from __future__ import annotations

import pytest

from kip932.errors import KafkaError, NotLeaderOrFollowerError, UnknownServerError
from kip932.state_values import StaleLeaderError
from partition_leader.share_partition.core.failures import Consequence, meaning
from share_coordinator.core.plausible import ImplausibleError


@pytest.mark.rule("PL-731", "P-12")
@pytest.mark.parametrize(
    ("error", "seen", "consequence"),
    [
        (StaleLeaderError("stored: 9", 9), NotLeaderOrFollowerError, Consequence.STOP),
        (ImplausibleError("no such epoch"), UnknownServerError, Consequence.RETIRE),
    ],
)
def test_a_refusal_of_the_coordinator_in_this_process_has_the_consequence_of_its_number(
    error: KafkaError, seen: type[KafkaError], consequence: Consequence
) -> None:
    found = meaning(error)
    assert (type(found.error), found.error.message, found.consequence) == (seen, error.message, consequence)
