"""`sharegroups users remove`: what is removed, what is left, and the refusals."""

from __future__ import annotations

import pytest

from kip932.errors import ClusterAuthorizationFailedError, ResourceNotFoundError
from kip932.scram import Mechanism, ScramCredential
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups


@pytest.fixture
def users(fake: FakeCluster) -> FakeCluster:
    """Alice has a password for each mechanism, bob one for SCRAM-SHA-256."""
    for user, mechanism in (("alice", 1), ("alice", 2), ("bob", 1)):
        fake.passwords[user, mechanism] = ScramCredential(user, mechanism, 4_096, b"s", b"k", b"k")
    return fake


@pytest.mark.rule("CT-138")
def test_all_passwords_of_the_user_are_removed(users: FakeCluster) -> None:
    result = sharegroups("users", "remove", "alice")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Removed user alice.\n", "")
    assert set(users.passwords) == {("bob", 1)}


@pytest.mark.rule("CT-138")
def test_what_is_still_accepted_is_named(users: FakeCluster) -> None:
    result = sharegroups("users", "remove", "alice", "--mechanism", "scram-sha-256")
    assert result.stdout == "Removed the SCRAM-SHA-256 password of user alice.\n"
    assert result.stderr == "Note: the SCRAM-SHA-512 password of alice is still accepted.\n"
    assert set(users.passwords) == {("alice", Mechanism.SCRAM_SHA_512), ("bob", 1)}


@pytest.mark.rule("CT-138")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("alise", "Error: there is no user alise. Did you mean 'alice'? All users: sharegroups users list\n"),
        ("User:bob", "Error: there is no user User:bob. Did you mean 'bob'? All users: sharegroups users list\n"),
        ("zed", "Error: there is no user zed. All users: sharegroups users list\n"),
        ("bob --mechanism SCRAM-SHA-512", "Error: user bob has no SCRAM-SHA-512 password; it has one for "
         "SCRAM-SHA-256\n"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_an_error_with_the_nearest_name(users: FakeCluster, words: str, said: str) -> None:
    result = sharegroups("users", "remove", *words.split())
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", said)
    assert len(users.passwords) == 3


@pytest.mark.rule("CT-138")
def test_a_user_that_is_gone_meanwhile_is_removed_and_a_refusal_is_an_error(users: FakeCluster) -> None:
    users.errors["alter_users"].append(ResourceNotFoundError.code)
    assert sharegroups("users", "remove", "bob").exit_code == 0
    users.errors["alter_users"].append(ClusterAuthorizationFailedError.code)
    result = sharegroups("users", "remove", "bob")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: user bob is not removed: CLUSTER_AUTHORIZATION_FAILED: ")


@pytest.mark.rule("CT-138")
def test_a_password_of_a_newer_version_is_listed_and_left(users: FakeCluster) -> None:
    users.passwords["zoe", 7] = ScramCredential("zoe", 7, 4_096, b"s", b"k", b"k")
    assert "zoe" in sharegroups("users", "list").stdout
    result = sharegroups("users", "remove", "zoe")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has passwords of a newer version only: mechanism 7" in result.stderr
