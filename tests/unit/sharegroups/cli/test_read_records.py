"""`sharegroups topics read`: records by offset, and what it says about offsets without one."""

from __future__ import annotations

import json

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import produce
from tests.support.letters import store
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

T0 = 1_700_000_000_000


@pytest.mark.rule("CT-144")
def test_the_transcript(fake: FakeCluster) -> None:
    headers = [("trace", b"abc\x1b[1m"), ("none", None), ("raw", b"\xff\x00")]
    store(fake, "t", (b"k", b"first\nsecond \xe2\x80\xae", headers, T0), (None, None, [], T0), at_ms=T0 + 1)
    store(fake, "t", (b"k2", b"", [], T0), at_ms=T0 + 2)
    check(
        "topics-read",
        [
            "topics read t:0",
            "topics read t:0 --offset 1 --count 2",
            "topics read t:0 --offset 1 --count 5 --output json",
            "topics read t:0 --offset 3",
            "topics read t:1",
            "topics read t:1 --offset 0",
            "topics read t:7",
            "topics read nope:0",
            "topics read t",
            "topics read :0",
        ],
    )


@pytest.mark.rule("CT-144")
def test_it_reads_page_by_page_over_markers_to_the_end(fake: FakeCluster) -> None:
    for _ in range(5):
        store(fake, "t", (b"k", b"v" * 700_000, [], T0), at_ms=T0)
        fake.log("t").append(b"", 1, is_control=True)
    result = sharegroups("topics", "read", "t:0", "--offset", "1", "--count", "9", "--output", "json")
    assert result.exit_code == 0
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == [2, 4, 6, 8]
    assert result.stderr == "Note: 4 records, since t-0 ends there.\n"


@pytest.mark.rule("CT-144")
def test_a_batch_that_cannot_be_decoded_is_named_and_the_others_are_printed(fake: FakeCluster) -> None:
    fake.log("t").append(b"\xff\xff", 2)
    produce(fake)
    result = sharegroups("topics", "read", "t:0", "--count", "2", "--output", "json")
    assert result.exit_code == 1
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == [2]
    assert "Error: t-0 offsets 0 to 1 cannot be read: " in result.stderr


@pytest.mark.rule("CT-144", "CL-92")
def test_no_group_is_made(fake: FakeCluster) -> None:
    produce(fake, 3)
    before = dict(fake.log("t").states)
    assert sharegroups("topics", "read", "t:0", "--count", "3").exit_code == 0
    assert (fake.log("t").states, fake.fetches) == (before, [])
