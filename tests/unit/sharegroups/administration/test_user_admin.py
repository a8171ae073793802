"""Users of the admin client on the fake cluster: what is sent, each user's result, nodes that do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from kip932.errors import (
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    NetworkError,
    ResourceNotFoundError,
    UnsupportedVersionError,
)
from kip932.rpc.transport import TransportStatus
from kip932.scram import Mechanism, matches, salted_password
from sharegroups import Admin as BlockingAdmin
from sharegroups import UserScramCredentialDeletion as Deletion
from sharegroups import UserScramCredentialUpsertion as Upsertion
from sharegroups.aio import Admin
from sharegroups.errors import ConfigError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.unit.sharegroups.aio.hooked import HookedTransport

from .test_acl_admin import admin

SHA_256, SHA_512 = Mechanism
CALLS = ("DescribeUserScramCredentials", "AlterUserScramCredentials")


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash at once: virtual time does not wait for threads."""

    async def at_once(work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", at_once)


@pytest.mark.rule("CL-159")
@on_fake_cluster()
async def test_passwords_are_set_listed_and_removed(fake: FakeCluster) -> None:
    """Not shown here: which node is called, what is sent of a password, and repetitions; the next tests show these."""
    async with admin(fake) as a:
        assert await a.describe_user_scram_credentials() == {}
        wanted = [Upsertion("bob", "pencil", SHA_512, 4_096), Upsertion("alice", "pencil"), Upsertion("bob", "p")]
        assert await a.alter_user_scram_credentials(wanted) == {"bob": None, "alice": None}
        everyone = {"alice": [(SHA_256, 16_384)], "bob": [(SHA_256, 16_384), (SHA_512, 4_096)]}
        assert await a.describe_user_scram_credentials() == everyone
        (found, unknown) = (await a.describe_user_scram_credentials(["bob", "carol", "bob"])).values()
        assert found == everyone["bob"]
        assert isinstance(unknown, ResourceNotFoundError)
        altering = [each for each in fake.user_requests if each.DESCRIPTOR.name.startswith("Alter")]
        assert len(altering) == 1, "all alterations are sent in one request"
        removed = await a.alter_user_scram_credentials([Deletion("bob", SHA_512), Deletion("carol")])
        assert (removed["bob"], type(removed["carol"])) == (None, ResourceNotFoundError)
        assert await a.describe_user_scram_credentials() == everyone | {"bob": [(SHA_256, 16_384)]}


@pytest.mark.rule("CL-159", "CM-189")
@on_fake_cluster()
async def test_the_password_is_normalised_and_not_sent_and_each_has_its_own_salt(fake: FakeCluster) -> None:
    async with admin(fake) as a:
        await a.alter_user_scram_credentials(
            [Upsertion("alice", "e\u0301gal", iterations=5_000), Upsertion("bob", "égal")]
        )
    (request,) = fake.user_requests
    assert b"gal" not in request.SerializeToString()
    first, second = request.upsertions
    assert (len(first.salt), len(second.salt), first.salt == second.salt) == (24, 24, False)
    assert matches(fake.passwords["alice", 1], salted_password(SHA_256, "égal", first.salt, 5_000))
    assert matches(fake.passwords["bob", 1], salted_password(SHA_256, "égal", second.salt, 16_384))


@pytest.mark.rule("CL-159")
@on_fake_cluster()
async def test_an_error_is_that_of_its_user_and_a_refused_list_is_an_error(fake: FakeCluster) -> None:
    async with admin(fake) as a:
        fake.errors["alter_users"].append(InvalidRequestError.code)
        altered = await a.alter_user_scram_credentials([Upsertion("alice", "p"), Upsertion("bob", "p")])
        assert (type(altered["alice"]), altered["bob"]) == (InvalidRequestError, None)
        fake.errors["describe_users"].append(ClusterAuthorizationFailedError.code)
        with pytest.raises(ClusterAuthorizationFailedError):
            await a.describe_user_scram_credentials()
        fake.errors["describe_users"].append(15)  # COORDINATOR_NOT_AVAILABLE
        assert list(await a.describe_user_scram_credentials()) == ["bob"]
        assert await a.describe_user_scram_credentials([]) == await a.alter_user_scram_credentials([]) == {}


@pytest.mark.rule("CL-159")
@on_fake_cluster(nodes=2)
async def test_any_node_is_called_and_a_request_without_a_response_is_repeated(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    async with admin(fake, transport) as a:
        for method in CALLS:
            transport.instead[method].append(TransportStatus.UNAVAILABLE)
        assert await a.alter_user_scram_credentials([Upsertion("alice", "p")]) == {"alice": None}
        assert await a.describe_user_scram_credentials() == {"alice": [(SHA_256, 16_384)]}
    for method in CALLS:
        assert len({call.address for call in transport.calls(method)}) == 2
    first, second = (call.request for call in transport.calls("AlterUserScramCredentials"))
    assert first == second, "the retry must set the same password"


@pytest.mark.rule("CL-159")
@on_fake_cluster()
async def test_a_response_about_other_users_is_an_error_and_a_node_without_these_calls_is_named(
    fake: FakeCluster,
) -> None:
    transport = HookedTransport(fake)

    def other(answer: Any) -> None:
        answer.results[0].user = "mallory"

    for method in CALLS:
        transport.instead[method].append(other)
    async with admin(fake, transport) as a:
        with pytest.raises(NetworkError, match="alter_user_scram_credentials has results for 1 users, other ones"):
            await a.alter_user_scram_credentials([Upsertion("alice", "p")])
        with pytest.raises(NetworkError, match="describe_user_scram_credentials has results for 1 users, other ones"):
            await a.describe_user_scram_credentials(["alice"])
        transport.instead["DescribeUserScramCredentials"].append(TransportStatus.UNIMPLEMENTED)
        with pytest.raises(UnsupportedVersionError, match="node0:9000"):
            await a.describe_user_scram_credentials()


@pytest.mark.rule("CL-161")
@pytest.mark.parametrize("named", [False, True], ids=["bootstrap server", "named by a node"])
@on_fake_cluster()
async def test_a_salted_password_goes_to_other_machines_with_tls_or_consent_only(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setattr("sharegroups.aio.admin.transport_for", lambda config: fake.transport())
    at = {"bootstrap.servers": fake.bootstrap}

    async def add(**more: Any) -> None:
        async with Admin(at | {name.replace("_", "."): value for name, value in more.items()}) as a:
            if named:
                await a._cluster.fetch_metadata([])
                a._cluster._bootstrap = ["127.0.0.1:1"]
            assert await a.alter_user_scram_credentials([Upsertion("alice", "p", iterations=4_096)]) == {"alice": None}

    with pytest.raises(ConfigError, match="a salted password would go to node0:9000 without TLS"):
        await add()
    assert fake.user_requests == []
    await add(sasl_oauthbearer_allow_plaintext=True)
    await add(security_protocol="SSL")
    async with Admin(at) as a:
        assert list(await a.describe_user_scram_credentials()) == ["alice"]
        assert await a.alter_user_scram_credentials([Deletion("alice")]) == {"alice": None}


@pytest.mark.rule("CL-159", "CL-89")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("alice", r"alter_user_scram_credentials needs a list of UserScramCredentialUpsertion, found 'alice' \(str\). "
         r"Write alter_user_scram_credentials\(\[UserScramCredentialUpsertion"),
        (["alice"], r"found 'alice' \(str\) in it. Write"),
        ([Upsertion("User:alice", "secret")], "has a colon, .*; write alice"),
        ([Upsertion("alice", "secret\x07")], "has a character that passwords may not have"),
        ([Upsertion("alice", "secret", iterations=4_095)], "the number of iterations is 4095; expected 4096 to 16384"),
        ([Upsertion("alice", b"secret")], "password is a bytes; expected text"),  # type: ignore[arg-type]
        ([Upsertion(cast(Any, 7), "secret")], r"alter_user_scram_credentials: UserScramCredentialUpsertion.user is 7 "
         r"\(int\); expected text. Write '7'"),
        ([Upsertion("alice", "secret", iterations=cast(Any, "5000"))], r"iterations is '5000' \(str\); expected a "
         "whole number of 32 bits. Write 5000"),
        ([Deletion("alice", 3)], r"mechanism is 3 \(int\); expected Mechanism.SCRAM_SHA_256 or"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
@on_fake_cluster()
async def test_what_cannot_be_is_refused_before_anything_is_sent_and_no_password_is_shown(
    fake: FakeCluster, given: Any, said: str
) -> None:
    """The error does not show the value of a password of a wrong type, as CL-89 otherwise requires: it is a secret."""
    async with admin(fake) as a:
        with pytest.raises(ValueError, match=said) as caught:
            await a.alter_user_scram_credentials(given)
        with pytest.raises(
            ValueError, match=r"describe_user_scram_credentials needs a list of names, found 'alice' \("
        ):
            await a.describe_user_scram_credentials("alice")
    assert str(caught.value).startswith("alter_user_scram_credentials")
    assert "secret" not in str(caught.value)
    assert fake.user_requests == []


@pytest.mark.rule("CL-159")
def test_no_password_is_in_the_text_of_a_value() -> None:
    assert "secret" not in repr(Upsertion("alice", "secret"))


@pytest.mark.rule("CL-45", "CL-159")
def test_the_blocking_client_does_the_same() -> None:
    fake = FakeCluster()
    with BlockingAdmin({"bootstrap.servers": "node0:9000"}, transport=fake.transport()) as a:
        assert a.alter_user_scram_credentials([Upsertion("alice", "p", iterations=4_096)]) == {"alice": None}
        assert a.describe_user_scram_credentials() == {"alice": [(SHA_256, 4_096)]}
