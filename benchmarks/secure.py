"""How a cluster is secured in B1, B5 and B12 (`--secure`), each mode a side of its own beside one without TLS.

`tls`: certificates of the nodes alone; clients show none. `mtls`: clients have certificates, too. `acls`: the same with
access control and 100 entries, of which those of the benchmark's own clients matter. Certificates and settings are
those that `sharegroups certs` writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.processes import BenchmarkError

if TYPE_CHECKING:
    from kip932.acls import Acl
    from sharegroups.aio import Admin

TLS: Final = "tls"
MTLS: Final = "mtls"
ACLS: Final = "acls"
MODES: Final = (TLS, MTLS, ACLS)
#: How many access control entries a cluster has in the mode `acls`.
ENTRIES: Final = 100
_CLIENT: Final = "bench"
_ADMIN: Final = "admin"
_ENTRIES_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Secured:
    """The settings that secure one cluster; none by default.

    `words`: options of `sharegroups up`. `client`: settings of the clients that are measured, and `client_file` their
    file. `admin`: settings of the client that sets up the cluster and observes it.
    """

    mode: str = ""
    words: tuple[str, ...] = ()
    client: Mapping[str, str] = field(default_factory=dict)
    client_file: Path | None = None
    admin: Mapping[str, str] = field(default_factory=dict)


def secured(mode: str, folder: Path) -> Secured:
    """Make certificates and settings for a mode in `folder`, which must not exist. Without a mode nothing is made."""
    if not mode:
        return Secured()
    from share_node.certs import certs  # noqa: PLC0415 - the workers do without

    with contextlib.redirect_stdout(io.StringIO()):  # standard output is for the runs' JSON lines
        certs.main([str(folder), "--client", _CLIENT, "--client", _ADMIN], standalone_mode=False)
    words = ["--config", str(folder / "node.toml")]
    files = [folder / f"{name}.properties" for name in (_CLIENT, _ADMIN)]
    if mode == TLS:
        words += ["--set", "ssl.client.auth=none"]
        for file in files:
            lines = [line for line in file.read_text().splitlines() if not line.startswith(_OWN)]
            file.write_text("".join(f"{line}\n" for line in lines))
    if mode == ACLS:
        words += ["--set", "access.control.enable=true", "--set", f"super.users=User:{_ADMIN}"]
    client, admin = map(_settings, files)
    return Secured(mode, tuple(words), client, files[0], admin)


#: The prefixes of the lines that name a client's own certificate.
_OWN: Final = ("ssl.certificate.", "ssl.key.")


def _settings(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def entries(topic: str, groups: Sequence[str]) -> list[Acl]:
    """Return the entries of the mode `acls`: what a producer of the topic and members of the groups need, then others.

    Half of the others are other users' entries for the same topic, half the benchmark's for other topics.
    """
    from kip932.acls import Acl, Operation, PatternType, Permission, ResourceType  # noqa: PLC0415 - parents do without

    def allow(kind: ResourceType, name: str, user: str, operation: Operation) -> Acl:
        return Acl(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)

    own = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE, Operation.READ)
    found = [allow(ResourceType.TOPIC, topic, _CLIENT, operation) for operation in own]
    found += [allow(ResourceType.GROUP, group, _CLIENT, Operation.READ) for group in groups]
    for number in range(ENTRIES - len(found)):
        place = (f"{topic}-other-{number}", _CLIENT) if number % 2 else (topic, f"other-{number}")
        found.append(allow(ResourceType.TOPIC, *place, Operation.READ))
    return found


async def allow_clients(admin: Admin, topic: str, groups: Sequence[str]) -> None:
    """Add the entries of the mode `acls`, and wait until the cluster lists them all. Raises BenchmarkError."""
    wanted = entries(topic, groups)
    for error in (await admin.create_acls(wanted)).values():
        if error is not None:
            raise error
    until = time.monotonic() + _ENTRIES_S
    while (listed := len(await admin.describe_acls())) < len(wanted):
        if time.monotonic() > until:
            raise BenchmarkError(f"{listed} of {len(wanted)} access control entries were listed after {_ENTRIES_S:g} s")
        await asyncio.sleep(0.02)
