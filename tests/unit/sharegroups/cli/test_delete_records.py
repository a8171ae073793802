"""`sharegroups topics delete-records`: the new log starts, and refusals."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import produce
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check


@pytest.mark.rule("CT-94")
def test_the_transcript(fake: FakeCluster) -> None:
    for number in (0, 1):
        produce(fake, 5, partition=number)
    check(
        "topics-delete-records",
        [
            "topics delete-records t:0=3 t:1=-1",
            "topics delete-records t:0=1",
            "topics delete-records t:0=6 t:1=5",
            "topics delete-records t:0=4 t:7=1 nope:0=1 --output json",
            "topics delete-records t:0=4 t:0=5",
            "topics delete-records t=4",
        ],
    )
    result = sharegroups("consume", "t", "--group", "g", "--max-messages", "1")
    assert result.stdout == "v4\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t", "expected TOPIC:PARTITION=OFFSET"),
        ("t:0", "expected TOPIC:PARTITION=OFFSET"),
        ("t:0=", "expected TOPIC:PARTITION=OFFSET"),
        ("t:0=x", "expected TOPIC:PARTITION=OFFSET"),
        ("t:-1=5", "expected TOPIC:PARTITION=OFFSET"),
        (":0=5", "expected TOPIC:PARTITION=OFFSET"),
        ("t:0=-2", "the offset is -2; expected 0 or more, or -1 for all records"),
        ("t:0=9223372036854775808", "the offset is 9223372036854775808; expected 0 or more"),
    ],
)
def test_what_names_no_offset_of_a_partition_is_refused(text: str, said: str) -> None:
    result = CliRunner().invoke(main, ["topics", "delete-records", text])
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
