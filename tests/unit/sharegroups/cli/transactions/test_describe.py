"""`sharegroups transactions describe`: its output for existing ids, and for others."""

from __future__ import annotations

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check


@pytest.mark.rule("CT-130", "CT-132")
def test_the_transcript(transactions: FakeCluster) -> None:
    check(
        "transactions-describe",
        [
            "transactions describe --transactional-id orders-7 --transactional-id orders-8",
            "transactions describe --transactional-id orders-7 --output json",
            "transactions describe --transactional-id order-7 --transactional-id orders-8",
            "transactions describe --transactional-id nothing-like-it",
            "transactions describe --transactional-id ''",
            "transactions describe",
        ],
    )


@pytest.mark.rule("CT-132")
@pytest.mark.parametrize("name", ["x" * 256, "ü" * 128, "a\udcff"])
def test_an_id_that_cannot_be_is_refused_before_anything_is_asked(transactions: FakeCluster, name: str) -> None:
    for action in ("describe", "abort"):
        result = sharegroups("transactions", action, "--transactional-id", name)
        assert result.exit_code == 1
        assert "--transactional-id" in result.stderr
    assert transactions.metadata_requests == 0


def test_an_id_of_another_user_does_nothing_to_a_terminal(transactions: FakeCluster) -> None:
    name = "\x1b[2Jevil\n"
    transactions.transactions.records[name] = transactions.transactions.records["orders-7"]
    for words in (("list",), ("describe", "--transactional-id", name), ("abort", "--transactional-id", name)):
        result = sharegroups("transactions", *words)
        assert "\x1b" not in result.output
        assert "\\x1b[2Jevil" in result.output
