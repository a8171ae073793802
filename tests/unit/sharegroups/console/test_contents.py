"""How keys, values and headers are shown."""

from __future__ import annotations

import pytest

from sharegroups.admin_values import ReadRecord
from sharegroups.console.contents import HEADERS_MAX, brief, content_of, part_of


@pytest.mark.rule("CT-167")
def test_text_bytes_and_null() -> None:
    assert part_of("v", b"a\nb") == ("v", ("a", "b"), "text", 3, False)
    assert part_of("v", None) == ("v", (), "null", None, False)
    assert part_of("v", b"\xff\x00") == ("v", ("ff00",), "bytes, not UTF-8", 2, False)
    assert part_of("v", b"") == ("v", ("",), "text", 0, False)


@pytest.mark.rule("CT-167")
@pytest.mark.parametrize("most", range(1, 8))
def test_a_cut_within_a_character_stays_text(most: int) -> None:
    value = "aé€😀".encode()
    part = part_of("v", value, most)
    assert part.kind == "text"
    assert part.is_cut
    assert value.decode().startswith(part.lines[0])


@pytest.mark.rule("CT-167")
def test_bytes_before_the_cut_are_no_text() -> None:
    assert part_of("v", b"\xffabcdef", 5).kind == "bytes, not UTF-8"


@pytest.mark.rule("CT-167")
def test_a_list_has_the_beginning_in_one_line() -> None:
    assert brief(b"a\nb") == "a b"
    assert brief(None) == "null"
    assert brief(b"x" * 300) == "x" * 200 + "…"


@pytest.mark.rule("CT-167")
def test_headers_are_bounded() -> None:
    record = ReadRecord(0, 0, None, b"k", b"v", tuple(("h", b"1") for _ in range(HEADERS_MAX + 3)))
    content = content_of(record, record.headers)
    assert len(content.parts) == 2 + HEADERS_MAX
    assert content.left_out == 3
