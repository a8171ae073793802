"""All commands about groups soon report that no node responds, and what may have been done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sharegroups.admin import Admin
from sharegroups.cli import clients, reaching
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

RESET = ("--group", "g", "--topic", "t", "--to-latest", "--execute")


@pytest.mark.rule("CT-28", "CT-29", "CT-90")
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "--state"),
        ("describe", "--group", "g"),
        ("delete", "--group", "g"),
        ("delete-offsets", "--group", "g", "--topic", "t"),
        ("reset-offsets", *RESET),
    ],
)
def test_a_cluster_that_is_not_there_is_reported_within_seconds(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    assert reaching.REACH_MS < 5_000
    monkeypatch.setattr(reaching, "REACH_MS", 100)
    fake.network.stop("node0:9000")
    result = sharegroups("groups", *words, "--timeout", "60000")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "Error: Executing share group command failed due to Metadata was not answered within 0.1 s"
    )
    assert "Is the cluster up (`sharegroups up`), and is --bootstrap-server right?" in result.stderr


EVERY = [
    ("list",),
    ("describe", "--group", "g"),
    ("delete", "--group", "g"),
    ("delete-offsets", "--group", "g", "--topic", "t"),
    ("reset-offsets", *RESET),
    ("explain", "--group", "g", "--topic", "t:0", "--offset", "0"),
]


@pytest.mark.rule("CT-2")
@pytest.mark.parametrize("words", EVERY)
def test_the_file_has_settings_of_the_admin_client_and_the_command_line_wins(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    seen: list[Mapping[str, Any]] = []

    def open_client(kind: Any, settings: Mapping[str, Any]) -> Any:
        seen.append(settings)
        return kind(settings, transport=fake.transport())

    monkeypatch.setattr(clients, "open_client", open_client)
    file = tmp_path / "admin.properties"
    file.write_text("# who asks\n\nclient.id = ops\nrequest.timeout.ms=7000\nbootstrap.servers=node0:9000,b:1\n")
    for given, servers in ((("--bootstrap-server", "node0:9000"), "node0:9000"), ((), "node0:9000,b:1")):
        seen.clear()
        CliRunner().invoke(main, ["groups", *words, *given, "--command-config", str(file)])
        assert seen
        for settings in seen:
            found = settings["client.id"], settings["request.timeout.ms"], settings["bootstrap.servers"]
            assert found == ("ops", "7000", servers)


@pytest.mark.rule("CT-2")
def test_what_is_wrong_in_the_file_is_refused_by_name(fake: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "admin.properties"
    for text, said in (
        ("client.idd=ops", "client.idd"),
        ("request.timeout.ms=soon", "request.timeout.ms"),
        ("client.id", "'client.id' is not name=value"),
    ):
        file.write_text(text)
        result = sharegroups("groups", "list", "--command-config", str(file))
        assert (result.exit_code, result.stdout) == (1, "")
        assert said in result.stderr
    missing = sharegroups("groups", "list", "--command-config", str(tmp_path / "none"))
    assert missing.exit_code == 1
    assert "does not exist" in missing.stderr


@pytest.mark.rule("CT-14")
def test_help_and_the_version_are_no_errors(fake: FakeCluster) -> None:
    for words in (("--help",), ("--describe", "--help"), ("describe", "-h")):
        result = CliRunner().invoke(main, ["groups", *words])
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.startswith("Usage: ")
    for words in (("groups", "--version"), ("--version",)):
        result = CliRunner().invoke(main, words, prog_name="sharegroups")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.startswith("sharegroups, version ")


@pytest.mark.rule("CT-90")
def test_a_typo_is_reported_rather_than_what_it_causes(fake: FakeCluster, tmp_path: Path) -> None:
    fake.network.stop("node0:9000")
    (tmp_path / "client.properties").write_text("security.protocl=SSL\n")
    said = sharegroups("groups", "list", "--command-config", str(tmp_path / "client.properties")).stderr
    assert "unknown setting 'security.protocl'. Did you mean 'security.protocol'?" in said


@pytest.mark.rule("CT-10", "CT-90")
def test_a_shorter_timeout_of_a_call_holds_for_the_first_question_too(fake: FakeCluster) -> None:
    fake.network.stop("node0:9000")
    assert "was not answered within 0.1 s" in sharegroups("groups", "list", "--timeout", "100").stderr


@pytest.mark.rule("CT-10")
@pytest.mark.parametrize("text", ["abc", "0", "-5"])
def test_a_timeout_that_cannot_be_is_refused(fake: FakeCluster, text: str) -> None:
    result = sharegroups("groups", "list", "--timeout", text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "'--timeout'" in result.stderr


@pytest.mark.rule("CT-80")
@pytest.mark.parametrize(
    ("call", "words", "said"),
    [
        ("delete_share_groups", ("delete", "--group", "g"), "These groups may be deleted: g."),
        ("delete_share_group_offsets", ("delete-offsets", "--group", "g", "--topic", "t"), "may have forgotten them."),
        ("alter_share_group_offsets", ("reset-offsets", *RESET), "The offsets may be set, or be set yet."),
    ],
)
def test_after_a_signal_it_is_said_what_may_have_been_done(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, call: str, words: tuple[str, ...], said: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Admin, call, interrupted)
    result = sharegroups("groups", *words)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.startswith("Interrupted. ")
    assert said in result.stderr
    assert "See: sharegroups groups " in result.stderr


@pytest.mark.rule("CT-9", "CT-15", "CT-20", "CT-21", "CT-22", "CT-23c", "CT-23e", "CT-23j", "CT-28", "CT-29", "CT-4")
def test_the_transcript_of_looking(fake: FakeCluster) -> None:
    fake.add_member("m1", "busy")
    check(
        "groups-list-describe",
        [
            "groups list",
            "groups list --state",
            "groups --list --state stable --output json",
            "groups list --state Dead",
            "groups list --state Empty,Assigning",
            "groups describe --group busy --members --verbose",
            "groups describe --all-groups --state",
            "groups describe --group g --members",
            "groups describe --group busyy --group g --group unknown",
            "groups --describe --group busyy --members",
            "groups --describe --group busyy --state --output json",
            "groups describe",
            "groups describe --group g --all-groups",
            "groups --describe --group g --members --state",
            "groups --list --group g",
            "groups --list --describe",
        ],
    )


@pytest.mark.scenario("S-101")
@pytest.mark.rule("CT-28", "CT-29")
@pytest.mark.parametrize("what", ["--offsets", "--members", "--state"])
def test_a_missing_group_hides_no_other_one(fake: FakeCluster, what: str) -> None:
    fake.groups |= {"group2": None}
    fake.add_member("m1", "g")
    fake.add_member("m2", "group2")
    result = sharegroups("groups", "describe", "--group", "g", "--group", "missing.group", "--group", "group2", what)
    assert result.exit_code == 1
    assert result.stdout.count("GROUP ") == 2, "a header for each group that is there"
    assert "Executing share group command failed due to Group missing.group not found." in result.stderr
    both = sharegroups("groups", "describe", "--all-groups", what)
    assert (both.exit_code, both.stderr) == (0, "")
    assert both.stdout == result.stdout


@pytest.mark.rule("CT-1")
@pytest.mark.parametrize("name", ["SHAREGROUPS_BOOTSTRP", "SHAREGROUPS_BOOTSTRAP_SERVERS"])
def test_a_variable_with_a_misspelt_name_is_mentioned(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("SHAREGROUPS_BOOTSTRAP", raising=False)
    monkeypatch.setenv(name, "other:9000")
    said = f"the variable {name} is not read; did you mean SHAREGROUPS_BOOTSTRAP?"
    defaulted = CliRunner().invoke(main, ["groups", "list"])
    assert f"{said} This command calls 127.0.0.1:7932" in defaulted.stderr
    assert said not in CliRunner().invoke(main, ["groups", "list", "--bootstrap-server", "node0:9000"]).stderr
    monkeypatch.setenv("SHAREGROUPS_BOOTSTRAP", "node0:9000")
    assert said not in CliRunner().invoke(main, ["groups", "list"]).stderr
