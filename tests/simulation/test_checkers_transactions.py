"""The checker of transactions finds its violations, and reports nothing in a correct history."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.checkers.transactions import Transactions
from tests.simulation.history import Administered
from tests.simulation.made import Made, found, value
from tests.simulation.transaction_events import TransactionEnded
from tests.simulation.workload.asked import UNKNOWN
from tests.simulation.workload.cast import ISOLATION_LEVEL
from tests.simulation.workload.transacting import ABORTED, COMMITTED


class Transacted(Made):
    """Records 0 and 1 are committed, 2 and 3 aborted; the group uses read_committed."""

    def __init__(self) -> None:
        super().__init__()
        self.add(Administered, "IncrementalAlterConfigs", "g", f"{ISOLATION_LEVEL}=read_committed", "")

    def ended(self, outcome: str, *offsets: int) -> Transacted:
        self.add(TransactionEnded, "x", tuple(map(value, offsets)), outcome)
        return self

    def over(self, **more: dict[tuple[str, int], dict[int, bytes]]) -> Transacted:
        self.rests(4)
        place = self.share[1:]
        values = {place: {offset: value(offset) for offset in (0, 1)}}
        hidden = {place: {offset: value(offset) for offset in (2, 3)}}
        self.final = replace(self.final, **{"values": values, "hidden": hidden, **more})  # type: ignore[arg-type]
        return self


def test_transactions_that_ended_as_reported_are_fine() -> None:
    made = Transacted().ended(COMMITTED, 0, 1).ended(ABORTED, 2).ended(UNKNOWN, 3)
    made.acquires("m", 0, 1).delivered("m", 0).delivered("m", 1)
    assert found(Transactions(), made.over()) == []


def test_a_torn_transaction_is_found_whatever_was_reported() -> None:
    assert found(Transactions(), Transacted().ended(UNKNOWN, 1, 2).over()) == ["CM-44"]
    assert found(Transactions(), Transacted().ended(COMMITTED, 1, 2).over()) == ["CM-44", "CM-44"]


def test_a_lie_to_the_application_is_found() -> None:
    assert found(Transactions(), Transacted().ended(COMMITTED, 2).over()) == ["CM-44"]
    assert found(Transactions(), Transacted().ended(ABORTED, 0, 1).over()) == ["CM-44"]


def test_an_aborted_record_that_a_group_is_given_is_found() -> None:
    made = Transacted()
    made.at(1_000).acquires("m", 1, 2).delivered("m", 2)
    assert found(Transactions(), made.over()) == ["INV-2", "INV-2"]
    everything = Made()
    everything.acquires("m", 1, 2).delivered("m", 2)
    everything.final = made.final
    assert found(Transactions(), everything) == [], "a group that reads uncommitted records is given them"


def test_what_a_leader_gave_out_before_it_heard_of_the_isolation_level_is_none_of_it() -> None:
    made = Transacted()
    made.acquires("m", 2).at(1_500).delivered("m", 2)
    assert found(Transactions(), made.over()) == []
    made.acquires("m", 2, count=2)
    assert found(Transactions(), made) == ["INV-2"], "by then every node has heard of it"


def test_a_transaction_that_stays_open_is_found() -> None:
    made = Transacted().over(open={("ab" * 16, 0): {7: b"v7"}})
    assert found(Transactions(), made) == ["INV-19"]
