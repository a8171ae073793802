"""A store that accepts only the users of docs/howto/deploy.md, with exactly the permissions listed there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Self

from shard_runtime.record_log.redis.connection import Command
from shard_runtime.record_log.redis.topology import open_store
from tests.support.stores import Server

PAGE: Final = Path(__file__).parents[2] / "docs" / "howto" / "deploy.md"
_LINE: Final = re.compile(r"^ACL SETUSER (?P<user>sharegroups[\w-]*) on >PASSWORD (?P<rules>.+)$", re.MULTILINE)
#: The user that the test itself logs in as, and its password.
_ADMIN: Final = "the-tests-own"


#: Users of the store that the page lists: of a node, and those by which replicas and Sentinels log in to servers.
NODE, REPLICA, SENTINEL = "sharegroups", "sharegroups-replica", "sharegroups-sentinel"
#: Users of Sentinels that the page lists: of programs that ask them, and of the other Sentinels.
OF_SENTINELS, PEER = "sharegroups-asker", "sharegroups-peer"


def documented_users() -> dict[str, list[str]]:
    """Return the rules of each user of the store that the page lists, without `on` and the password."""
    return {user: rules for user, rules in _documented().items() if user not in {OF_SENTINELS, PEER}}


def sentinel_rules(user: str = OF_SENTINELS) -> list[str]:
    """Return the rules of a user that the page lists for Sentinels."""
    return _documented()[user]


def _documented() -> dict[str, list[str]]:
    return {found["user"]: found["rules"].split() for found in _LINE.finditer(PAGE.read_text())}


def denials_of(log: Iterable[Any]) -> list[str]:
    """Return what an ACL LOG says: user, kind of permission, and the command or key."""
    return [
        " ".join(each[name].decode() for name in (b"username", b"reason", b"object", b"context"))
        for each in (one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True)) for one in log)
    ]


def commands(rules: Iterable[str]) -> set[str]:
    """Return the commands that rules allow."""
    return {rule[1:] for rule in rules if rule.startswith("+")}


def password_of(user: str) -> str:
    """Return the password that a user of the page has in tests."""
    return f"secret-of-{user}-4711"


class GuardedServer:
    """One Valkey whose default user is off. `passwords`: by the documented user's name."""

    def __init__(self, *options: str) -> None:
        self.server = Server(*options)
        self.passwords = {user: password_of(user) for user in documented_users()}

    async def start(self) -> Self:
        """Start it, make the users, and turn the default user off."""
        await self.server.start()
        made = [("ACL", "SETUSER", user, *self._rules(user, rules)) for user, rules in documented_users().items()]
        replies = await self.server.run(
            ("ACL", "SETUSER", _ADMIN, "on", f">{_ADMIN}", "~*", "&*", "+@all"),
            *made,
            ("ACL", "SETUSER", "default", "off"),
        )
        assert set(replies) == {b"OK"}, replies
        return self

    def _rules(self, user: str, rules: list[str]) -> list[str]:
        return ["reset", "on", f">{self.passwords[user]}", *rules]

    @property
    def address(self) -> str:
        """Return `HOST:PORT`."""
        return f"127.0.0.1:{self.server.port}"

    def url(self, user: str) -> str:
        """Return the URL for a user, without the password."""
        return f"redis://{user}@{self.address}"

    async def admin(self, *asked: Command) -> list[Any]:
        """Run commands as a user who may do everything."""
        connection = await open_store(f"redis://{_ADMIN}:{_ADMIN}@{self.address}").connect(self.address)
        try:
            return await connection.run(asked, 5_000)
        finally:
            await connection.close()

    async def denied(self) -> list[str]:
        """Return what the store has refused since the last call: user, kind of permission, and the command or key."""
        log, _ = await self.admin(("ACL", "LOG"), ("ACL", "LOG", "RESET"))
        return denials_of(log)

    async def allow(self, user: str, *rules: str) -> None:
        """Apply ACL rules to a user, such as `+xadd` or `-xadd`."""
        assert await self.admin(("ACL", "SETUSER", user, *rules)) == [b"OK"]

    def stop(self) -> None:
        """Kill it and remove its files."""
        self.server.stop()
        shutil.rmtree(self.server.folder, ignore_errors=True)
