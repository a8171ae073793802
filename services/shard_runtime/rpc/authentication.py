"""Answers who calls: by a bearer token, a name and password, or the certificate of the connection (CM-60, CM-186,
CM-187). The adapter asks for each call; access control decides afterwards what that caller may do.

Accepted credentials are remembered, so that a signature or a password is checked once. Where nothing but certificates
is configured, a call costs one dictionary look-up.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import structlog
from cryptography import x509
from cryptography.x509.oid import NameOID

from kip932.acls import PRINCIPAL_TYPE
from kip932.errors import SaslAuthenticationFailedError, ThrottlingQuotaExceededError
from kip932.principal_rules import DEFAULT_RULES, Rule, mapped
from kip932.printable import printable
from kip932.rpc.transport import TransportStatus
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.status import RpcFailureError
from shard_runtime.rpc.token_sources import Source
from shard_runtime.rpc.tokens import (
    CALLER_MAX,
    KeySet,
    Policy,
    RefusedTokenError,
    UnknownKeyError,
    check_token,
    time_text,
    token_hash,
)

log = structlog.get_logger(__name__)

#: How long credentials may be, in characters: gRPC itself refuses calls with 8 KiB of metadata or more, at random.
CREDENTIALS_MAX: Final = 7_168
#: How many accepted credentials, and how many certificates' names are remembered; then the oldest are forgotten.
REMEMBERED_MAX: Final = 10_000
#: How many passwords of callers from one host are checked, or wait for that, at a time (CM-190).
PASSWORDS_PER_HOST_MAX: Final = 20
#: A timer runs for at most this long, in seconds; a stream that outlives it has its time checked at each message.
_TIMER_MAX_S: Final = 10 * 365 * 86_400.0

#: A stream is asked to move at a random part of the time that its token has left, from the first of these on, as long
#: as the second; with less than the third, in seconds, it is not asked.
_MOVE_FROM: Final = 0.8
_MOVE_OVER: Final = 0.1
_MOVE_LEAST_S: Final = 1.0

CERTIFICATE: Final = "certificate"
TOKEN: Final = "token"
PASSWORD: Final = "password"
ANONYMOUS: Final = "anonymous"

#: Returns whether a name and password belong together. It must not block the event loop, bounds how many wait, and may
#: raise a KafkaError.
PasswordCheck = Callable[[str, str], Awaitable[bool]]
#: What gRPC knows about a connection: `ServicerContext.auth_context`.
Connection = Callable[[], Mapping[str, Iterable[bytes]]]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls. `principal`: None if it is not known; `kind`: one of CERTIFICATE, TOKEN, PASSWORD and ANONYMOUS;
    `expires_ms`: when this ends, in ms since 1970, None if it does not."""

    principal: str | None
    kind: str
    expires_ms: int | None = None


#: A caller without credentials.
UNKNOWN: Final = Identity(None, ANONYMOUS)


@dataclass(frozen=True, slots=True)
class _Accepted:
    identity: Identity
    epoch: tuple[int, int]


class _Stream:
    """A stream of a caller with credentials: when it ends, and, if they were refused later, why."""

    __slots__ = ("authorization", "ends", "host", "identity", "reason")

    def __init__(self, authorization: str, identity: Identity, host: str, ends: asyncio.Timeout) -> None:
        self.authorization = authorization
        self.identity = identity
        self.host = host
        self.ends = ends
        self.reason: Exception | None = None


class Authentication:
    """Says who calls one node. Without arguments it takes certificates alone, and refuses tokens and passwords.

    `keys`: the key set of JWTs; `static`: names by the hashes of their tokens. `rules`: what makes names of
    certificates. `now`: seconds since 1970. `for_nodes`: for the port of nodes. `failures`: refusals by kind and
    reason.
    """

    def __init__(
        self,
        *,
        keys: Source[KeySet] | None = None,
        static: Source[dict[bytes, str]] | None = None,
        policy: Policy | None = None,
        rules: Sequence[Rule] = DEFAULT_RULES,
        now: Callable[[], float] = time.time,
        for_nodes: bool = False,
        lines: RateLimitedLog | None = None,
    ) -> None:
        self.failures: Final[Counter[tuple[str, str]]] = Counter()
        self._keys, self._static, self._policy = keys, static, policy or Policy()
        self._rules = tuple(rules)
        self._now = now
        self._for_nodes = for_nodes
        self._lines = lines or RateLimitedLog(log)
        self._password_check: PasswordCheck | None = None
        self._password_version: Callable[[], int] = lambda: 0
        self._changes = 0
        self._salt = os.urandom(32)
        self._accepted: dict[bytes, _Accepted] = {}
        self._checking: dict[bytes, asyncio.Task[Identity]] = {}
        self._certificates: dict[bytes, Identity | SaslAuthenticationFailedError] = {}
        self._hosts: Counter[str] = Counter()
        self._streams: set[_Stream] = set()
        self._rechecking: asyncio.Task[None] | None = None

    @property
    def takes_tokens(self) -> bool:
        """Whether this node's settings have it accept tokens. Passwords, which every node checks, need a user first."""
        return self._keys is not None or self._static is not None

    @property
    def sources(self) -> tuple[Source[Any], ...]:
        """Where keys and tokens are read from."""
        return tuple(each for each in (self._keys, self._static) if each is not None)

    def take_passwords(self, check: PasswordCheck, version: Callable[[], int]) -> None:
        """Accept names and passwords from now on. `version` grows when an earlier answer of `check` may no longer hold;
        call `changed`, too, to end the streams of such callers at once."""
        self._password_check, self._password_version = check, version

    async def watch(self) -> None:
        """Read keys and static tokens again while the node runs; returns at once if there are none."""
        await asyncio.gather(*(each.watch() for each in self.sources))

    def changed(self) -> None:
        """Check all credentials again: keys, tokens or passwords have changed. Streams whose credentials are not
        accepted any more end. Call it on the event loop."""
        self._changes += 1
        if self._streams and (self._rechecking is None or self._rechecking.done()):
            self._rechecking = asyncio.get_running_loop().create_task(self._recheck())

    # Who calls.

    def known(self, authorization: str | None, connection: Connection | None = None) -> Identity | None:
        """Return who calls, as far as that is known at once; None if `check` has to find out.

        `authorization`: that metadata; `connection`: None without TLS. Raises SaslAuthenticationFailedError for a
        certificate that no rule makes a name of.
        """
        if authorization is None:
            return UNKNOWN if connection is None else self._certificate(connection())
        key = self._key(authorization)
        found = self._accepted.get(key)
        if found is None:
            return None
        if found.epoch != self._epoch() or self._has_ended(found.identity):
            del self._accepted[key]
            return None
        return found.identity

    async def check(self, authorization: str, host: str = "") -> Identity:
        """Return whom the credentials name, and remember it. Raises SaslAuthenticationFailedError if they are not
        accepted, RpcFailureError or ThrottlingQuotaExceededError if they cannot be checked at present. `host`: the
        caller's, for the log."""
        if len(authorization) > CREDENTIALS_MAX:
            error = RefusedTokenError("too long", f"the credentials have more than {CREDENTIALS_MAX} characters")
            raise self._refused(TOKEN, error, host)
        key = self._key(authorization)
        scheme, _, value = authorization.partition(" ")
        kind = PASSWORD if scheme.lower() == "basic" else TOKEN
        task = self._checking.get(key)
        if task is None:
            # Its own task: the caller that came first may leave before the others.
            task = asyncio.get_running_loop().create_task(self._find_out(key, scheme.lower(), value.strip(), host))
            self._checking[key] = task
            task.add_done_callback(lambda done: self._checked(key, done))
        try:
            return await asyncio.shield(task)
        except RefusedTokenError as error:
            raise self._refused(kind, error, host) from None

    @asynccontextmanager
    async def stream_of(self, authorization: str | None, identity: Identity, host: str = "") -> AsyncIterator[None]:
        """Run a stream's handler in this context: it is cancelled when the caller's credentials expire, or are not
        accepted any more, and SaslAuthenticationFailedError with the reason is raised. One timer, no polling."""
        if authorization is None:
            yield
            return
        delay_s = None
        if identity.expires_ms is not None:
            delay_s = min(max(0.0, identity.expires_ms / 1000 - self._now()), _TIMER_MAX_S)
        async with self._open(_Stream(authorization, identity, host, asyncio.timeout(delay_s))) as stream:
            try:
                async with stream.ends:
                    yield
            except TimeoutError:
                if not stream.ends.expired():
                    raise
                raise stream.reason or ended(identity, self._policy.skew_s) from None

    async def refresh(self, authorization: str | None, identity: Identity, host: str) -> None:
        """Check a stream's credentials again where something has changed since they were accepted: for each of its
        messages. Raises SaslAuthenticationFailedError; what cannot be checked at present stays accepted."""
        if authorization is None:
            return
        if self._has_ended(identity):
            raise ended(identity, self._policy.skew_s)
        try:
            found = self.known(authorization) or await self.check(authorization, host)
        except (RpcFailureError, ThrottlingQuotaExceededError):
            return  # it was accepted, and cannot be checked at present; the next message does it
        if found.principal != identity.principal:
            raise SaslAuthenticationFailedError("the credentials are another user's now; open a new stream")

    def move_in_s(self, identity: Identity) -> float | None:
        """Return the number of seconds after which a stream that is opened now should be asked to move, so that a
        client with a newer token continues with that one; None for credentials that do not expire, or that expire too
        soon (CM-199)."""
        if identity.expires_ms is None:
            return None
        left_s = identity.expires_ms / 1000 - self._now()
        return None if left_s < _MOVE_LEAST_S else left_s * (_MOVE_FROM + _MOVE_OVER * random.random())

    def left_ms(self, identity: Identity) -> int:
        """Return for how long credentials are still accepted, in ms; 0 for those without an end."""
        if identity.expires_ms is None:
            return 0
        return max(1, int(identity.expires_ms - self._now() * 1000))

    def name_of(self, pem: bytes) -> str | None:
        """Return the principal that a certificate has, in PEM; None without a name."""
        found = self._named(pem)
        return found.principal if isinstance(found, Identity) else None

    # Steps.

    @asynccontextmanager
    async def _open(self, stream: _Stream) -> AsyncIterator[_Stream]:
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)

    async def _recheck(self) -> None:
        """Check the credentials of all open streams; again if they change meanwhile."""
        done = -1
        while done != self._changes:
            done = self._changes
            for stream in list(self._streams):
                try:
                    await self.refresh(stream.authorization, stream.identity, stream.host)
                except SaslAuthenticationFailedError as error:
                    if stream in self._streams and not stream.ends.expired():
                        stream.reason = error
                        stream.ends.reschedule(asyncio.get_running_loop().time())

    def _checked(self, key: bytes, task: asyncio.Task[Identity]) -> None:
        del self._checking[key]
        if not task.cancelled():
            task.exception()  # avoids a warning from asyncio: every caller that waited may have been cancelled

    async def _find_out(self, key: bytes, scheme: str, value: str, host: str) -> Identity:
        # Before the check: what changes while it runs makes its answer an old one.
        epoch = self._epoch()
        if scheme == "basic":
            identity = await self._password(value, host)
        elif scheme == "bearer":
            identity = await self._token(value)
        else:
            raise RefusedTokenError("scheme", 'the authorization is neither "Bearer TOKEN" nor "Basic NAME:PASSWORD"')
        while len(self._accepted) >= REMEMBERED_MAX:
            del self._accepted[next(iter(self._accepted))]
        self._accepted[key] = _Accepted(identity, epoch)
        return identity

    async def _token(self, token: str) -> Identity:
        if self._static is not None and self._static.current is not None:
            name = self._static.current.get(token_hash(token))
            if name is not None:
                return Identity(f"{PRINCIPAL_TYPE}:{name}", TOKEN)
        if self._keys is None:
            if self._static is not None:
                raise RefusedTokenError("unknown token", "the token is none of those that this node knows")
            raise RefusedTokenError("not taken", self._none_taken("tokens", "sasl.oauthbearer.jwks.endpoint.url"))
        try:
            caller = check_token(token, self._key_set(), self._policy, self._now())
        except UnknownKeyError:
            await self._keys.ask_again()
            caller = check_token(token, self._key_set(), self._policy, self._now())
        return Identity(f"{PRINCIPAL_TYPE}:{caller.name}", TOKEN, caller.ends_ms)

    def _key_set(self) -> KeySet:
        keys = self._keys
        if keys is None or keys.current is None:
            why = "" if keys is None else f" ({keys.reason})"
            raise RpcFailureError(TransportStatus.UNAVAILABLE, f"this node has no keys to check tokens with yet{why}")
        return keys.current

    async def _password(self, encoded: str, host: str) -> Identity:
        check = self._password_check
        if check is None:
            raise RefusedTokenError("not taken", self._none_taken("passwords", ""))
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, ValueError):
            raise RefusedTokenError("malformed", "the authorization is not a name and password in base64") from None
        if not colon or not 0 < len(name) <= CALLER_MAX:
            raise RefusedTokenError("malformed", "the authorization has no name, colon and password")
        if self._hosts[host] >= PASSWORDS_PER_HOST_MAX:
            raise ThrottlingQuotaExceededError(
                f"{PASSWORDS_PER_HOST_MAX} passwords from this host are being checked at this node; try again"
            )
        self._hosts[host] += 1
        try:
            accepted = await check(name, password)
        finally:
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]
        if not accepted:  # not which of them is wrong: that would say which users there are
            raise RefusedTokenError("wrong password", f"no user {printable(name)!r} with this password")
        return Identity(f"{PRINCIPAL_TYPE}:{name}", PASSWORD)

    def _none_taken(self, what: str, setting: str) -> str:
        if self._for_nodes:
            return f"this is the port for nodes, which takes no {what}; clients call listen.port"
        hint = f" (an administrator turns them on with {setting})" if setting else ""
        return f"this node takes no {what}{hint}; without one a client is known by its certificate"

    def _certificate(self, connection: Mapping[str, Iterable[bytes]]) -> Identity:
        common = next(iter(connection.get("x509_common_name", ())), None)
        if common and self._rules == DEFAULT_RULES:
            return Identity(f"{PRINCIPAL_TYPE}:{common.decode('utf-8', 'replace')}", CERTIFICATE)
        pem = next(iter(connection.get("x509_pem_cert", ())), None)
        if pem is None:
            return UNKNOWN
        found = self._named(pem)
        if isinstance(found, Identity):
            return found
        self.note(CERTIFICATE, "no rule", found.message, "")
        raise SaslAuthenticationFailedError(found.message)

    def _named(self, pem: bytes) -> Identity | SaslAuthenticationFailedError:
        found = self._certificates.get(pem)
        if found is None:
            while len(self._certificates) >= REMEMBERED_MAX:
                del self._certificates[next(iter(self._certificates))]
            found = self._certificates[pem] = certificate_identity(pem, self._rules)
        return found

    def _key(self, authorization: str) -> bytes:
        return blake2b(authorization.encode("utf-8", "surrogateescape"), digest_size=16, key=self._salt).digest()

    def _epoch(self) -> tuple[int, int]:
        return self._changes, self._password_version()

    def _has_ended(self, identity: Identity) -> bool:
        return identity.expires_ms is not None and self._now() * 1000 >= identity.expires_ms

    def _refused(self, kind: str, error: RefusedTokenError, host: str) -> SaslAuthenticationFailedError:
        self.note(kind, error.reason, str(error), host)
        return SaslAuthenticationFailedError(str(error))

    def note(self, kind: str, reason: str, text: str, host: str) -> None:
        """Count credentials that are refused, and log it, without a secret. `kind`: as of an Identity; `reason`: a few
        words for the counter."""
        self.failures[kind, reason] += 1
        self._lines.warning("authentication_refused", key=(host, reason), host=host, kind=kind, cause=text)


def ended(identity: Identity, skew_s: int) -> SaslAuthenticationFailedError:
    """Return the error for a caller whose token has expired."""
    at = "" if identity.expires_ms is None else f" at {time_text(identity.expires_ms / 1000 - skew_s)}"
    return SaslAuthenticationFailedError(f"the token expired{at}")


def certificate_identity(pem: bytes, rules: Sequence[Rule]) -> Identity | SaslAuthenticationFailedError:
    """Return whom a certificate names by these rules (CM-187), or the error if no rule matches it."""
    certificate = x509.load_pem_x509_certificate(pem)
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    default = str(common[0].value) if common else _uri(certificate)
    subject = certificate.subject.rfc4514_string()
    name = mapped(rules, subject, default)
    if name:
        return Identity(f"{PRINCIPAL_TYPE}:{name}", CERTIFICATE)
    if name is None and rules == DEFAULT_RULES:
        return UNKNOWN
    return SaslAuthenticationFailedError(
        f"no rule of ssl.principal.mapping.rules makes a name of the certificate's subject {printable(subject)!r}"
    )


def _uri(certificate: x509.Certificate) -> str | None:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):  # ValueError: extensions that cannot be read
        return None
    return next(iter(names.get_values_for_type(x509.UniformResourceIdentifier)), None)
