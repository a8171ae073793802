"""Passwords of callers: which are accepted, how many checks run and wait, and what a check costs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kip932.errors import ThrottlingQuotaExceededError
from kip932.scram import Credentials, Mechanism, ScramCredential, credential, prepared, salted_password
from shard_runtime.rpc import passwords as module
from shard_runtime.rpc.passwords import CHECKS_MAX, WAITING_MAX, Passwords

pytestmark = pytest.mark.asyncio

SHA_256, SHA_512 = Mechanism


def kept(user: str, password: str, mechanism: Mechanism = SHA_256, iterations: int = 4_096) -> ScramCredential:
    salted = salted_password(mechanism, prepared(password), b"salt" * 4, iterations)
    return credential(user, mechanism, iterations, b"salt" * 4, salted)


def users(*credentials: ScramCredential) -> Credentials:
    return {(each.user, each.mechanism): each for each in credentials}


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    made = Passwords()
    made.follow(users(kept("someone", "else")))
    yield made
    made.close()


class Gate:
    """Stands in for the hashing: each check waits until it is let go, and then answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, accepted: bool = True) -> None:
        self.open = threading.Event()
        self.lock = threading.Lock()
        self.running = self.most = self.begun = 0
        self.accepted = accepted
        monkeypatch.setattr(module, "_is_accepted", self._check)

    def _check(self, *_: object) -> bool:
        with self.lock:
            self.begun += 1
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.open.wait(10)
        with self.lock:
            self.running -= 1
        return self.accepted

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.begun < count:  # noqa: ASYNC110 - the threads count
                await asyncio.sleep(0.001)


@pytest.mark.rule("CM-190")
async def test_a_cluster_without_users_computes_nothing_for_strangers(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    gate.open.set()
    passwords.follow({})
    assert not await passwords.check("alice", "pencil")
    assert gate.begun == 0
    passwords.follow(users(kept("bob", "pencil")))
    await passwords.check("alice", "pencil")
    assert gate.begun == 1


@pytest.mark.rule("CM-190")
async def test_a_change_of_one_user_has_no_other_password_computed_again(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    gate.open.set()
    alice = kept("alice", "pencil")
    passwords.follow(users(alice))
    assert await passwords.check("alice", "pencil")
    passwords.follow(users(alice, kept("bob", "pencil")))
    assert await passwords.check("alice", "pencil")
    assert gate.begun == 1
    gate.accepted = False
    assert not await passwords.check("alice", "Pencil")
    passwords.follow(users(kept("alice", "other"), kept("bob", "pencil")))
    assert not await passwords.check("alice", "pencil"), "a change of her password must invalidate the cached result"
    passwords.follow(users(kept("bob", "pencil")))
    assert not await passwords.check("alice", "pencil"), "so must the removal of the user"


@pytest.mark.rule("CM-190")
async def test_the_password_of_a_user_is_accepted_and_nothing_else(passwords: Passwords) -> None:
    passwords.follow(users(kept("alice", "pencil"), kept("alice", "other", SHA_512), kept("bob", "é", SHA_512, 16_384)))
    assert await passwords.check("alice", "pencil")
    assert await passwords.check("alice", "other"), "both of her passwords must be accepted"
    assert await passwords.check("bob", "e\u0301"), "passwords must be normalised"
    for name, wrong in (
        ("alice", "Pencil"), ("alice", ""), ("alice", "é"), ("bob", "pencil"), ("Alice", "pencil"), ("", "pencil"),
        ("bob", "\x07"), ("carol", "no password"), ("carol", "x" * 5_000),
    ):  # fmt: skip
        assert not await passwords.check(name, wrong), (name, wrong)


@pytest.mark.rule("CM-190")
async def test_a_text_that_cannot_be_a_password_is_not_what_stands_in_for_it(passwords: Passwords) -> None:
    passwords.follow(users(kept("alice", "no password")))
    assert await passwords.check("alice", "no password")
    assert not await passwords.check("alice", "\x07")


@pytest.mark.rule("CM-190")
async def test_without_users_nothing_is_accepted(passwords: Passwords) -> None:
    assert not await passwords.check("alice", "pencil")


@pytest.mark.rule("CM-190")
async def test_every_check_computes_the_same_whatever_is_kept(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords.follow(
        users(
            kept("few", "p"), kept("most", "p", SHA_256, 16_384), kept("long", "p", SHA_512, 5_000),
            kept("both", "p"), kept("both", "p", SHA_512, 16_384),
        )
    )  # fmt: skip
    computed: dict[str, int] = {}

    def counted(mechanism: Mechanism, text: str, salt: bytes, iterations: int) -> bytes:
        computed[mechanism.text] = computed.get(mechanism.text, 0) + iterations
        return bytes(mechanism.size)

    monkeypatch.setattr(module, "salted", counted)
    for name in ("few", "most", "long", "both", "unknown"):
        for password in ("p", "wrong", "\x07", ""):
            computed.clear()
            await passwords.check(name, password)
            assert computed == {"SCRAM-SHA-256": 16_384, "SCRAM-SHA-512": 16_384}, (name, password)


@pytest.mark.rule("CM-190")
async def test_a_later_builds_numbers_do_not_make_a_check_long_or_fail(passwords: Passwords) -> None:
    for iterations in (-1, 0, 1_000_000_000):
        bad = ScramCredential("alice", 1, iterations, b"s" * 16, b"k" * 32, b"k" * 32)
        passwords.follow({("alice", 1): bad, ("alice", 9): bad})
        assert not await passwords.check("alice", "pencil")


@pytest.mark.rule("CM-190")
async def test_the_version_grows_when_users_change_and_only_then() -> None:
    passwords = Passwords()
    seen: list[int] = []
    passwords.subscribe(lambda: seen.append(passwords.version))
    first = users(kept("alice", "pencil"))
    passwords.follow(first)
    passwords.follow(first)
    passwords.follow(dict(first))
    assert (passwords.version, seen) == (1, [1])
    passwords.follow({})
    assert (passwords.version, seen) == (2, [1, 2])


@pytest.mark.rule("CM-190")
async def test_few_checks_run_at_a_time_and_few_wait(passwords: Passwords, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    checks = [asyncio.create_task(passwords.check("a", "p")) for _ in range(CHECKS_MAX + WAITING_MAX)]
    await gate.until_begun(CHECKS_MAX)
    with pytest.raises(ThrottlingQuotaExceededError, match="200 passwords are waiting"):
        await passwords.check("a", "p")
    gate.open.set()
    assert await asyncio.gather(*checks) == [True] * len(checks)
    assert gate.most == CHECKS_MAX
    assert await passwords.check("a", "p")


@pytest.mark.rule("CM-190")
async def test_callers_that_leave_make_room_and_their_checks_keep_their_places(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    for _ in range(3):
        checks = [asyncio.create_task(passwords.check("a", "p")) for _ in range(CHECKS_MAX + WAITING_MAX - 2)]
        await gate.until_begun(CHECKS_MAX)
        for each in checks:
            each.cancel()
        results: list[Any] = await asyncio.gather(*checks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results)
    assert gate.begun == CHECKS_MAX, "cancelled callers must not start further checks while the first two still run"
    gate.open.set()
    assert await passwords.check("a", "p")
    assert gate.most == CHECKS_MAX


@pytest.mark.rule("CM-190")
async def test_a_check_during_which_the_password_changes_is_made_again(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords.follow(users(kept("alice", "old")))
    real, gate = module._is_accepted, threading.Event()

    def slow(*arguments: Any) -> bool:
        accepted = real(*arguments)
        started.set()
        assert gate.wait(10)
        return accepted

    for password, accepted in (("old", False), ("new", True)):
        started = threading.Event()
        gate.clear()
        passwords.follow(users(kept("alice", "old")))
        monkeypatch.setattr(module, "_is_accepted", slow)
        check = asyncio.create_task(passwords.check("alice", password))
        assert await asyncio.to_thread(started.wait, 5)
        passwords.follow(users(kept("alice", "new")))
        gate.set()
        assert await check is accepted
