"""The format of the table: what its lines mean, and which are refused."""

from __future__ import annotations

import pytest

from kafka_listener.messages.fields import ALL, NONE, ZERO_UUID, Entry, Versions, entries

TABLE = """\
Example 7 versions 1-4 flexible 3+
  request
    group_id string? = null, limit int32 2+ = 500
    topics [Topic]?2+:
      topic_id uuid
      partitions [Partition]: index int32, types [int8] 1-2
    cursor Cursor? = null: at int64 = -1, is_open bool = true
    again [Topic] 4, hint string 3+ tag 0
  response
    records records?, error_code int16

Other 8 versions 0 flexible never
  request
    name string
  response
    name string
"""


def entry(lines: str) -> Entry:
    heading = "Example 7 versions 1-4 flexible 3+\n  request\n"
    return next(entries(f"{heading}{lines}\n  response\n    name string\n"))


@pytest.mark.rule("KL-30")
def test_a_heading_gives_the_key_and_the_versions() -> None:
    one, two = entries(TABLE)
    assert (one.name, one.key, one.versions, one.flexible_from) == ("Example", 7, range(1, 5), 3)
    assert (two.name, two.key, two.versions, two.flexible_from) == ("Other", 8, range(1), None)


@pytest.mark.rule("KL-30")
def test_a_field_says_its_type_versions_nullability_tag_and_default() -> None:
    request = next(entries(TABLE)).message("request")
    group, limit, topics, cursor, again, hint = request.shape.fields
    assert (group.type, group.versions, group.nullable, group.default_is_null) == ("string", ALL, ALL, True)
    assert (limit.versions.first, 1 in limit.versions, limit.nullable, limit.default) == (2, False, NONE, 500)
    assert (topics.type, topics.is_array, topics.nullable.first, topics.is_struct) == ("Topic", True, 2, True)
    assert (cursor.is_array, cursor.default_is_null) == (False, True)
    assert (again.type, again.versions) == ("Topic", Versions(4, 4))
    assert (hint.tag, hint.default) == (0, "")
    assert [field.name for field in request.shape.present(1)] == ["group_id", "topics", "cursor"]
    assert [field.name for field in request.shape.tagged(3)] == ["hint"]


@pytest.mark.rule("KL-30")
def test_structs_follow_in_the_line_or_below_it() -> None:
    request = next(entries(TABLE)).message("request")
    assert list(request.structs) == ["Partition", "Topic", "Cursor", "ExampleRequest"]
    index, types = request.structs["Partition"].fields
    assert (index.name, index.default) == ("index", 0)
    assert (types.is_array, types.versions) == (True, Versions(1, 2))
    assert [field.default for field in request.structs["Cursor"].fields] == [-1, True]
    assert request.structs["Topic"].fields[0].default == ZERO_UUID


def test_records_that_may_be_null_are_null_by_default() -> None:
    records, error = next(entries(TABLE)).message("response").shape.fields
    assert (records.default_is_null, error.default_is_null) == (True, False)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("    name text", "unknown type"),
        ("    topics [Topic]", "unknown type"),
        ("    name [string", "is not a field"),
        ("    name string 3..4", "is not a field"),
        ("    Name string", "is not a field"),
        ("    name string,limit int32", "is not a field"),
        ("    a [One]: b int8\n    c [One]: b int8", "defined twice"),
        ("    a [One]:\n    b int8", "no fields"),
        ("    a int8, a int16", "two of one name"),
        ("    a int8\n      b int8", "without a struct"),
        ("    a : b int8", "is not a field"),
    ],
)
def test_lines_that_are_not_in_the_format_are_refused(lines: str, found: str) -> None:
    with pytest.raises(ValueError, match=rf"ExampleRequest.*{found}"):
        entry(lines).message("request")


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("Example 7 versions 1-4", "heading of an API"),
        ("Example 7 versions 1-4 flexible 3+\n    a int8", "outside of a request"),
        ("Example 7 versions 1-4 flexible 3+\n  request\n  a int8", "outside of a request"),
        ("Example 7 versions 1-4 flexible 3+\n  request\n    a int8\n", "a request and a response"),
    ],
)
def test_headings_that_are_not_in_the_format_are_refused(table: str, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        list(entries(table))
