"""Sentinels and servers with TLS and users, each with the rights that docs/howto/deploy.md lists and no others."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.chaos.drivers.runs import Run
from tests.chaos.stores.node import CLIENT_USER, HOST, PASSWORD, SENTINEL_USER, ValkeyNode, server_lines
from tests.chaos.stores.sentinel import SERVICE, SentinelStore
from tests.support.store_tls import SecuredStore
from tests.support.store_users import NODE, OF_SENTINELS, PEER, REPLICA, SENTINEL, documented_users, sentinel_rules

#: The password of services at Sentinels: another one than at servers, so that one sent to the wrong place is refused.
_ASKED: Final = "secret-of-those-who-ask"


class SecuredSentinelStore(SentinelStore):
    """As `SentinelStore`, but services use TLS towards servers and Sentinels, and log in to each as a user of its own.

    Servers and Sentinels call each other without TLS, since the binary here has none: endpoints in this process, which
    serve callers with TLS and without it, are in front of them. Their certificates require a client's.
    """

    def __init__(self, run: Run, folder: Path, replicas: int = 2, sentinels: int = 3, fsync: str = "everysec") -> None:
        self._folder = folder / "access"
        self._folder.mkdir()
        for name, password in (("store", PASSWORD), ("sentinel", _ASKED)):
            (self._folder / f"{name}.password").write_text(password)
        self._made = SecuredStore(self._folder)
        self._fronts = contextlib.ExitStack()
        self._ports: dict[str, int] = {}
        super().__init__(run, folder, replicas, sentinels, fsync)
        for node in self.nodes:
            node.configure(f"replica-announce-ip {HOST}", f"replica-announce-port {self.port_of(node)}")

    def _server_lines(self, name: str, names: Sequence[str], fsync: str) -> list[str]:
        users = documented_users()
        rules = {SENTINEL_USER: users[SENTINEL], NODE: users[NODE], **dict.fromkeys(names, users[REPLICA])}
        lines = [
            line for line in server_lines(name, names, fsync) if line.split()[:2] not in [["user", u] for u in rules]
        ]
        return [*lines, *(f"user {user} on >{PASSWORD} {' '.join(given)}" for user, given in rules.items())]

    def _sentinel_lines(self) -> list[str]:
        return [
            *super()._sentinel_lines(),
            "user default off",
            f"user {OF_SENTINELS} on >{_ASKED} {' '.join(sentinel_rules(OF_SENTINELS))}",
            f"user {PEER} on >{PASSWORD} {' '.join(sentinel_rules(PEER))}",
            f"sentinel sentinel-user {PEER}",
            f"sentinel sentinel-pass {PASSWORD}",
        ]

    def port_of(self, node: ValkeyNode) -> int:
        """Return the port of the endpoint in front of a node, which begins with the first question for it."""
        if node.name not in self._ports:
            self._ports[node.name] = self._fronts.enter_context(self._made.in_front_of(node.port, either=True))
        return self._ports[node.name]

    @property
    def url(self) -> str:
        """`store.url` with the Sentinels' endpoints and the service, without a user."""
        return f"rediss+sentinel://{','.join(f'{HOST}:{self.port_of(node)}' for node in self.sentinels)}/{SERVICE}"

    @property
    def access(self) -> Mapping[str, str]:
        """The settings by which services reach it, besides `store.url`."""
        files = self._made.client
        return {
            "store.username": NODE,
            "store.password.location": str(self._folder / "store.password"),
            "store.ssl.ca.location": str(files.authorities),
            "store.ssl.certificate.location": str(files.certificate),
            "store.ssl.key.location": str(files.key),
            "store.sentinel.username": OF_SENTINELS,
            "store.sentinel.password.location": str(self._folder / "sentinel.password"),
        }

    def heal(self) -> None:
        """As of `SentinelStore`; also requires that no server and no Sentinel has refused anything for want of a
        right."""
        super().heal()
        refused = [
            f"{node.name}: {entry['username']} {entry['reason']} {entry['object']}"
            for node in (*self.nodes, *self.sentinels)
            for entry in node.ask("ACL", "LOG")
            if entry["reason"] != "auth" and entry["username"] != CLIENT_USER
        ]
        assert not refused, ", ".join(refused)

    def close(self) -> None:
        """End all nodes, and the endpoints."""
        super().close()
        self._fronts.close()
