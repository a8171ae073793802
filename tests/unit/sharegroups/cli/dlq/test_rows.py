"""A dead letter as a line or as JSON, with any content from other producers."""

from __future__ import annotations

import pytest

from sharegroups.cli.dlq.rows import for_screen
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import bare, copy_of, letter_headers, store
from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import DLQ, T0
from .listing import listed, places


@pytest.mark.rule("CT-121", "CT-123")
def test_the_first_letter_of_an_origin_is_none_that_came_twice_even_if_it_is_not_listed(letters: FakeCluster) -> None:
    flags = {(one["partition"], one["offset"]): one["duplicate"] for one in listed()}
    assert [place for place, twice in flags.items() if twice] == [(1, 0)]
    (later,) = listed("--since", "2023-11-14T22:15:20", "--until", "2023-11-14T22:16:00")
    assert later["duplicate"]
    store(letters, DLQ, copy_of(0, group="h"), copy_of(0, topic="jobs"), copy_of(0, partition=1), at_ms=T0)
    assert sum(one["duplicate"] for one in listed()) == 1, (
        "another group, topic or partition makes it another dead letter"
    )


@pytest.mark.rule("CT-121", "CT-122")
def test_a_garbled_letter_is_listed_and_passes_no_filter_that_needs_what_is_garbled(queue: FakeCluster) -> None:
    own = letter_headers(3, count=7)
    for name, value in (("offset", b"x"), ("group", b"\xff"), ("delivery.count", b"-")):
        store(queue, DLQ, (b"k", b"v", [(n, value if n.endswith(name) else v) for n, v in own], 5))
    found = listed()
    assert [one["garbled"] for one in found] == ["g orders:0:x", "\\xff orders:0:3", "g orders:0:3"]
    assert [(one["group"], one["origin_offset"], one["delivery_count"]) for one in found] == [
        ("g", None, 7),
        (None, 3, 7),
        ("g", 3, None),
    ]
    assert places("--group", "g") == [(0, 0), (0, 2)]
    assert places("--origin", "orders") == [(0, 1), (0, 2)]
    text = sharegroups("dlq", "list", "--topic", DLQ).stdout.splitlines()[2:]
    assert [" garbled " in line for line in text] == [True] * 3


@pytest.mark.rule("CT-143")
@pytest.mark.parametrize(
    ("reason", "cell"),
    [
        (b"x" * 61, "x" * 61),
        (b"first\nsecond", "first"),
        (b"\n\n  first\n", "first"),
        (b" \n ", "-"),
        (b"", "-"),
        (None, "-"),
        (b"\x1b" * 61, "\\x1b" * 61),
        ("\u202egnp.exe".encode(), "\\u202egnp.exe"),
        (b"<b>bold</b> 'quoted' \"too\"", "<b>bold</b> 'quoted' \"too\""),
    ],
    ids=range(9),
)
def test_the_last_column_is_the_first_line_of_the_reason(queue: FakeCluster, reason: bytes | None, cell: str) -> None:
    store(queue, DLQ, copy_of(0, reason=reason))
    for words in ([], ["--summary"]):
        header, row = sharegroups("dlq", "list", "--topic", DLQ, *words).stdout.splitlines()[1:]
        assert header.endswith(" REASON")
        assert row[header.index("REASON") :] == cell
    assert listed()[0]["reason"] == (None if reason is None else reason.decode())


@pytest.mark.rule("CT-143")
@pytest.mark.parametrize(("length", "cut"), [(60, "x" * 60), (61, "x" * 59 + "…")])
def test_only_on_a_terminal_a_reason_is_cut(monkeypatch: pytest.MonkeyPatch, length: int, cut: str) -> None:
    assert for_screen("x" * length) == "x" * length
    monkeypatch.setattr("sharegroups.cli.dlq.rows.sys.stdout.isatty", lambda: True)
    assert for_screen("x" * length) == cut


@pytest.mark.rule("CT-82", "CT-121", "CT-143")
def test_what_others_wrote_does_nothing_to_a_terminal(queue: FakeCluster) -> None:
    nasty = "\x1b[2Jx\u202e\n\r"
    said = nasty.encode() + b"\xff"
    store(queue, DLQ, copy_of(0, group=nasty, topic=nasty, cause=said, reason=said, at_ms=-(2**40)))
    for words in (["list"], ["list", "--summary"]):
        for output in ("text", "json"):
            result = sharegroups("dlq", *words, "--topic", DLQ, "--output", output)
            assert result.exit_code == 0
            assert "\\x1b[2Jx" in result.stdout or "\\u001b[2Jx" in result.stdout
            assert not set("\x1b\u202e\r\x00") & set(result.stdout)
    assert len(listed()) == 1


@pytest.mark.rule("CT-123")
def test_how_often_a_record_has_been_redriven_is_listed(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(3, headers=[("__dlq.redrive.count", b"2")]), copy_of(4), bare(5))
    assert [one["redrives"] for one in listed()] == [2, 0, None]
    result = sharegroups("dlq", "list", "--topic", DLQ)
    assert [line.split()[6] for line in result.stdout.splitlines()[2:]] == ["2", "0", "-"]
