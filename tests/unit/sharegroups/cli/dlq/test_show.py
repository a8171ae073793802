"""`sharegroups dlq show`: a whole dead letter, and its original record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import bare, copy_of, letter_headers, store
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

from .conftest import DLQ, REFUSED, T0


def shown(offset: int, *words: str) -> Any:
    result = sharegroups("dlq", "show", "--topic", f"{DLQ}:0", "--offset", str(offset), "--output", "json", *words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.rule("CT-124")
def test_the_transcript(queue: FakeCluster) -> None:
    headers = [("trace", b"abc\x1b[1m"), ("none", None), ("raw", b"\xff\x00")]
    value = b'{"job": 1,\n "text": "\x07"}'
    copy = copy_of(5, b"\xfe" * 40, value, headers, at_ms=T0 - 1_000, reason=REFUSED)
    store(queue, DLQ, copy, bare(1, reason=b"TimeoutError: \x1b[1m"), bare(9), at_ms=T0)
    store(queue, DLQ, (b"k", b"", [], 5), copy_of(0, None, None), at_ms=T0)
    store(queue, "orders", (None, b"first", [], 1), (b"o-1", b"lost job", [("trace", b"7")], T0 - 5_000), at_ms=T0)
    check(
        "dlq-show",
        [
            f"dlq show --topic {DLQ}:0 --offset 0",
            f"dlq show --topic {DLQ}:0 --offset 0 --output json",
            f"dlq show --topic {DLQ}:0 --offset 1",
            f"dlq show --topic {DLQ}:0 --offset 1 --output json",
            f"dlq show --topic {DLQ}:0 --offset 2",
            f"dlq show --topic {DLQ}:0 --offset 3",
            f"dlq show --topic {DLQ}:0 --offset 4 --output json",
            f"dlq show --topic {DLQ}:0 --offset 5",
            f"dlq show --topic {DLQ}:0 --offset 50",
            f"dlq show --topic {DLQ}:1 --offset 0",
            f"dlq show --topic {DLQ} --offset 0",
        ],
    )


@pytest.mark.rule("CT-124")
def test_a_record_behind_a_marker_is_found_and_the_marker_is_not(queue: FakeCluster) -> None:
    queue.log(DLQ).append(b"", 1, is_control=True)
    store(queue, DLQ, copy_of(0))
    assert shown(1)["letter"]
    marker = sharegroups("dlq", "show", "--topic", f"{DLQ}:0", "--offset", "0")
    assert (marker.exit_code, marker.stdout) == (1, "")
    assert marker.stderr == f"Error: {DLQ}-0 has no record at offset 0; its offsets are 0 to 1.\n"


@pytest.mark.rule("CT-82", "CT-124")
def test_garbled_headers_are_shown_escaped(queue: FakeCluster) -> None:
    headers = [(name, b"\xff\x1b" if name.endswith("group") else value) for name, value in letter_headers(3)]
    store(queue, DLQ, (b"\x1b", b"a\r\nb", headers, 5))
    result = sharegroups("dlq", "show", "--topic", f"{DLQ}:0", "--offset", "0")
    assert "  Group        \\xff\\x1b\n" in result.stdout
    assert "  Garbled " in result.stdout
    assert not set("\x1b\r") & set(result.stdout)
    assert "    a\\r\n    b\n" in result.stdout
    assert shown(0)["garbled"] == "\\xff\x1b orders:0:3"


@pytest.mark.rule("CT-120")
def test_a_partition_without_a_leader_is_reported(queue: FakeCluster) -> None:
    queue.leaders[queue.partition(DLQ)] = (-1, 2)
    result = sharegroups("dlq", "show", "--topic", f"{DLQ}:0", "--offset", "0")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "LEADER_NOT_AVAILABLE" in result.stderr
