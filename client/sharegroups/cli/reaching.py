"""Opens an admin client once the cluster answers; if it does not, that is reported within seconds (CT-90)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sharegroups.admin import Admin
from sharegroups.cli import clients
from sharegroups.config import ADMIN, Config

#: How long the first request may wait for a response, in ms.
REACH_MS: Final = 4_000


def require_answer(given: Mapping[str, Any]) -> None:
    """Return once a node answers. Raises KafkaError when none does within four seconds, or within
    default.api.timeout.ms if that is shorter; and before that ConfigError for a wrong setting, which may be why none
    would."""
    timeout_ms = min(REACH_MS, int(Config(ADMIN, given)["default.api.timeout.ms"]))
    with clients.open_client(Admin, {**given, "default.api.timeout.ms": timeout_ms}) as admin:
        admin.list_topics([])


@contextmanager
def open_reachable_admin(given: Mapping[str, Any]) -> Iterator[Admin]:
    """Open an admin client with these settings, once a node has answered. Raises KafkaError, ConfigError."""
    require_answer(given)
    with clients.open_client(Admin, given) as admin:
        yield admin
