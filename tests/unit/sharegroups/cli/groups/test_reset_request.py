"""The meaning of `reset-offsets` command lines; invalid ones are refused before any request."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sharegroups.cli.groups.reset_request import SCOPES, TARGETS, timestamp_of, topics_of
from sharegroups.cli.main import main
from sharegroups.cli.output import UsageFailure

MODE, SCOPE, TARGET = ("--execute",), ("--topic", "t"), ("--to-earliest",)
GROUP = ("--group", "g")
ALL_TARGETS = "takes one of [from-file], [to-current], [to-datetime], [to-earliest], [to-latest], [to-offset]"


def excluding(one: str, other: str) -> str:
    return f'Option "[{one}]" can\'t be used with option "[{other}]"'


def refused(*words: str) -> str:
    """The error message for an invalid command line."""
    result = CliRunner().invoke(main, ["groups", "reset-offsets", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


@pytest.mark.scenario("S-105")
@pytest.mark.rule("CT-7", "CT-11", "CT-12", "CT-18", "CT-19")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*GROUP, *SCOPE, *TARGET), "needs --dry-run, which shows what it would set, or --execute"),
        ((*GROUP, *SCOPE, *TARGET, "--dry-run", "--execute"), excluding("dry-run", "execute")),
        ((*MODE, *SCOPE, *TARGET), "takes the option [group] once"),
        ((*GROUP, "--group", "h", *MODE, *SCOPE, *TARGET), "takes the option [group] once, found g, h"),
        ((*GROUP, *MODE, *TARGET), "takes one of [all-topics], [from-file], [topic]"),
        ((*GROUP, *MODE, *SCOPE, "--all-topics", *TARGET), excluding("all-topics", "topic")),
        ((*GROUP, *MODE, *SCOPE), ALL_TARGETS),
        ((*GROUP, *MODE, *SCOPE, *TARGET, "--to-offset", "0"), excluding("to-earliest", "to-offset")),
        ((*GROUP, *MODE, *SCOPE, *TARGET, "--to-latest"), excluding("to-earliest", "to-latest")),
        ((*GROUP, *MODE, *SCOPE, "--from-file", __file__), excluding("from-file", "topic")),
        ((*GROUP, *MODE, "--from-file", __file__, "--to-current"), excluding("from-file", "to-current")),
        ((*GROUP, *MODE, *SCOPE, *TARGET, "--export", "--output", "json"), 'Option "[export]" can\'t be used with'),
        ((*GROUP, *MODE, *SCOPE, "--to-offset", "-1"), "-1 is not in the range"),
        ((*GROUP, *MODE, "--from-file", "/nowhere.csv"), "'/nowhere.csv' does not exist"),
    ],
)
def test_a_line_that_means_nothing_is_refused_by_the_names_of_its_options(words: tuple[str, ...], said: str) -> None:
    reported = refused(*words)
    assert said in reported
    assert "Usage:" in reported


@pytest.mark.rule("CT-12", "CT-18")
def test_there_are_three_scopes_and_six_targets_and_a_file_is_both() -> None:
    assert (len(SCOPES), len(TARGETS)) == (3, 6)
    assert set(SCOPES) & set(TARGETS) == {"from-file"}


@pytest.mark.rule("CT-6")
@pytest.mark.parametrize(
    ("texts", "meant"),
    [
        (("t",), {"t": None}),
        (("t:1, 0", "u"), {"t": (0, 1), "u": None}),
        (("t:0", "t:2"), {"t": (0, 2)}),
        (("t:0", "t"), {"t": None}),
        (("t", "t:0"), {"t": None}),
    ],
)
def test_topics_are_named_whole_or_by_their_partitions(
    texts: tuple[str, ...], meant: dict[str, tuple[int, ...] | None]
) -> None:
    assert topics_of(texts) == meant


@pytest.mark.rule("CT-6")
@pytest.mark.parametrize("text", ["t:x", "t:", "t:0,", "t:-1", "t:2147483648", "t:0,x"])
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(UsageFailure, match=f"Invalid partition '.*' specified in topic arg '{text}'"):
        topics_of([text])


@pytest.mark.rule("CT-25")
@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("2020-01-01T00:00:00.000", 1_577_836_800_000),
        ("2020-01-01T00:00:00.123Z", 1_577_836_800_123),
        ("2020-01-01T02:00:00.000+02", 1_577_836_800_000),
        ("2019-12-31T18:30:00.000-05:30", 1_577_836_800_000),
    ],
)
def test_a_date_and_time_is_utc_unless_it_says_otherwise(text: str, milliseconds: int) -> None:
    assert timestamp_of(text) == milliseconds


@pytest.mark.rule("CT-25")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2020-01-01T00:00:00", "expected YYYY-MM-DDThh:mm:ss.sss"),
        ("2020-01-01", "expected YYYY-MM-DDThh:mm:ss.sss"),
        ("hello", "expected YYYY-MM-DDThh:mm:ss.sss"),
        ("2020-01-01 00:00:00.000", "expected YYYY-MM-DDThh:mm:ss.sss"),
        ("2020-01-01T00:00:00.000+0200", "expected YYYY-MM-DDThh:mm:ss.sss"),
        ("2020-13-41T00:00:00.000", "is not a date and time"),
        ("1969-12-31T23:59:59.999", "is before 1970"),
    ],
)
def test_what_is_no_date_and_time_is_refused_with_the_form(text: str, said: str) -> None:
    with pytest.raises(UsageFailure, match=said):
        timestamp_of(text)
