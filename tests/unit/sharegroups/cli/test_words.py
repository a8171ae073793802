"""Impossible input and foreign names are reported plainly, and have no effect on the terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kip932.printable import printable, printable_json
from sharegroups.cli import output
from sharegroups.cli.columns import TABLES
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import produce
from tests.unit.sharegroups.cli.conftest import sharegroups

BINARY = bytes(range(256))
ESCAPES = "a\x1b[31mb\x07\x9b2Jc\u202ed"


@pytest.mark.rule("CT-81")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("consume", "t", "--group", ""), "'--group': it is empty"),
        (("consume", "t", "--group", " "), "'--group': it is empty"),
        (("consume", ""), "it is empty"),
        (("consume", "--topic", ""), "'--topic': it is empty"),
        (("produce", ""), "it is empty"),
        (("produce", "t", "--partition", "-1"), "-1 is not in the range x>=0"),
        (("produce", "t", "--key-separator", ""), "'--key-separator': it is empty"),
        (("produce", "t", "--header", "=x"), "'=x' is not NAME=VALUE"),
        (("topics", "create", ""), "it is empty"),
        (("topics", "create", "new", "--partitions", "-1"), "-1 is not in the range x>=1"),
        (("topics", "create", "new", "--partitions", "0"), "0 is not in the range x>=1"),
        (("topics", "alter", "t", "--partitions", "-1"), "-1 is not in the range x>=1"),
        (("topics", "delete", ""), "it is empty"),
        (("groups", "describe", "--group", ""), "'--group': it is empty"),
        (("up", "--port", "-1"), "-1 is not in the range 0<=x<=65535"),
    ],
)
def test_names_and_numbers_that_cannot_be_are_refused(fake: FakeCluster, words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert set(json.loads(sharegroups("topics", "list", "--output", "json").stdout)) == {"t"}


@pytest.mark.rule("CT-81")
def test_a_topic_that_was_there_is_not_said_to_be_created(fake: FakeCluster) -> None:
    result = sharegroups("topics", "create", "t", "new", "--if-not-exists", "--partitions", "3")
    assert (result.exit_code, result.stdout) == (0, "Created topic new.\nThere was already topic t.\n")
    described = json.loads(sharegroups("topics", "describe", "t", "--output", "json").stdout)
    assert len(described[0]["partitions"]) == 2


@pytest.mark.rule("CT-81")
def test_errors_go_to_standard_error(fake: FakeCluster) -> None:
    result = sharegroups("groups", "describe", "--group", "nope")
    assert (result.exit_code, result.stdout) == (1, "")
    said = "Error: Executing share group command failed due to Group nope not found."
    assert result.stderr == f"{said} All groups: sharegroups groups list\n"


@pytest.mark.rule("CT-81")
def test_a_bad_line_is_named_by_its_number(fake: FakeCluster) -> None:
    result = sharegroups("produce", "t", "--key-separator", ":", stdin="a:1\nb:2\nc\n")
    assert result.exit_code == 1
    assert "line 3 of the input: b'c' has no key separator ':'" in result.stderr
    result = sharegroups("produce", "t", "--partition", "7", stdin="a\n")
    assert result.exit_code == 1
    assert "line 1 of the input: " in result.stderr


@pytest.mark.rule("CT-82")
def test_bytes_that_are_no_text_leave_as_they_came(fake: FakeCluster) -> None:
    produce(fake, 2, value=BINARY)
    result = sharegroups("consume", "--topic", "t", "--group", "g", "--max-messages", "2")
    assert (result.exit_code, result.stdout_bytes) == (0, BINARY + b"0\n" + BINARY + b"1\n")
    assert fake.states("t") == {0: "acknowledged", 1: "acknowledged"}


@pytest.mark.rule("CT-82")
def test_a_terminal_is_shown_no_control_character() -> None:
    """Reads, through a pseudo-terminal, what the formatter writes."""
    program = (
        "import sys, click\n"
        "from sharegroups.cli.formatting import Formatter\n"
        "from sharegroups.cli.output import print_names, print_stderr, print_table\n"
        f"evil = {ESCAPES!r}\n"
        "show = Formatter({})\n"
        "print(show._show(evil), show._show(evil.encode() + b'\\xff'), show._show('a\\tb'))\n"
        "print_names([evil])\n"
        "print_table(('GROUP',), [(evil,)], (15,))\n"
        "print_stderr('Error: ' + evil)\n"
    )
    leader, follower = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdout=follower, stderr=follower) as process:
        os.close(follower)
        seen = b""
        try:
            while part := os.read(leader, 65_536):
                seen += part
        except OSError:  # a terminal reports in this way that its writers are gone
            pass
        finally:
            os.close(leader)
    assert process.returncode == 0, seen
    text = seen.decode().replace("\r\n", "\n").replace("\t", "")
    assert printable(text, keep="\n") == text
    assert text.count(r"a\x1b[31mb\x07\x9b2Jc\u202ed") == 5
    assert r"\xff" in text


@pytest.mark.rule("CT-82")
def test_a_name_with_a_line_break_makes_no_second_line_of_an_error(fake: FakeCluster) -> None:
    for words in (("explain", "--topic", "t:0", "--offset", "1"), ("describe",), ("delete",)):
        result = sharegroups("groups", *words, "--group", "a\nError: all is lost")
        assert result.exit_code == 1
        assert r"a\nError: all is lost" in result.stderr
        assert "\nError: all" not in result.stderr


def test_a_command_that_is_recommended_quotes_a_name_with_blanks(fake: FakeCluster) -> None:
    fake.add_member("m1", "my group")
    result = sharegroups("groups", "delete", "--group", "my group")
    assert "sharegroups groups describe --group 'my group' --members" in result.stderr


@pytest.mark.rule("CT-82")
def test_a_program_gets_names_escaped_and_in_json_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_names([ESCAPES, "two\nlines"])
    assert capsys.readouterr().out == printable(ESCAPES) + "\n" + r"two\nlines" + "\n"
    output.print_json([ESCAPES])
    text = capsys.readouterr().out
    assert json.loads(text) == [ESCAPES]
    assert printable(text, keep="\n") == text
    assert json.loads(printable_json(json.dumps({"a": ESCAPES}, ensure_ascii=False))) == {"a": ESCAPES}


def test_text_of_people_stays_as_it_is() -> None:
    for text in ("plain", "Grüße", "日本語", "👩\u200d👩\u200d👧", "a b"):
        assert printable(text) == text


@pytest.mark.rule("CT-83")
@pytest.mark.parametrize(
    ("words", "reported"), [((), True), (("--group", "own"), False), (("--command-property", "group.id=own"), False)]
)
def test_who_names_no_group_learns_which_one_it_is(fake: FakeCluster, words: tuple[str, ...], reported: bool) -> None:
    produce(fake)
    result = sharegroups("consume", "t", "--max-messages", "1", *words)
    assert (result.exit_code, result.stdout) == (0, "v0\n")
    assert ("share group 'console-share-consumer'" in result.stderr) is reported


@pytest.mark.rule("CT-84")
@pytest.mark.parametrize(
    "words",
    [
        ("groups", "describe", "--group", "g", "--verbose"),
        ("groups", "describe", "--group", "g", "--verbose", "--members"),
        ("groups", "describe", "--group", "g", "--verbose", "--state"),
        ("topics", "describe", "t"),
    ],
)
def test_every_column_is_explained_where_it_is_asked_for(fake: FakeCluster, words: tuple[str, ...]) -> None:
    fake.add_member("m")
    header = next(line for line in sharegroups(*words).stdout.splitlines() if line.startswith(("GROUP", "TOPIC")))
    named = {word for word in re.split(r"  +| (?=\S+-|#)", header) if word}
    reported = CliRunner().invoke(main, [*words[:2], "--help"]).stdout
    plain = {"GROUP", "TOPIC"} | ({"PARTITION"} if words[0] == "groups" else set())
    assert {column for column in named - plain if column not in reported} == set()
    assert len(named - plain) >= 3
    reference = (Path(__file__).parents[4] / "docs" / "reference" / "columns.md").read_text()
    assert {column for column in named - plain if column not in reference} == set()
    reported = " ".join(reported.split())
    tables = [table for command, table in TABLES.items() if command.startswith(" ".join(["sharegroups", *words[:2]]))]
    meanings = {name: meaning for table in tables for name, meaning in table.items()}
    for column in named - plain:
        (sentence,) = {meaning for names, meaning in meanings.items() if column in names.split(", ")}
        assert sentence in reported
        assert f"| {sentence} |" in reference
