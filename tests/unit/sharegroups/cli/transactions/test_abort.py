"""`sharegroups transactions abort`: its output, and its effect on the producer."""

from __future__ import annotations

import json

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check
from transaction_coordinator.core.transaction import Cause, Ended

from .conftest import DONE, IDENTITY, OPEN


@pytest.mark.rule("CT-130", "CT-133")
def test_the_transcript(transactions: FakeCluster) -> None:
    check(
        "transactions-abort",
        [
            f"transactions abort --transactional-id {OPEN}",
            f"transactions abort --transactional-id {OPEN}",
            f"transactions abort --transactional-id {DONE} --output json",
            "transactions abort --transactional-id payments-2",
            "transactions abort --transactional-id payment-2",
            "transactions abort --transactional-id ' '",
        ],
    )
    assert transactions.transactions.ended == [(IDENTITY, False)]
    assert transactions.transactions.records[OPEN].ended[-1] == Ended(IDENTITY, committed=False, cause=Cause.OPERATOR)


@pytest.mark.rule("CT-133")
def test_markers_that_are_left_are_reported(transactions: FakeCluster) -> None:
    transactions.transactions.unfinished = True
    result = sharegroups("transactions", "abort", "--transactional-id", OPEN, "--output", "json")
    assert (result.exit_code, json.loads(result.stdout)["transaction"]["partitions"]) == (0, {"t": [0, 1]})
    assert "no marker yet" in result.stderr


@pytest.mark.rule("CT-133", "CL-105")
def test_an_abort_whose_answer_was_lost_is_asked_for_again(transactions: FakeCluster) -> None:
    transactions.errors["end_txn_lost"].append(1)
    result = sharegroups("transactions", "abort", "--transactional-id", OPEN)
    assert (result.exit_code, transactions.transactions.ended) == (0, [(IDENTITY, False)])
