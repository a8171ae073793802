"""A store with users behind Sentinels, with users of their own or without: real servers, with and without TLS."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from shard_runtime.record_log.redis.connection import Command
from shard_runtime.record_log.redis.topology import open_store
from tests.support.store_tls import SecuredStore
from tests.support.store_users import (
    OF_SENTINELS,
    REPLICA,
    SENTINEL,
    GuardedServer,
    denials_of,
    password_of,
    sentinel_rules,
)
from tests.support.stores import BOUND_S, Server

SERVICE: Final = "main"
HOST: Final = "127.0.0.1"
_ADMIN: Final = "the-tests-own"
#: What programs give a Sentinel that wants a password.
ASKED: Final = "secret-of-those-who-ask-4711"


class WatchedStore:
    """A master and a replica with the users of the page, and a Sentinel.

    `login`: whether the Sentinel has users, `"user"`; a password for its default user, `"password"`; or neither, `""`.
    `tls` and `sentinel_tls`: the certificates of servers and of the Sentinel, which then serve callers with TLS, too.
    """

    def __init__(
        self, login: str = "", tls: SecuredStore | None = None, sentinel_tls: SecuredStore | None = None
    ) -> None:
        self.login = login
        self.servers = [GuardedServer(*_follows()), GuardedServer(*_follows())]
        self.sentinel = Server()
        self.ports: dict[Server, int] = {}
        self._tls, self._sentinel_tls = tls, sentinel_tls
        self._stack = ExitStack()

    async def start(self) -> Self:
        """Start all three, and wait until the Sentinel knows the replica."""
        for guarded in self.servers:
            await guarded.start()
            self._opened(guarded.server, self._tls)
            await guarded.admin(("CONFIG", "SET", "replica-announce-port", self.ports[guarded.server]))
        master, replica = self.servers
        await replica.admin(("REPLICAOF", HOST, self.ports[master.server]))
        config = Path(self.sentinel.folder) / "sentinel.conf"
        config.write_text(f"port {self.sentinel.port}\n")
        await self.sentinel.start_with(str(config), "--sentinel")
        self._opened(self.sentinel, self._sentinel_tls)
        await self.sentinel.run(*self._watching(self.ports[master.server], master.passwords[SENTINEL]))
        for _ in range(BOUND_S * 100):
            if await self._knows_the_replica():
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("the Sentinel does not know the replica")
        await self.sentinel.run(*self._users())
        return self

    def _opened(self, server: Server, tls: SecuredStore | None) -> None:
        port = server.port
        if tls is not None:
            port = self._stack.enter_context(tls.in_front_of(port, either=True))
        self.ports[server] = port

    @staticmethod
    def _watching(port: int, password: str) -> list[Command]:
        login = {"auth-user": SENTINEL, "auth-pass": password}
        chosen = {**login, "down-after-milliseconds": "1000", "failover-timeout": "3000"}
        return [
            ("SENTINEL", "DEBUG", "INFO-PERIOD", 100),  # it would otherwise ask every ten seconds
            ("SENTINEL", "MONITOR", SERVICE, HOST, port, 1),
            *(("SENTINEL", "SET", SERVICE, name, value) for name, value in chosen.items()),
        ]

    async def _knows_the_replica(self) -> bool:
        (found,) = await self.sentinel.run(("SENTINEL", "REPLICAS", SERVICE))
        return any(replica.get(b"master-link-status") == b"ok" for replica in found)

    def _users(self) -> list[Command]:
        made: list[Command] = [("ACL", "SETUSER", _ADMIN, "on", f">{_ADMIN}", "~*", "&*", "+@all")]
        if self.login == "user":
            made.append(("ACL", "SETUSER", OF_SENTINELS, "on", f">{ASKED}", *sentinel_rules()))
            made.append(("ACL", "SETUSER", "default", "off"))
        if self.login == "password":
            made.append(("ACL", "SETUSER", "default", "resetpass", f">{ASKED}"))
        return made

    @property
    def url(self) -> str:
        """The URL without a user."""
        scheme = "redis" if self._tls is None else "rediss"
        return f"{scheme}+sentinel://{HOST}:{self.ports[self.sentinel]}/{SERVICE}"

    async def ask(self, *commands: Command) -> list[Any]:
        """Run commands on the Sentinel as a user who may do everything."""
        connection = await open_store(f"redis://{_ADMIN}:{_ADMIN}@{HOST}:{self.sentinel.port}").connect("")
        try:
            return await connection.run(commands, 5_000)
        finally:
            await connection.close()

    async def denied(self) -> list[str]:
        """Return what servers and Sentinel have refused since the last call."""
        found = [denial for each in self.servers for denial in await each.denied()]
        log, _ = await self.ask(("ACL", "LOG"), ("ACL", "LOG", "RESET"))
        return found + denials_of(log)

    def stop(self) -> None:
        """Kill all, and remove their files."""
        self._stack.close()
        for guarded in self.servers:
            guarded.stop()
        self.sentinel.stop()
        shutil.rmtree(self.sentinel.folder, ignore_errors=True)


def _follows() -> Sequence[str]:
    return "--primaryuser", REPLICA, "--primaryauth", password_of(REPLICA)
