"""DescribeUserScramCredentials and AlterUserScramCredentials on the in-memory store: what is stored, refused, listed,
removed and logged, by one node and by two at the same time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import pytest_asyncio
import structlog.testing

from kip932.acls import Acl
from kip932.api.v1.alter_user_scram_credentials_pb2 import AlterUserScramCredentialsRequest
from kip932.api.v1.describe_user_scram_credentials_pb2 import DescribeUserScramCredentialsRequest
from kip932.records.v1.metadata_log_pb2 import MetadataRecord
from kip932.scram import Mechanism, credential, matches
from shard_runtime.cluster import metadata_log, user_admin
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.cluster.user_admin import UserAdmin
from shard_runtime.record_log.cluster_store import ClusterStore
from shard_runtime.record_log.protocol import StoreUnavailableError
from shard_runtime.rpc.access import Access, Rights
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.status import RpcFailureError
from shard_runtime.rpc.table import RPCS
from tests.support.clocks import HandClock
from tests.twin import FaultPoint, MemoryStore, Stage, memory_cluster_store

pytestmark = pytest.mark.asyncio

CALLER = CallContext("10.0.0.7", "c1", lambda: None, principal="User:root", client_id="admin-1")
UserName = DescribeUserScramCredentialsRequest.UserName
SALT = b"0123456789abcdef"
SECRETS = (SALT, b"p" * 32, b"q" * 32, b"p" * 64)


def password(name: str, mechanism: int = 1, iterations: int = 4_096, secret: bytes = b"p") -> dict[str, Any]:
    size = 64 if mechanism == 2 else 32
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": secret * size,
    }


class Node:
    """The users as one node serves them."""

    def __init__(self, log: MetadataLog) -> None:
        self.log = log
        self.admin = UserAdmin(log)
        self.caller = CALLER
        self.texts: dict[str, str] = {}

    async def alter(
        self, *upsertions: dict[str, Any], deletions: tuple[tuple[str, int], ...] = ()
    ) -> list[tuple[str, int]]:
        """Set and remove passwords; return each user with its error number."""
        request = AlterUserScramCredentialsRequest()
        for each in upsertions:
            request.upsertions.add(**each)
        for name, mechanism in deletions:
            request.deletions.add(name=name, mechanism=mechanism)
        response = await self.admin.alter_user_scram_credentials(request, self.caller)
        assert all(bool(each.error_code) == each.HasField("error_message") for each in response.results)
        self.texts = {result.user: result.error_message for result in response.results}
        return [(each.user, each.error_code) for each in response.results]

    async def described(self, *names: str) -> dict[str, int | list[tuple[int, int]]]:
        """Return each user's passwords, or its error number."""
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
        response = await self.admin.describe_user_scram_credentials(request, self.caller)
        assert not response.error_code, response.error_message
        self.texts = {each.user: each.error_message for each in response.results}
        assert not any(secret in response.SerializeToString() for secret in SECRETS)
        return {
            each.user: each.error_code or [(info.mechanism, info.iterations) for info in each.credential_infos]
            for each in response.results
        }


class World:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.memory = MemoryStore(self.clock)
        self.stores: list[ClusterStore] = []

    async def node(self, name: str = "a") -> Node:
        store = memory_cluster_store(self.memory, name, None)
        self.stores.append(store)
        await store.init_cluster("c")
        log = MetadataLog(store, self.clock, "c")
        await log.load()
        return Node(log)

    def meanwhile(self, client: str, action: Callable[[], Awaitable[object]]) -> None:
        """Run `action` once, after the node `client` has read the log for its next change and before it appends."""
        reads = 0

        async def hook(point: FaultPoint) -> None:
            nonlocal reads
            if point.client == client and point.stage is Stage.REPLY and point.has("XRANGE"):
                reads += 1
                if reads == 1:
                    await action()

        self.memory.hook = hook


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.memory.hook = None
    for store in made.stores:
        await store.close()
    await made.memory.close()


@pytest.mark.rule("CM-189")
async def test_passwords_of_a_request_become_one_version_and_are_kept_in_scram_form(world: World) -> None:
    node, other = await world.node("a"), await world.node("b")
    assert await node.alter(password("bob"), password("alice", 2), password("alice")) == [("bob", 0), ("alice", 0)]
    assert node.log.image.version == 1
    await other.log.load()
    assert other.log.image.credentials == node.log.image.credentials
    kept = other.log.image.credentials["alice", 1]
    assert kept == credential("alice", Mechanism.SCRAM_SHA_256, 4_096, SALT, b"p" * 32)
    assert matches(kept, b"p" * 32)
    assert not matches(kept, b"q" * 32)
    assert await other.described() == {"alice": [(1, 4_096), (2, 4_096)], "bob": [(1, 4_096)]}


@pytest.mark.rule("CM-189")
async def test_users_are_described_in_the_order_of_the_request_and_unknown_ones_have_errors(world: World) -> None:
    node = await world.node()
    assert await node.described() == {}
    await node.alter(password("alice"), password("bob", iterations=9_000))
    assert list((await node.described("bob", "carol", "alice", "alice")).items()) == [
        ("bob", [(1, 9_000)]), ("carol", 91), ("alice", 92),
    ]  # fmt: skip
    assert node.texts["carol"] == "there is no user 'carol'. All users: sharegroups users list"
    assert node.texts["alice"] == "the request names the user 'alice' twice"


@pytest.mark.rule("CM-189")
async def test_each_user_has_its_own_result_and_all_of_its_alterations_or_none(world: World) -> None:
    node = await world.node()
    await node.alter(password("alice"), password("gone"))
    assert await node.alter(
        password("alice", 2), password("twice"), password("twice"), password("new"), password("short") | {"salt": b""},
        password("sha1", 3), password("unset", 0), password("weak", 1, 4_095), password("slow", 1, 16_385),
        password("User:x"), password("late", 2),
        deletions=(("gone", 1), ("alice", 2), ("late", 1), ("unknown", 1)),
    ) == [
        ("gone", 0), ("alice", 92), ("late", 91), ("unknown", 91), ("twice", 92), ("new", 0), ("short", 93),
        ("sha1", 33), ("unset", 33), ("weak", 93), ("slow", 93), ("User:x", 93),
    ]  # fmt: skip
    assert set(node.log.image.credentials) == {("alice", 1), ("new", 1)}
    assert node.log.image.version == 2
    assert node.texts["twice"] == "the request alters the SCRAM-SHA-256 password of 'twice' twice"
    assert node.texts["late"] == (
        "there is no user 'late' with a SCRAM-SHA-256 password. All users: sharegroups users list"
    )
    assert node.texts["unset"] == "the mechanism is not set; expected 1 SCRAM-SHA-256 or 2 SCRAM-SHA-512"
    assert node.texts["sha1"].startswith("mechanism 3 is not known")


@pytest.mark.rule("CM-189")
async def test_a_password_can_be_changed_and_moved_to_another_mechanism_in_one_request(world: World) -> None:
    node = await world.node()
    await node.alter(password("alice"))
    before = node.log.image.credentials["alice", 1]
    assert await node.alter(password("alice", secret=b"q")) == [("alice", 0)]
    assert node.log.image.credentials["alice", 1] != before
    assert await node.alter(password("alice", 2), deletions=(("alice", 1),)) == [("alice", 0)]
    assert await node.described() == {"alice": [(2, 4_096)]}


@pytest.mark.rule("CM-189")
async def test_a_repeated_request_sets_nothing_and_logs_nothing(world: World) -> None:
    node = await world.node()
    await node.alter(password("alice"))
    with structlog.testing.capture_logs() as lines:
        assert await node.alter(password("alice")) == [("alice", 0)]
    assert (node.log.image.version, lines) == (1, [])


@pytest.mark.rule("CM-189", "CM-164")
async def test_changes_are_logged_without_secrets(world: World) -> None:
    node = await world.node()
    await node.alter(password("bob", 2))
    with structlog.testing.capture_logs() as lines:
        await node.alter(password("alice", 1, 5_000), password("*"), deletions=(("bob", 2),))
    (line,) = lines
    assert line["event"] == "users_altered"
    assert line["changed"] == (
        "removed SCRAM-SHA-512 password of bob, set SCRAM-SHA-256 password of alice, 5000 iterations"
    )
    assert (line["principal"], line["peer"], line["changes"]) == ("User:root", "10.0.0.7", 2)
    assert not any(secret.decode() in str(line) for secret in SECRETS)


@pytest.mark.rule("CM-189")
async def test_a_removal_counts_what_other_nodes_have_done_meanwhile(world: World) -> None:
    node, other = await world.node("a"), await world.node("b")
    await node.alter(password("alice"))

    async def remove() -> None:
        assert await other.alter(deletions=(("alice", 1),)) == [("alice", 0)]

    world.meanwhile("a", remove)
    assert await node.alter(password("bob"), deletions=(("alice", 1),)) == [("alice", 91), ("bob", 0)]
    assert set(node.log.image.credentials) == {("bob", 1)}


@pytest.mark.rule("CM-189")
@pytest.mark.parametrize("decided", [False, True], ids=["before it is decided", "after it is decided"])
async def test_a_store_that_does_not_confirm_makes_errors_of_what_may_be_stored(world: World, decided: bool) -> None:
    node = await world.node()
    change = node.log.change

    async def lost(decide: Callable[..., object]) -> None:
        if decided:
            await change(decide)  # type: ignore[arg-type]
        raise StoreUnavailableError("gone")

    with mock.patch.object(node.log, "change", lost), structlog.testing.capture_logs() as lines:
        assert await node.alter(password("alice"), password("*")) == [("alice", 7), ("*", 93)]
    assert node.texts["alice"] == "not confirmed by the store, it may still take effect: gone"
    assert lines == []


@pytest.mark.rule("CM-189")
async def test_a_cluster_has_a_bound_and_a_request_has_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await world.node()
    monkeypatch.setattr(user_admin, "CLUSTER_PASSWORDS_MAX", 3)
    assert await node.alter(password("a"), password("b")) == [("a", 0), ("b", 0)]
    assert await node.alter(password("c"), password("c", 2), password("d")) == [("c", 42), ("d", 0)]
    assert node.texts["c"].startswith("a cluster has at most 3 passwords of users")
    assert await node.alter(password("a", secret=b"q")) == [("a", 0)], "a change is not an addition"
    assert await node.alter(password("a", 2), deletions=(("a", 1),)) == [("a", 0)]
    assert await node.alter(password("e"), deletions=(("b", 1),)) == [("b", 0), ("e", 0)]
    for call in (
        lambda: node.alter(*[password("x")] * 1_000, deletions=(("y", 1),)),
        lambda: node.described(*["x"] * 1_001),
    ):
        with pytest.raises(RpcFailureError, match=r"1001 .*; at most 1000 in one request"):
            await call()


@pytest.mark.rule("CM-61", "CM-189")
async def test_without_the_right_nothing_is_said_about_a_user_and_nothing_is_altered(world: World) -> None:
    node = await world.node()
    await node.alter(password("alice"))
    access = Access(["User:root"])
    access.follow(frozenset({Acl(4, "kafka-cluster", 3, "User:eve", "*", 8, 3)}))
    for rpc, operation in (("DescribeUserScramCredentials", "DESCRIBE"), ("AlterUserScramCredentials", "ALTER")):
        needs = RPCS[f"/kip932.api.v1.ClusterService/{rpc}"].needs
        node.caller = replace(CALLER, principal="User:m", rights=Rights(access, "User:m", "10.0.0.7", needs))
        if operation == "ALTER":
            refused = await node.alter(password("alice"), password("*"), deletions=(("carol", 1),))
            assert refused == [("carol", 31), ("alice", 31), ("*", 31)]
            continue
        request = DescribeUserScramCredentialsRequest(users=[UserName(name="alice")])
        response = await node.admin.describe_user_scram_credentials(request, node.caller)
        assert (response.error_code, list(response.results)) == (31, [])
        assert f"may not {operation} CLUSTER" in response.error_message
    assert node.log.image.version == 1


@pytest.mark.rule("CM-20", "CM-189")
async def test_a_snapshot_keeps_users_and_is_followed_by_what_older_builds_do_not_know(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older build skips the passwords in the snapshot. It folds nothing while a later entry is unknown to it."""
    monkeypatch.setattr(metadata_log, "SNAPSHOT_EVERY", 2)
    node, other = await world.node("a"), await world.node("b")
    for name in ("alice", "bob", "carol"):
        await node.alter(password(name))
    stored = await world.stores[0].read_metadata(0, 500)
    snapshot, repeated = (MetadataRecord.FromString(each.data) for each in stored)
    assert {each.user for each in snapshot.snapshot.scram_credentials} == {"alice", "bob", "carol"}
    assert [change.WhichOneof("change") for change in repeated.changes] == ["scram_credential_set"]
    for each in (other, await world.node("c")):
        await each.log.load()
        assert each.log.image.credentials == node.log.image.credentials
        assert each.log.image.version == node.log.image.version == 5
    assert await node.alter(password("dave")) == [("dave", 0)]
    await other.log.load()
    assert ("dave", 1) in other.log.image.credentials


@pytest.mark.rule("CM-20")
async def test_a_build_that_does_not_know_all_of_a_snapshot_does_not_replace_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await world.node()
    record = MetadataRecord(change_id=b"c" * 16)
    record.snapshot.MergeFromString(b"\xa2\x06\x01x")  # a text in field 100, which no build has
    assert await world.stores[0].append_metadata(1, record.SerializeToString(), "")
    monkeypatch.setattr(metadata_log, "SNAPSHOT_EVERY", 1)
    for name in ("alice", "bob", "carol"):
        await node.alter(password(name))
    versions = [each.version for each in await world.stores[0].read_metadata(0, 500)]
    assert versions == [1, 2, 3, 4]
