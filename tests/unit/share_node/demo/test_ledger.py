"""The demo's ledger: exact totals in spite of redelivery, and discrepancies."""

from collections import Counter

import pytest

from share_node.demo.ledger import Ledger, Place, Report

HERE = Place("t", 0, 5)


@pytest.mark.rule("CM-71")
def test_a_redelivered_record_overwrites_its_result() -> None:
    ledger = Ledger(produced={HERE})
    ledger.add(Report(HERE, 1, 1, "released", Counter()))
    assert ledger.unfinished == 1
    ledger.add(Report(HERE, 1, 2, "accepted", Counter(lines=3)))
    ledger.add(Report(HERE, 2, 3, "accepted", Counter(lines=3)))
    assert (ledger.totals, ledger.accepted, ledger.redelivered) == (Counter(lines=3), 1, 1)
    assert ledger.delivery_counts == {3: 1}
    assert ledger.discrepancies(Counter(lines=3), 1, 0) == []


@pytest.mark.rule("CM-71")
def test_every_kind_of_discrepancy_is_named() -> None:
    ledger = Ledger(produced={HERE})
    ledger.add(Report(Place("t", 0, 6), 1, 1, "accepted", Counter(lines=3)))
    found = "; ".join(ledger.discrepancies(Counter(lines=4), 2, 1))
    assert "accepted: 1 through the queue, 2 directly" in found
    assert "rejected: 0" in found
    assert "lines: 3 through the queue, 4 directly" in found
    assert "1 records were produced and never finished" in found
    assert "never produced" in found


@pytest.mark.rule("CM-71")
@pytest.mark.parametrize(("letters", "is_short"), [(None, False), (0, True), (1, False), (2, False)])
def test_a_rejected_record_without_its_letter_is_a_discrepancy(letters: int | None, is_short: bool) -> None:
    ledger = Ledger(produced={HERE}, letters=letters)
    ledger.add(Report(HERE, 1, 1, "released", Counter()))
    ledger.add(Report(HERE, 2, 2, "rejected", Counter()))
    assert ledger.failed == 1
    found = ledger.discrepancies(Counter(), 0, 1)
    assert found == (["1 records were rejected, and only 0 dead letters written"] if is_short else [])
