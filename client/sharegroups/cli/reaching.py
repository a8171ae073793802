"""Opens an admin client once the cluster answers; if it does not, that is reported within seconds (CT-90)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sharegroups.admin import Admin
from sharegroups.cli import clients
from sharegroups.cli.output import print_stderr
from sharegroups.config import ADMIN, Config
from sharegroups.connection.waits import longest

#: How long the first request may wait for a response, in ms.
REACH_MS: Final = 4_000
#: After this many seconds without an end a command says what it waits for; again each time twice as long has passed.
LATE_S: Final = 10.0


def require_answer(given: Mapping[str, Any]) -> None:
    """Return once a node answers. Raises KafkaError when none does within four seconds, or within
    default.api.timeout.ms if that is shorter; and before that ConfigError for a wrong setting, which may be why none
    would."""
    timeout_ms = min(REACH_MS, int(Config(ADMIN, given)["default.api.timeout.ms"]))
    with clients.open_client(Admin, {**given, "default.api.timeout.ms": timeout_ms}) as admin:
        admin.list_topics([])


@contextmanager
def open_reachable_admin(given: Mapping[str, Any]) -> Iterator[Admin]:
    """Open an admin client with these settings, once a node has answered. Raises KafkaError or ConfigError."""
    require_answer(given)
    with clients.open_client(Admin, given) as admin, lateness_said():
        yield admin


@contextmanager
def lateness_said() -> Iterator[None]:
    """Run a block. While it takes long, print on standard error what it waits for."""
    over = threading.Event()

    def watch() -> None:
        passed_s = LATE_S
        pause_s = LATE_S
        while not over.wait(pause_s):
            _say_late(passed_s)
            pause_s = passed_s
            passed_s *= 2

    watching = threading.Thread(target=watch, name="sharegroups-lateness", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _say_late(passed_s: float) -> None:
    wait = longest()
    if wait is not None:
        last = f"; not yet because: {wait.last}" if wait.last else ""
        print_stderr(f"Note: after {passed_s:g} s it still waits for {wait.what}{last}")
