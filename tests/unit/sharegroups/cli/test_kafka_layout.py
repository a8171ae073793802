"""Kafka's syntax of the commands about groups: the action as an option, in any position."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce
from tests.unit.sharegroups.cli.conftest import sharegroups

AT = ("--bootstrap-server", "node0:9000")


@pytest.mark.rule("CT-1", "CT-3", "CT-4", "CT-5", "CT-8", "CT-9")
@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [
        (("--list", "--output", "json"), ("list", "--output", "json")),
        (
            ("--state", "stable,Empty", "--list", "--output", "json"),
            ("list", "--state", "stable,Empty", "--output", "json"),
        ),
        (("--describe", "--group", "g"), ("describe", "--group", "g")),
        (("--group", "g", "--verbose", "--describe"), ("describe", "--group", "g", "--verbose")),
        (("--describe", "--all-groups", "--state"), ("describe", "--all-groups", "--state")),
        (("--describe", "--group", "g", "--members"), ("describe", "--group", "g", "--members")),
        (
            ("--reset-offsets", "--group", "g", "--topic", "t:0", "--to-earliest", "--dry-run", "--timeout", "5000"),
            ("reset-offsets", "--group", "g", "--topic", "t:0", "--to-earliest", "--dry-run"),
        ),
        (("--topic", "x", "--delete-offsets", "--group", "g"), ("delete-offsets", "--group", "g", "--topic", "x")),
        (("--delete", "--group", "nope"), ("delete", "--group", "nope")),
    ],
)
def test_an_action_is_an_option_or_a_command(fake: FakeCluster, kafkas: tuple[str, ...], ours: tuple[str, ...]) -> None:
    produce(fake, 5)
    consumed(fake, "t", 0, 2)
    one, other = CliRunner().invoke(main, ["groups", *AT, *kafkas]), sharegroups("groups", *ours)
    assert (one.exit_code, one.stdout, one.stderr) == (other.exit_code, other.stdout, other.stderr)
    assert one.stdout or one.stderr


@pytest.mark.rule("CT-3")
@pytest.mark.parametrize("words", [(), ("--group", "g"), ("--list", "--describe"), ("--delete", "--delete-offsets")])
def test_there_is_exactly_one_action(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["groups", *AT, *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets."
        in result.stderr
    )
    assert "Usage:" in result.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("list",), "The command comes first, then its options: sharegroups groups list --option …"),
        (("explain", "--group", "g"), "The command comes first, then its options: sharegroups groups explain"),
        (("--explain", "--group", "g"), "The command comes first, then its options: sharegroups groups explain"),
        (("--descrbe", "--group", "g"), "Did you mean '--describe'?"),
        (("--group=g",), "--delete-offsets.\n"),
    ],
)
def test_a_line_without_an_action_is_answered_with_what_it_may_have_meant(words: tuple[str, ...], hint: str) -> None:
    result = CliRunner().invoke(main, ["groups", *AT, *words], prog_name="sharegroups")
    assert (result.exit_code, result.stdout) == (1, "")
    assert hint in result.stderr


@pytest.mark.rule("CT-4")
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("describe", "workers"), "Did you mean --group workers?"),
        (("describe", "--group", "a", "workers"), "Did you mean --group workers?"),
        (("--describe", "my workers"), "Did you mean --group 'my workers'?"),
        (("delete", "a", "b"), "Got unexpected extra arguments (a b). Did you mean --group a --group b?"),
        (("explain", "workers", "--topic", "t:0"), "Did you mean --group workers?"),
        (("explain", "--group", "workers", "t:0"), "Did you mean --topic t:0?"),
        (("reset-offsets", "workers", "--all-topics"), "Did you mean --group workers?"),
        (("delete-offsets", "--group", "workers", "t", "u"), "Did you mean --topic t --topic u?"),
        (("explain", "--group", "workers", "--topic", "t:0", "--offset", "1", "2"), "extra argument (2).\n"),
        (("reset-offsets", "--group", "workers", "--topic", "t", "u"), "Did you mean --topic u?"),
        (("list", "workers"), "extra argument (workers)"),
    ],
)
def test_a_name_without_its_option_is_answered_with_the_option(words: tuple[str, ...], meant: str) -> None:
    result = CliRunner().invoke(main, ["groups", *words], prog_name="sharegroups")
    assert (result.exit_code, result.stdout) == (1, "")
    assert meant in result.stderr
    assert f"Usage: sharegroups groups {words[0].removeprefix('--')} [OPTIONS]" in result.stderr
    helped = CliRunner().invoke(main, ["groups", *words, "--help"])
    assert helped.exit_code == 0, "help is help"


@pytest.mark.rule("CT-4", "CT-5", "CT-6", "CT-7", "CT-8", "CT-16", "CT-19")
@pytest.mark.parametrize(
    ("action", "option"),
    [
        ("list", "group"),
        ("list", "all-groups"),
        ("list", "members"),
        ("list", "verbose"),
        ("describe", "topic"),
        ("describe", "execute"),
        ("delete", "topic"),
        ("delete", "all-topics"),
        ("delete", "execute"),
        ("delete-offsets", "all-groups"),
        ("delete-offsets", "all-topics"),
        ("reset-offsets", "all-groups"),
        ("reset-offsets", "state"),
    ],
)
def test_an_option_of_another_action_is_refused_by_both_names(action: str, option: str) -> None:
    result = CliRunner().invoke(main, ["groups", f"--{action}", *AT, f"--{option}=x"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert f'Option "[{option}]" can\'t be used with option "[{action}]"' in result.stderr


def test_help_is_that_of_the_action_when_there_is_one() -> None:
    assert "groups [OPTIONS] COMMAND" in CliRunner().invoke(main, ["groups", "--help"]).stdout
    assert "groups describe [OPTIONS]" in CliRunner().invoke(main, ["groups", "--describe", "--help"]).stdout
    assert "No such command 'descibe'" in CliRunner().invoke(main, ["groups", "descibe", "--list"]).stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("groups re", ["reset-offsets"]),
        ("groups --des", ["--describe"]),
        ("groups --group g --delete-", ["--delete-offsets"]),
        ("groups --describe --mem", ["--members"]),
        ("groups --list --describe --mem", []),
        ("groups reset-offsets --to-e", ["--to-earliest"]),
    ],
)
def test_the_shell_completes_both_layouts(monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]) -> None:
    monkeypatch.setenv("COMP_WORDS", f"sharegroups {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    monkeypatch.setenv("_SHAREGROUPS_COMPLETE", "bash_complete")
    result = CliRunner().invoke(main, prog_name="sharegroups", complete_var="_SHAREGROUPS_COMPLETE")
    assert (result.exit_code, result.stdout.split()) == (0, [f"plain,{word}" for word in offered])
