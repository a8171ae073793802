"""The user and password of the store, with the password from a file that is read for each new connection (CM-184).

A password is rotated without a restart: add the new one to the store's user, change the file, remove the old one. While
the store refuses what is in the file, or the file cannot be read, the last password that worked is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from kip932.store_settings import PasswordFileError, password_in

log = structlog.get_logger(__name__)

_EFFECT: Final = "the last password that worked is used"
_TRY_NEXT: Final = "add the new password to the store's user before you change the file"


class StoreCredentials:
    """A user, "" for the default one, and the file with its password. One object serves all connections of a store."""

    def __init__(self, username: str, path: Path) -> None:
        self.username: Final = username
        self.path: Final = path
        self._accepted: str | None = None
        self._reported = ""

    def read(self) -> str:
        """Read the password. Raises PasswordFileError."""
        return password_in(self.path)

    def candidates(self) -> list[str]:
        """Return the passwords to try, in order. Raises PasswordFileError when there is none."""
        try:
            found = [self.read()]
        except PasswordFileError as error:
            if self._accepted is None:
                raise
            if self._is_news(str(error)):
                log.warning("store_password_unreadable", cause=str(error), effect=_EFFECT, try_next=_TRY_NEXT)
            found = []
        return found + ([self._accepted] if self._accepted is not None and self._accepted not in found else [])

    def accepted(self, password: str, *, refused: bool) -> None:
        """Note the password with which the store let this process in; `refused`: it did not accept the file's."""
        self._accepted = password
        if not refused:
            self._reported = ""
            return
        cause = f"the store refuses the password in {self.path}"
        if self._is_news(cause):
            log.warning("store_password_refused", cause=cause, effect=_EFFECT, try_next=_TRY_NEXT)

    def _is_news(self, cause: str) -> bool:
        """Return whether this cause is another than the last one, and note it."""
        before, self._reported = self._reported, cause
        return cause != before
