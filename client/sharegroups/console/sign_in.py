"""Checks the credentials of a user who signs in, by a call to the cluster (CT-162)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from kip932.errors import KafkaError, SaslAuthenticationFailedError
from sharegroups.admin import Admin
from sharegroups.cli import clients
from sharegroups.cli.reaching import REACH_MS
from sharegroups.console.visit import RefusedError
from sharegroups.errors import ConfigError

#: How many credentials are checked at a time, and how long one that was refused takes, in seconds: so few can be tried.
CHECKS_MAX: Final = 4
REFUSED_S: Final = 1.0
_LENGTH_MAX: Final = 7_000


def without_credentials(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without a token or password."""
    return {name: value for name, value in settings.items() if not is_secret(name)}


def is_secret(name: str) -> bool:
    """Return whether a setting says who a client is, by a token or password."""
    return name.startswith("sasl.") and name != "sasl.oauthbearer.allow.plaintext"


def has_credentials(settings: Mapping[str, Any]) -> bool:
    """Return whether settings say who a client is."""
    return any(value for name, value in settings.items() if is_secret(name) or name == "ssl.certificate.location")


def own_name(settings: Mapping[str, Any]) -> str:
    """Return how the audit log names the user whose settings these are."""
    if user := settings.get("sasl.username"):
        return f"User:{user}"
    if token := settings.get("sasl.oauthbearer.token"):
        return _token_name(str(token))
    places = ("sasl.oauthbearer.token.location", "ssl.certificate.location")
    return next((f"user of {settings[name]}" for name in places if settings.get(name)), "")


def _token_name(token: str) -> str:
    return f"token {hashlib.sha256(token.encode('utf-8', 'replace')).hexdigest()[:8]}"


class SignIn:
    """Checks credentials. `settings`: those of the console's clients, without credentials."""

    def __init__(self, settings: Mapping[str, Any], refused_s: float = REFUSED_S) -> None:
        self._settings = without_credentials(settings)
        self._places = asyncio.Semaphore(CHECKS_MAX)
        self._refused_s = refused_s

    async def checked(self, form: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Return how the user is named, and the settings of their clients. Raises RefusedError."""
        user, given = _credentials(form)
        settings = self._settings | given
        async with self._places:
            try:
                await run_in_threadpool(_require_accepted, settings)
            except SaslAuthenticationFailedError as error:
                await asyncio.sleep(self._refused_s)
                raise RefusedError(f"The cluster does not accept this: {error.message}", 401) from error
            except KafkaError as error:
                raise RefusedError(f"It cannot be checked now: {error.message}", 503) from error
            except ConfigError as error:
                raise RefusedError(str(error), 400) from error
        return user, settings


def _credentials(form: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    user, password, token = form.get("user", "").strip(), form.get("password", ""), form.get("token", "").strip()
    if max(len(user), len(password), len(token)) > _LENGTH_MAX:
        raise RefusedError(f"A name, password or token has at most {_LENGTH_MAX} characters.")
    if token and not (user or password):
        return _token_name(token), {"sasl.oauthbearer.token": token}
    if user and password and not token:
        return f"User:{user}", {"sasl.username": user, "sasl.password": password}
    raise RefusedError("Enter a name and a password, or a token.")


def _require_accepted(settings: Mapping[str, Any]) -> None:
    """Make a call that needs no right: nodes check credentials before they check rights."""
    with clients.open_client(Admin, {**settings, "default.api.timeout.ms": REACH_MS}) as admin:
        admin.list_topics([])
