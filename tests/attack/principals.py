"""The certificates and ACLs of an attack run with TLS: every principal has only the permissions that it needs.

| principal | used by | permissions |
|---|---|---|
| `node` | all nodes | those of a node, which it is by its name |
| `admin` | the attack run itself | all (super user) |
| `canary`, `books` | the honest clients | what their programs need, on their own topics and groups |
| `stranger` | attacks that need nothing | none |
| `attacker` | attacks that must reach the cores | on the attacked topic, the attackers' groups, and its own topics |
| `insider` | attacks on the listeners for nodes | CLUSTER_ACTION |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kip932.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from share_node.certs import Authority
from tests.attack.definition import Who
from tests.support.certificates import files_in, install
from tests.support.dial import PLAIN, Dial

ADMIN: Final = "admin"
CANARY: Final = "canary"
BOOKS: Final = "books"
_NAMES: Final = (ADMIN, CANARY, BOOKS, *Who)

_T, _G, _X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_O: Final = Operation
#: Principal, operations, resource type and resource name; a name that ends in `*` is a prefix.
_RIGHTS: Final = (
    (CANARY, (_O.READ, _O.WRITE, _O.DESCRIBE), _T, "canary"),
    (CANARY, (_O.READ,), _G, "canary-*"),
    (BOOKS, (_O.READ, _O.WRITE, _O.DESCRIBE, _O.CREATE), _T, "books"),
    (BOOKS, (_O.READ, _O.DESCRIBE, _O.DESCRIBE_CONFIGS), _G, "books-*"),
    (Who.ATTACKER, (_O.READ, _O.WRITE, _O.DESCRIBE), _T, "attacked"),
    (Who.ATTACKER, (_O.DESCRIBE,), _T, "no-such-*"),
    (Who.ATTACKER, (_O.READ, _O.DESCRIBE), _G, "attackers-*"),
    # The name that calls with random fields use.
    (Who.ATTACKER, (_O.ALL,), _G, "g"),
    (Who.ATTACKER, (_O.ALL,), _X, "g"),
    # Two attacks come from a user who administers its own topics and groups.
    (Who.ATTACKER, (_O.ALL,), _T, "dlq.circle-*"),
    (Who.ATTACKER, (_O.ALL,), _G, "of-dlq.circle-*"),
    (Who.ATTACKER, (_O.ALL,), _T, "clock-*"),
)


def entries() -> Iterator[Acl]:
    """Yield the access control entries of all principals."""
    for principal, operations, kind, name in _RIGHTS:
        pattern = PatternType.PREFIXED if name.endswith("*") else PatternType.LITERAL
        for operation in operations:
            yield Acl(kind, name.rstrip("*"), pattern, f"User:{principal}", "*", operation, Permission.ALLOW)
    yield Acl(
        ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, f"User:{Who.INSIDER}", "*",
        _O.CLUSTER_ACTION, Permission.ALLOW,
    )  # fmt: skip


class Principals:
    """Certificates in a folder, all issued by one CA, except for those that no node accepts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._files = files_in(folder)
        authority, other = Authority.made(), Authority.made()
        install(self._files, authority.issue("node", ["127.0.0.1", "localhost"]), authority.certificate)
        self._folder = folder
        for name in _NAMES:
            self._write(name, authority.issue(name))
        self._write("expired", authority.issue(ADMIN, days=-1))
        self._write("unknown", other.issue(ADMIN))

    def _write(self, name: str, pair: tuple[bytes, bytes]) -> None:
        for part, data in zip(("crt", "key"), pair, strict=True):
            path = self._folder / f"{name}.{part}"
            path.touch(0o600)
            path.write_bytes(data)

    def node_settings(self) -> dict[str, str]:
        """Return the settings of every node."""
        return {
            "ssl.certificate.location": str(self._files.certificate),
            "ssl.key.location": str(self._files.key),
            "ssl.ca.location": str(self._files.authorities),
            "ssl.client.auth": "required",
            "access.control.enable": "true",
            "super.users": f"User:{ADMIN}",
        }

    def dial(self, name: str) -> Dial:
        """Return how a principal connects."""
        return Dial({**self.nameless().security, **self._pair(name)})

    def nameless(self) -> Dial:
        """Return how a client without a certificate connects."""
        return Dial({"security.protocol": "SSL", "ssl.ca.location": str(self._files.authorities)})

    def _pair(self, name: str) -> dict[str, str]:
        return {
            "ssl.certificate.location": str(self._folder / f"{name}.crt"),
            "ssl.key.location": str(self._folder / f"{name}.key"),
        }

    def refused(self) -> Mapping[str, Dial]:
        """Return clients that no node accepts, by what is wrong with their certificates, which are for a super user."""
        return {
            "expired": self.dial("expired"),
            "of an unknown CA": self.dial("unknown"),
            "none": self.nameless(),
        }


def dial_of(principals: Principals | None, name: str) -> Dial:
    """Return how a principal connects, with or without TLS."""
    return PLAIN if principals is None else principals.dial(name)
