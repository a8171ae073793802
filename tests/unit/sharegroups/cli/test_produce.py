"""`sharegroups produce`: failures of one cause are printed ten times and then counted."""

from __future__ import annotations

import json
import re

import pytest

from kip932.errors import KafkaError, MessageTooLargeError, TopicAuthorizationFailedError
from kip932.ids import TopicPartition
from sharegroups.cli.produce import _Outcome
from sharegroups.reports import DeliveryReport
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups

RIGHT = "WRITE on topic 't'"


@pytest.mark.rule("CT-173")
@pytest.mark.parametrize("output", ["text", "json"])
def test_failures_of_one_cause_are_printed_ten_times_and_then_counted(fake: FakeCluster, output: str) -> None:
    fake.denied = {RIGHT}
    result = sharegroups("produce", "t", "--output", output, stdin="a\n" * 2_010)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    numbered = [re.fullmatch(r"Error: line \d+", line.partition(": the record")[0]) for line in lines[:10]]
    assert all(numbered)
    assert lines[10:] == [
        f"Error: … and 2,000 more for the same cause: the record{lines[0].partition(': the record')[2]}"
    ]
    if output == "json":
        errors = [json.loads(line)["error"] for line in result.stdout.splitlines()]
        assert errors == ["TOPIC_AUTHORIZATION_FAILED"] * 2_010


def _failed(outcome: _Outcome, line: int, error: KafkaError) -> None:
    outcome.report(line, error, DeliveryReport(TopicPartition("t", 0), -1, (None, b"a", None, 0)))


@pytest.mark.rule("CT-173")
def test_causes_are_kept_apart_up_to_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = _Outcome("text")
    for number in range(11):
        _failed(outcome, number, TopicAuthorizationFailedError("no"))
        _failed(outcome, number, MessageTooLargeError("big"))
    for number in range(500):
        _failed(outcome, number, MessageTooLargeError(f"{number} is too much"))
    capsys.readouterr()
    outcome.print_rest()
    assert capsys.readouterr().err.splitlines() == [
        "Error: … and 1 more for the same cause: the record for t was not delivered: TOPIC_AUTHORIZATION_FAILED: no",
        "Error: … and 1 more for the same cause: the record for t was not delivered: MESSAGE_TOO_LARGE: big",
        "Error: … and 392 more for the same cause: records were not delivered for other causes",
    ]
