"""The user and password of the store, or of its Sentinels (CM-230), with the password from a file that is read for each
new connection (CM-184).

A password is rotated without a restart: add the new one to the store's user, change the file, remove the old one. While
the store refuses what is in the file, or the file cannot be read, the last password that worked is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from kip932.setting import Setting
from kip932.store_settings import STORE_PASSWORD, PasswordFileError, password_in

log = structlog.get_logger(__name__)

_EFFECT: Final = "the last password that worked is used"
_TRY_NEXT: Final = "add the new password to the user at {0} before you change the file"


class StoreCredentials:
    """A user, "" for the default one, and the file with its password. One object serves all connections of a store, or
    all those to its Sentinels; `setting` names the file."""

    def __init__(self, username: str, path: Path, setting: Setting[str] = STORE_PASSWORD) -> None:
        self.username: Final = username
        self.path: Final = path
        self.setting: Final = setting
        self._place: Final = "the store" if setting is STORE_PASSWORD else "the Sentinels"
        self._accepted: str | None = None
        self._reported = ""

    def read(self) -> str:
        """Read the password. Raises PasswordFileError."""
        return password_in(self.path, self.setting)

    def candidates(self) -> list[str]:
        """Return the passwords to try, in order. Raises PasswordFileError when there is none."""
        try:
            found = [self.read()]
        except PasswordFileError as error:
            if self._accepted is None:
                raise
            if self._is_news(str(error)):
                log.warning("store_password_unreadable", cause=str(error), effect=_EFFECT, try_next=self._try_next)
            found = []
        return found + ([self._accepted] if self._accepted is not None and self._accepted not in found else [])

    def accepted(self, password: str, *, refused: bool) -> None:
        """Note the password with which the store let this process in; `refused`: it did not accept the file's."""
        self._accepted = password
        if not refused:
            self._reported = ""
            return
        verb = "refuses" if self.setting is STORE_PASSWORD else "refuse"
        cause = f"{self._place} {verb} the password in {self.path}"
        if self._is_news(cause):
            log.warning("store_password_refused", cause=cause, effect=_EFFECT, try_next=self._try_next)

    @property
    def _try_next(self) -> str:
        return _TRY_NEXT.format(self._place)

    def _is_news(self, cause: str) -> bool:
        """Return whether this cause is another than the last one, and note it."""
        before, self._reported = self._reported, cause
        return cause != before
