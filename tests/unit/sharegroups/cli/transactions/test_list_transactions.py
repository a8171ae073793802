"""`sharegroups transactions list`: its output, and the ids it selects."""

from __future__ import annotations

import pytest

from kip932.errors import CoordinatorNotAvailableError, InvalidRequestError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check


@pytest.mark.rule("CT-130", "CT-131")
def test_the_transcript(transactions: FakeCluster) -> None:
    check(
        "transactions-list",
        [
            "transactions list",
            "transactions list --open-longer-than 30s --output json",
            "transactions list --state ongoing,PREPARECOMMIT",
            "transactions list --producer-id 4713 --producer-id 9",
            "transactions list --open-longer-than 1h",
            "transactions list --open-longer-than 1h --output json",
            "transactions list --state open",
            "transactions list --open-longer-than long",
            "transactions list --producer-id 0",
        ],
    )


@pytest.mark.rule("CT-131")
def test_a_record_that_cannot_be_read_is_an_error_and_hides_no_other(damaged: FakeCluster) -> None:
    check("transactions-damaged", ["transactions list", "transactions list --state unreadable --output json"])


@pytest.mark.rule("CL-105")
def test_a_list_that_was_cut_short_is_begun_again(transactions: FakeCluster) -> None:
    whole = sharegroups("transactions", "list").stdout
    transactions.errors["list_transactions"].extend([0, InvalidRequestError.code, CoordinatorNotAvailableError.code])
    result = sharegroups("transactions", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, whole, "")
    transactions.errors["list_transactions"].extend([0, InvalidRequestError.code] * 5)
    result = sharegroups("transactions", "list")
    assert (result.exit_code, result.stdout) == (1, "")
