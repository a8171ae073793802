"""Checks names and passwords of callers by the users in the metadata log (CM-190).

A check takes about ten milliseconds of a processor, so it runs in a thread, few run at a time, and few may wait. Its
caller should remember accepted passwords for as long as `version` stays the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Final

from kip932.errors import ThrottlingQuotaExceededError
from kip932.scram import (
    ITERATIONS_MAX,
    Credentials,
    Mechanism,
    RefusedPasswordError,
    ScramCredential,
    matches,
    prepared,
)
from kip932.scram import salted_password as salted

#: How many checks run at a time, and how many may wait for their turn.
CHECKS_MAX: Final = 2
WAITING_MAX: Final = 200
#: How many accepted passwords are remembered; then the oldest are forgotten.
REMEMBERED_MAX: Final = 10_000
#: How often a check is begun again because the user's passwords have changed meanwhile.
_ROUNDS_MAX: Final = 3
#: What is hashed in place of a malformed password, and the salt for a user about whom nothing is kept.
_NO_PASSWORD: Final = "no password"
_NO_SALT: Final = bytes(24)


class Passwords:
    """The users of the cluster, as one node knows them. There are none before `follow` was called.

    `version` grows whenever an earlier answer of `check` may no longer hold.
    """

    def __init__(self) -> None:
        self.version = 0
        self._credentials: Credentials = {}
        self._listeners: list[Callable[[], None]] = []
        self._places = asyncio.Semaphore(CHECKS_MAX)
        self._waiting = 0
        #: What was kept about the user when a password was accepted, by a keyed hash of both.
        self._accepted: dict[bytes, tuple[ScramCredential | None, ...]] = {}
        self._key = os.urandom(32)
        self._threads = ThreadPoolExecutor(CHECKS_MAX, thread_name_prefix="passwords")

    def follow(self, credentials: Credentials) -> None:
        """Check by these users from now on. Does nothing if they are the same as before."""
        if credentials is self._credentials or credentials == self._credentials:
            return
        self._credentials = credentials
        self.version += 1
        for listener in self._listeners:
            listener()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of the users. It must not block or raise."""
        self._listeners.append(listener)

    def credential(self, name: str, mechanism: Mechanism) -> ScramCredential | None:
        """Return what is kept of a user's password for a mechanism, for an exchange that does not show the password;
        None if there is nothing that can be used."""
        found = self._credentials.get((name, mechanism))
        return found if found is not None and 0 < found.iterations <= ITERATIONS_MAX else None

    async def check(self, name: str, password: str) -> bool:
        """Return whether there is a user of this name with this password. Raises ThrottlingQuotaExceededError if too
        many checks wait already.

        A check takes as long for a name that does not exist as for one that does. Where there are no users at all,
        nothing is computed.
        """
        if not self._credentials:
            return False
        place = self._place(name, password)
        if (kept := self._accepted.get(place)) is not None:
            # A change of one user must not have the passwords of all others computed again at once.
            if kept == self._kept_of(name):
                return True
            del self._accepted[place]
        if self._waiting >= WAITING_MAX:
            raise ThrottlingQuotaExceededError(
                f"{WAITING_MAX} passwords are waiting to be checked at this node; try again"
            )
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        return await self._checked(name, password)

    def close(self) -> None:
        """End the threads once their present checks are done. Nothing can be checked afterwards."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _checked(self, name: str, password: str) -> bool:
        """Check in a thread, and give the place back when the thread is done, even if the caller has left by then."""
        try:
            work = asyncio.get_running_loop().create_task(self._check_until_stable(name, password))
        except BaseException:
            self._places.release()
            raise
        work.add_done_callback(lambda _: self._places.release())
        return await asyncio.shield(work)

    async def _check_until_stable(self, name: str, password: str) -> bool:
        """Check; again if the user's passwords have changed meanwhile, so that no old one is accepted after its end."""
        for _ in range(_ROUNDS_MAX):
            used = self._kept_of(name)
            accepted = await asyncio.get_running_loop().run_in_executor(self._threads, _is_accepted, used, password)
            if self._kept_of(name) == used:
                if accepted:
                    self._remember(self._place(name, password), used)
                return accepted
        return False

    def _remember(self, place: bytes, kept: tuple[ScramCredential | None, ...]) -> None:
        while len(self._accepted) >= REMEMBERED_MAX:
            del self._accepted[next(iter(self._accepted))]
        self._accepted[place] = kept

    def _place(self, name: str, password: str) -> bytes:
        text = f"{len(name)}:{name}{password}".encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=32, key=self._key).digest()

    def _kept_of(self, name: str) -> tuple[ScramCredential | None, ...]:
        return tuple(self._credentials.get((name, mechanism)) for mechanism in Mechanism)


def _is_accepted(kept: tuple[ScramCredential | None, ...], password: str) -> bool:
    """Return whether a password is one of those kept, for one user, by mechanism. The same number of iterations is
    computed whatever is kept, so that the time does not show which names, and which forms of passwords, exist."""
    try:
        text, possible = prepared(password), True
    except RefusedPasswordError:
        text, possible = _NO_PASSWORD, False
    accepted = False
    for mechanism, found in zip(Mechanism, kept, strict=True):
        of_none = found is None or not 0 < found.iterations <= ITERATIONS_MAX
        used = ScramCredential("", mechanism, ITERATIONS_MAX, _NO_SALT, b"", b"") if found is None or of_none else found
        is_same = matches(used, salted(mechanism, text, used.salt, used.iterations))
        if rest := ITERATIONS_MAX - used.iterations:
            salted(mechanism, text, _NO_SALT, rest)
        accepted = accepted or (is_same and not of_none)
    return accepted and possible
