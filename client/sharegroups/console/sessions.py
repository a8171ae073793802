"""The users that are signed in: each with the credentials that they gave, and an admin client that has them (CT-162).

Bounded in number; ended when idle. Nothing here is sent to a browser but a session's random name.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sharegroups.admin import Admin
from sharegroups.cli import clients
from sharegroups.errors import IllegalStateError

SESSIONS_MAX: Final = 100
#: A session without a request for so long ends, in seconds; and each ends after the second one.
IDLE_S: Final = 1_800.0
LIFE_S: Final = 12 * 3_600.0
#: How many pages of a session are kept, to be shown while the cluster does not answer.
_KEPT_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Kept:
    """A page as it was last, and when, in ms since 1970."""

    page: Any
    at_ms: int


@dataclass(slots=True)
class Session:
    """One user. `user`: how the audit log names them. `settings`: those of their clients, with their credentials."""

    user: str
    settings: Mapping[str, Any] = field(repr=False)
    began_s: float
    seen_s: float
    is_local: bool = False
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    tasks: int = 0
    kept: OrderedDict[str, Kept] = field(default_factory=OrderedDict, repr=False)
    _admin: Admin | None = field(default=None, repr=False)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def admin(self) -> Admin:
        """The admin client, opened when it is first needed. Raises ConfigError or IllegalStateError."""
        with self._lock:
            if self._closed:
                raise IllegalStateError("this session has ended; sign in again")
            if self._admin is None:
                self._admin = clients.open_client(Admin, self.settings)
            return self._admin

    def keep(self, name: str, page: Any, now_ms: int) -> None:
        """Keep a page, to be shown while the cluster does not answer."""
        with self._lock:
            self.kept[name] = Kept(page, now_ms)
            self.kept.move_to_end(name)
            while len(self.kept) > _KEPT_MAX:
                self.kept.popitem(last=False)

    def close(self) -> None:
        """Close the admin client. Blocks; a second call does nothing."""
        with self._lock:
            self._closed = True
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


class Sessions:
    """The sessions by the random names that browsers hold; of these only hashes are kept.

    Methods return the sessions that ended, for the caller to close. They are called in one thread.
    """

    def __init__(self, most: int = SESSIONS_MAX) -> None:
        self._most = most
        self._by_hash: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._by_hash)

    def open(self, session: Session) -> tuple[str, list[Session]]:
        """Add a session. Returns its name, and the one that had been idle longest if there were too many."""
        ended = []
        if len(self._by_hash) >= self._most:
            oldest = min(self._by_hash, key=lambda name: self._by_hash[name].seen_s)
            ended.append(self._by_hash.pop(oldest))
        name = secrets.token_urlsafe(32)
        self._by_hash[_hash(name)] = session
        return name, ended

    def find(self, name: str, now_s: float) -> Session | None:
        """Return the session of this name, and note that it is in use; None if there is none, or it has ended."""
        session = self._by_hash.get(_hash(name))
        if session is None or _has_ended(session, now_s):
            return None
        session.seen_s = now_s
        return session

    def is_open(self, session: Session, now_s: float) -> bool:
        """Return whether a session lasts; unlike `find` it is not noted as in use."""
        return session in self._by_hash.values() and not _has_ended(session, now_s)

    def end(self, session: Session) -> None:
        """Remove a session."""
        self._by_hash = {name: each for name, each in self._by_hash.items() if each is not session}

    def expire(self, now_s: float) -> list[Session]:
        """Remove the sessions that have ended, and return them."""
        ended = [session for session in self._by_hash.values() if _has_ended(session, now_s)]
        for session in ended:
            self.end(session)
        return ended

    def end_all(self) -> list[Session]:
        """Remove all sessions, and return them."""
        ended = list(self._by_hash.values())
        self._by_hash.clear()
        return ended


def _has_ended(session: Session, now_s: float) -> bool:
    """A session whose tasks run lasts until they have ended."""
    if session.tasks:
        return False
    return now_s - session.seen_s >= IDLE_S or now_s - session.began_s >= LIFE_S


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode("utf-8", "replace")).digest()
