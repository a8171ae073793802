"""A filter value that no dead letter has: the existing values are named, and nothing is redriven."""

from __future__ import annotations

import json

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import copy_of, store
from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import DLQ
from .sent import produced


@pytest.mark.rule("CT-122")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cause", "threshld"], "No letter has a cause with 'threshld' in it. Their causes: 'by hand', 'too often'."),
        (
            ["--cause", "often", "--group", "h"],
            "No letter of group h has a cause with 'often' in it. Their causes: 'by hand'.",
        ),
        (["--reason", "up"], "No letter has a reason with 'up' in it. Their reasons: 'db down', 'no address'."),
        (
            ["--reason", "address", "--group", "h"],
            "No letter of group h has a reason with 'address' in it. Their reasons: 'db down'.",
        ),
        (["--origin", "ordres"], "No letter is about ordres. Did you mean 'orders'? They are about: orders."),
        (["--origin", "orders:7"], "No letter is about orders:7. They are about: orders:0, orders:1."),
    ],
)
def test_a_value_that_no_letter_has(queue: FakeCluster, words: list[str], said: str) -> None:
    store(
        queue, DLQ, copy_of(0, cause=b"too often", reason=b"no address"),
        copy_of(1, group="h", cause=b"by hand", reason=b"db down\n  line 2"),
    )  # fmt: skip
    store(queue, DLQ, copy_of(0, partition=1, cause=b"too often"), partition=1)
    for command, status in (["list"], 0), (["list", "--summary"], 0), (["redrive"], 1), (["redrive", "--dry-run"], 1):
        result = sharegroups("dlq", *command, "--topic", DLQ, *words)
        assert (result.exit_code, said in result.stderr) == (status, True), result.output
    assert "Nothing was redriven." in sharegroups("dlq", "redrive", "--topic", DLQ, *words).stderr
    assert produced(queue) == []


@pytest.mark.rule("CT-122")
def test_at_most_ten_are_named(queue: FakeCluster) -> None:
    store(queue, DLQ, *(copy_of(number, cause=b"cause %02d" % number) for number in range(12)))
    result = sharegroups("dlq", "list", "--topic", DLQ, "--cause", "x", "--output", "json")
    assert "'cause 08', 'cause 09' and 2 more." in result.stderr
    assert "cause 10" not in result.stderr
    assert result.stdout == ""


def test_without_letters_and_with_values_that_only_fit_others_nothing_is_wrong(queue: FakeCluster) -> None:
    assert sharegroups("dlq", "redrive", "--topic", DLQ, "--cause", "x").exit_code == 0
    store(queue, DLQ, copy_of(0, cause=b"too often"), copy_of(0, partition=1, cause=b"by hand"))
    result = sharegroups(
        "dlq", "redrive", "--topic", DLQ, "--cause", "often", "--origin", "orders:1", "--output", "json"
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["redriven"] == 0
