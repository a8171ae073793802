"""`sharegroups users add`: where the password comes from, what is set, and the refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kip932.errors import ClusterAuthorizationFailedError
from kip932.scram import Mechanism, matches, salted_password
from sharegroups.cli.users import add
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

QUICK = ("--iterations", "4096")


def accepted(fake: FakeCluster, user: str, password: str, mechanism: Mechanism = Mechanism.SCRAM_SHA_256) -> bool:
    kept = fake.passwords[user, mechanism]
    return matches(kept, salted_password(mechanism, password, kept.salt, kept.iterations))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input is a terminal."""
    monkeypatch.setattr(add, "can_ask", lambda: True)


@pytest.fixture
def two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a file with two lines, named FILE."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("one\ntwo\n")


@pytest.mark.rule("CT-138")
def test_the_transcript(fake: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text("pencil\n")
    check(
        "users",
        [
            "users list",
            "users add alice --password-file password",
            "users add alice --password-file password --mechanism SCRAM-SHA-512 --iterations 5000",
            "users add alice --password-file password",
            "users add bob --password-file password --output json",
            "users list",
            "users list --output json",
            "users remove alise",
            "users remove bob --mechanism scram-sha-512",
            "users remove alice --mechanism SCRAM-SHA-512",
            "users remove alice",
            "users remove bob --output json",
        ],
    )


@pytest.mark.rule("CT-138")
def test_the_password_is_asked_for_twice_and_not_shown(fake: FakeCluster, terminal: None) -> None:
    result = sharegroups("users", "add", "alice", *QUICK, stdin="pencil\npencil\n")
    assert result.exit_code == 0, result.output
    assert result.stdout == "Added user alice (SCRAM-SHA-256).\n"
    assert "Password for user alice: " in result.stderr
    assert "pencil" not in result.output
    assert accepted(fake, "alice", "pencil")
    result = sharegroups("users", "add", "alice", *QUICK, stdin="rubber\nrubbish\nrubber\nrubber\n")
    assert "New password for user alice: " in result.stderr
    assert result.stdout == "Changed the password of user alice (SCRAM-SHA-256).\n"
    assert accepted(fake, "alice", "rubber")
    result = sharegroups("users", "add", "alice", *QUICK, stdin="rub\x07ber\nstring\nstring\n")
    assert "has a character that passwords may not have" in result.stderr
    assert accepted(fake, "alice", "string")


@pytest.mark.rule("CT-138")
@pytest.mark.parametrize("written", ["pencil", "pencil\n", "pencil\r\n"])
def test_the_password_is_the_only_line_of_a_file_or_of_standard_input(
    fake: FakeCluster, tmp_path: Path, written: str
) -> None:
    (tmp_path / "p").write_bytes(written.encode())
    assert sharegroups("users", "add", "a", *QUICK, "--password-file", str(tmp_path / "p")).exit_code == 0
    assert sharegroups("users", "add", "b", *QUICK, "--password-stdin", stdin=written).exit_code == 0
    assert accepted(fake, "a", "pencil")
    assert accepted(fake, "b", "pencil")


@pytest.mark.rule("CT-138")
def test_a_change_is_for_all_that_the_user_has_unless_mechanisms_are_named(fake: FakeCluster) -> None:
    both = ("--mechanism", "scram-sha-512", "--mechanism", "SCRAM-SHA-256")
    result = sharegroups("users", "add", "alice", *QUICK, *both, "--password-stdin", stdin="first")
    assert result.stdout == "Added user alice (SCRAM-SHA-512 and SCRAM-SHA-256).\n"
    result = sharegroups("users", "add", "alice", *QUICK, "--password-stdin", stdin="second")
    assert result.stdout == "Changed the password of user alice (SCRAM-SHA-256 and SCRAM-SHA-512).\n"
    assert result.stderr == ""
    assert all(accepted(fake, "alice", "second", each) for each in Mechanism)
    result = sharegroups("users", "add", "alice", *QUICK, *both[:2], "--password-stdin", stdin="third")
    assert result.stderr == (
        "Note: the SCRAM-SHA-256 password of alice is as before, and still accepted. To remove it: sharegroups users "
        "remove alice --mechanism SCRAM-SHA-256\n"
    )


@pytest.mark.rule("CT-138")
@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        ("alice", "", "there is no terminal to ask for the password on; give --password-file or --password-stdin"),
        ("alice --password-stdin --password-file FILE", "", "are both given; give one"),
        ("alice --password-stdin", "", "standard input: the password is empty"),
        ("alice --password-stdin", "one\ntwo\n", "standard input has several lines; expected one, the password"),
        ("alice --password-stdin", "tab\there", "standard input: the password has a character that"),
        ("alice --password-stdin", "x" * 6_000, "4099 characters; at most 1024"),
        ("alice --password-file FILE", "", "FILE has several lines"),
        ("alice --password-file none", "", "'none' does not exist"),
        ("alice --password secret", "", "No such option '--password'"),
        ("User:alice --password-stdin", "p", "has a colon, after which the password begins"),
        ("* --password-stdin", "p", "no user can be named '*'"),
        ("alice --password-stdin --iterations 100", "p", "4096<=x<=16384"),
        ("alice --password-stdin --mechanism PLAIN", "p", "'PLAIN' is not one of 'scram-sha-256', 'scram-sha-512'"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_before_any_request(
    fake: FakeCluster, two_lines: None, words: str, stdin: str, said: str
) -> None:
    result = sharegroups("users", "add", *words.split(), stdin=stdin)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert (fake.user_requests, fake.metadata_requests) == ([], 0)


@pytest.mark.rule("CT-138")
def test_a_refusal_is_an_error(fake: FakeCluster) -> None:
    fake.errors["describe_users"].append(ClusterAuthorizationFailedError.code)
    result = sharegroups("users", "add", "alice", *QUICK, "--password-stdin", stdin="pencil")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: Adding a user failed: ")
    fake.errors["alter_users"].append(ClusterAuthorizationFailedError.code)
    result = sharegroups("users", "add", "alice", *QUICK, "--password-stdin", "--output", "json", stdin="pencil")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: user alice is not added: CLUSTER_AUTHORIZATION_FAILED: ")


@pytest.mark.rule("CT-138")
def test_a_document_has_no_password(fake: FakeCluster) -> None:
    result = sharegroups("users", "add", "alice", *QUICK, "--password-stdin", "--output", "json", stdin="pencil")
    expected = {"user": "alice", "added": True, "mechanisms": ["SCRAM-SHA-256"], "iterations": 4_096}
    assert json.loads(result.stdout) == expected
