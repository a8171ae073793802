"""The headers of a dead letter are read correctly, whatever other producers have written into them."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroups.cli.dlq.core.dead_letters import (
    Origin,
    Place,
    Redriven,
    fresh_headers,
    letter_content,
    letter_of,
    redriven_of,
)
from tests.support.letters import TOO_OFTEN, Headers, letter_headers

OWN = letter_headers(17, "orders", 3, "workers", 4)
PLACE = Place("dlq.orders", "AAAAAAAAAAAAAAAAAAAAAA", 1, 42)


def changed(**values: bytes | None) -> list[tuple[str, bytes | None]]:
    """The headers of a dead letter, with some values replaced."""
    return [(name, values.get(name.rpartition(".")[2], value)) for name, value in OWN]


@pytest.mark.rule("CT-121")
def test_a_letter_says_where_its_record_is_and_why_it_is_there() -> None:
    letter = letter_of([("a", b"1"), *OWN], b"k", b"v")
    assert letter is not None
    assert (letter.origin, letter.group) == (Origin("orders", 3, 17), "workers")
    assert (letter.delivery_count, letter.cause) == (4, TOO_OFTEN.decode())
    assert (letter.others, letter.redrives) == ([("a", b"1")], 0)
    assert (letter.is_garbled, letter.is_headers_only) == (False, False)


@pytest.mark.rule("CT-121")
@pytest.mark.parametrize(
    "headers",
    [
        [],
        OWN[1:],
        [*OWN, ("later", b"x")],
        [OWN[1], OWN[0], *OWN[2:]],
        [("__dlq.errors.topic", b"t")],
        [*OWN[:4], OWN[5], OWN[4]],
        [*OWN[:3], *OWN[4:]],
    ],
    ids=["none", "first missing", "not last", "order", "one", "order of the last", "group missing"],
)
def test_what_does_not_end_with_all_headers_in_order_is_no_letter(headers: list[tuple[str, bytes | None]]) -> None:
    assert letter_of(headers, b"k", b"v") is None


@pytest.mark.rule("CT-121")
@pytest.mark.parametrize(
    ("headers", "count", "cause"),
    [(OWN[:4], None, None), (OWN[:5], 4, None), ([*OWN[:4], OWN[5]], None, TOO_OFTEN.decode())],
)
def test_count_and_cause_are_there_when_they_are_known(headers: Any, count: int | None, cause: str | None) -> None:
    letter = letter_of(headers, None, b"v")
    assert letter is not None
    assert (letter.delivery_count, letter.cause, letter.is_garbled) == (count, cause, False)


@pytest.mark.rule("CT-121")
def test_only_the_last_headers_are_the_letters_for_a_record_may_bring_such_itself() -> None:
    forged = letter_headers(1, "else", 9, "mallory")
    letter = letter_of([*forged, *OWN], b"k", b"v")
    assert letter is not None
    assert (letter.origin, letter.group, letter.others) == (Origin("orders", 3, 17), "workers", forged)


@pytest.mark.rule("CT-121", "CT-143", "PL-943")
@pytest.mark.parametrize("copied", [[], [("a", b"1")], [("__dlq.errors.reason", b"forged"), ("a", b"1")]])
def test_a_reason_directly_before_the_letters_headers_is_the_letters_own(copied: Headers) -> None:
    plain = letter_of([*copied, *OWN], b"k", b"v")
    letter = letter_of([*copied, ("__dlq.errors.reason", b"ValueError: no\n  line 2"), *OWN], b"k", b"v")
    assert plain is not None
    assert letter is not None
    assert letter == plain._replace(reason="ValueError: no\n  line 2")
    assert letter.others == copied
    assert letter_content(letter, b"k", b"v", 5) == letter_content(plain, b"k", b"v", 5), "it is no part of the record"
    assert fresh_headers(letter.others, letter, PLACE) == fresh_headers(plain.others, plain, PLACE)


@pytest.mark.rule("CT-121", "CT-143")
@pytest.mark.parametrize(
    "headers",
    [
        [("__dlq.errors.reason", b"x"), ("a", b"1"), *OWN],
        [*OWN, ("__dlq.errors.reason", b"x")],
        [OWN[0], ("__dlq.errors.reason", b"x"), *OWN[1:]],
        [*OWN[:4], ("__dlq.errors.reason", b"x"), *OWN[4:]],
        [("__DLQ.errors.reason", b"x"), *OWN],
    ],
    ids=["not directly before", "after", "between", "before the count", "another name"],
)
def test_a_reason_elsewhere_is_a_header_like_others(headers: list[tuple[str, bytes | None]]) -> None:
    letter = letter_of(headers, b"k", b"v")
    assert letter is None or (letter.reason is None and letter.others == headers[: -len(OWN)])


@pytest.mark.rule("CT-121", "CT-143")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, None),
        (b"", ""),
        (b"\xff\x1b", "\udcff\x1b"),
        (b"x" * 1_024, "x" * 1_024),
        (b"x" * 10_000_000, "x" * 1_024 + "…"),
    ],
    ids=["null", "empty", "no text", "the longest", "too long"],
)
def test_a_reason_of_any_bytes_leaves_the_letter_as_it_is(value: bytes | None, reason: str | None) -> None:
    letter = letter_of([("__dlq.errors.reason", value), *OWN], None, None)
    assert letter is not None
    assert (letter.reason, letter.is_garbled, letter.is_headers_only) == (reason, False, True)


@pytest.mark.rule("CT-121")
@pytest.mark.parametrize(
    "values",
    [
        {"topic": b"\xff"}, {"topic": b""}, {"topic": None}, {"topic": b"t" * 1_001}, {"group": b"\xff"},
        {"group": None}, {"partition": b"x"}, {"partition": b""}, {"partition": b"-1"}, {"partition": b"2147483648"},
        {"partition": "٣".encode()}, {"offset": b"1_0"}, {"offset": b"9223372036854775808"}, {"offset": b"9" * 400_000},
        {"offset": None}, {"count": b"many"}, {"message": b"\xff\x1b"}, {"count": None},
    ],
    ids=str,
)  # fmt: skip
def test_headers_that_cannot_be_read_make_it_garbled_and_nothing_worse(values: dict[str, bytes | None]) -> None:
    letter = letter_of(changed(**values), b"k", b"v")
    assert letter is not None
    assert letter.is_garbled
    (name,) = values
    lost = {"topic": letter.origin, "partition": letter.origin, "offset": letter.origin, "group": letter.group}
    assert lost.get(name) is None
    assert max(map(len, (letter.origin_text, letter.group_text, letter.cause or ""))) < 3_100


def test_what_is_no_text_is_kept_so_that_it_can_be_shown() -> None:
    letter = letter_of(changed(topic=b"a\xff", group=None, message=b"\x1b\xfe"), b"k", b"v")
    assert letter is not None
    assert letter.origin_text.encode("utf-8", "surrogateescape") == b"a\xff:3:17"
    assert letter.group_text == "null"
    assert (letter.cause or "").encode("utf-8", "surrogateescape") == b"\x1b\xfe"


@pytest.mark.rule("CT-121")
def test_the_largest_numbers_are_numbers() -> None:
    letter = letter_of(changed(partition=b"2147483647", offset=b"9223372036854775807", count=b"0"), b"k", b"v")
    assert letter is not None
    assert (letter.origin, letter.delivery_count) == (Origin("orders", 2**31 - 1, 2**63 - 1), 0)


@pytest.mark.rule("CT-121")
@pytest.mark.parametrize(
    ("key", "value", "others", "holds"),
    [
        (None, None, [], True),
        (b"orders:3:17", None, [], True),
        (b"workers:orders:3:17", None, [], True),
        (b"k", None, [], False),
        (b"orders:3:18", None, [], False),
        (None, b"", [], False),
        (b"orders:3:17", b"v", [], False),
        (None, None, [("a", None)], False),
    ],
)
def test_headers_only_is_what_has_no_part_of_a_copy(key: Any, value: Any, others: Any, holds: bool) -> None:
    letter = letter_of([*others, *OWN], key, value)
    assert letter is not None
    assert letter.is_headers_only == holds


@pytest.mark.rule("CT-125")
def test_a_fresh_record_has_the_headers_of_its_origin_and_where_it_comes_from() -> None:
    before: Headers = [("a", b"1"), ("__dlq.errors.topic", b"forged"), ("a", None)]
    letter = letter_of([*before, *OWN], b"k", b"v")
    assert letter is not None
    fresh = fresh_headers(letter.others, letter, PLACE)
    assert fresh == [
        ("a", b"1"),
        ("a", None),
        ("__dlq.redrive.topic", b"dlq.orders"),
        ("__dlq.redrive.topic.id", b"AAAAAAAAAAAAAAAAAAAAAA"),
        ("__dlq.redrive.partition", b"1"),
        ("__dlq.redrive.offset", b"42"),
        ("__dlq.redrive.group", b"workers"),
        ("__dlq.redrive.origin.offset", b"17"),
        ("__dlq.redrive.count", b"1"),
    ]
    assert redriven_of(fresh) == Redriven("AAAAAAAAAAAAAAAAAAAAAA", "workers", 17)

    again = letter_of([*fresh, *letter_headers(99, "orders", 3, "workers")], b"k", b"v")
    assert again is not None
    assert again.redrives == 1
    twice = fresh_headers(again.others, again, PLACE._replace(offset=50))
    assert [name for name, _ in twice] == [name for name, _ in fresh], "the earlier ones have gone"
    assert dict(twice)["__dlq.redrive.count"] == b"2"
    assert redriven_of(twice) == Redriven("AAAAAAAAAAAAAAAAAAAAAA", "workers", 99)


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [("count", b"x", 0), ("count", b"-3", 0), ("count", None, 0), ("count", b"\xff", 0), ("count", b"41", 41)],
)
def test_a_forged_count_is_no_count(name: str, value: bytes | None, count: int) -> None:
    letter = letter_of([(f"__dlq.redrive.{name}", value), *OWN], b"k", b"v")
    assert letter is not None
    assert letter.redrives == count
    assert dict(fresh_headers(letter.others, letter, PLACE))["__dlq.redrive.count"] == str(count + 1).encode()


@pytest.mark.parametrize("left_out", ["topic.id", "group", "origin.offset", "count"])
def test_a_record_that_does_not_say_all_of_it_was_not_redriven(left_out: str) -> None:
    letter = letter_of(OWN, b"k", b"v")
    assert letter is not None
    fresh = [header for header in fresh_headers([], letter, PLACE) if header[0] != f"__dlq.redrive.{left_out}"]
    assert redriven_of(fresh) is None
    assert redriven_of([]) is None
