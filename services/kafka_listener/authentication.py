"""Finds out who is at the other end of a connection: by its certificate, or by SASL (KL-20 to KL-25)."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_listener.core import sasl
from kafka_listener.core.sasl import MalformedCredentialsError, State
from kafka_listener.core.scram import MalformedExchangeError, Scram, WrongProofError
from kafka_listener.messages.apis import api
from kip932.acls import ANONYMOUS, PRINCIPAL_TYPE
from kip932.errors import SaslAuthenticationFailedError, ThrottlingQuotaExceededError
from kip932.rpc.loopback import is_loopback
from kip932.rpc.transport import TransportStatus
from kip932.scram import Mechanism, ScramCredential
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.authentication import PASSWORD, TOKEN, UNKNOWN, Authentication, Identity
from shard_runtime.rpc.passwords import Passwords
from shard_runtime.rpc.status import RpcFailureError

_HANDSHAKE: Final = api("SaslHandshake")
_AUTHENTICATE: Final = api("SaslAuthenticate")
#: Kafka's numbers of the errors, for which nothing else here has a class.
_UNSUPPORTED_MECHANISM: Final = 33
_ILLEGAL_STATE: Final = 34
_NONCE_BYTES: Final = 24
#: In Kafka's words, by which its users search.
_WRONG_PASSWORD: Final = "Authentication failed: Invalid username or password"
_WRONG_PROOF: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"


@dataclass(frozen=True, slots=True)
class Checks:
    """What a node knows of its callers. `decoy_key`: a secret of this process (`core.scram`)."""

    authentication: Authentication
    passwords: Passwords
    access: Access | None = None
    decoy_key: bytes = field(default_factory=lambda: os.urandom(32))


class Authenticator:
    """One connection's authentication. `host`: the client's; `tls`: whether the connection has TLS; `certificate`: the
    client's in DER, None without one. `revoked` is called with the reason when its credentials are not accepted any
    more. Raises SaslAuthenticationFailedError for a certificate that no rule makes a name of.

    `refused`: whether the connection must be closed once the present answer was sent.
    """

    def __init__(
        self,
        checks: Checks,
        host: str,
        *,
        tls: bool,
        certificate: bytes | None,
        revoked: Callable[[str], None],
    ) -> None:
        self._checks = checks
        self._host = host
        self._revoked = revoked
        self.state = State.NONE
        self.identity = self._known_by(certificate)
        self.refused = False
        self._mechanisms = sasl.mechanisms(secrets=tls or is_loopback(host), tokens=checks.authentication.takes_tokens)
        self._chosen = ""
        self._scram: Scram | None = None
        self._token_refused = ""
        self._kept: tuple[str, Mechanism, ScramCredential] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def done(self) -> bool:
        """Whether requests other than those of SASL may come: SASL has ended well, or was not begun by a caller that
        may do something without it (KL-22)."""
        if self.state is not State.NONE:
            return self.state is State.DONE
        access, principal = self._checks.access, self.identity.principal
        return access is None or principal is not None or access.may_anything(ANONYMOUS, self._host)

    def handshake(self, request: Any) -> Any:
        """Answer SaslHandshake: begin an exchange, also a further one (KL-23)."""
        response = _HANDSHAKE.response(mechanisms=list(self._mechanisms))
        if self.state is State.BEGUN:
            response.error_code = _ILLEGAL_STATE
            self.refused = True
        elif request.mechanism not in self._mechanisms:
            response.error_code = _UNSUPPORTED_MECHANISM
            self.refused = True
            self._note("mechanism", "the mechanism that the client wants is not offered on this connection")
        else:
            self.state = State.BEGUN
            self._chosen, self._scram, self._token_refused = request.mechanism, None, ""
        return response

    async def authenticate(self, request: Any) -> Any:
        """Answer SaslAuthenticate with the next step of the exchange. Raises RpcFailureError where credentials cannot
        be checked at present: then close the connection."""
        response = _AUTHENTICATE.response()
        if self.state is not State.BEGUN:
            self.refused = True
            response.error_code = _ILLEGAL_STATE
            response.error_message = "SaslAuthenticate came without a SaslHandshake before it"
            return response
        try:
            response.auth_bytes = await self._step(request.auth_bytes)
        except SaslAuthenticationFailedError as error:
            self.refused = True
            response.error_code, response.error_message = error.code, error.message
        except ThrottlingQuotaExceededError as error:  # clients would take it for a refusal of what they have said
            raise RpcFailureError(TransportStatus.RESOURCE_EXHAUSTED, error.message) from None
        if self.done:
            response.session_lifetime_ms = self._checks.authentication.left_ms(self.identity)
        return response

    def users_changed(self) -> None:
        """Check a caller with SCRAM again, since users have changed."""
        if self._kept is not None:
            user, mechanism, credential = self._kept
            if self._checks.passwords.credential(user, mechanism) != credential:
                self._revoked("the user's password was changed, or the user removed")

    def close(self) -> None:
        """End what checks the credentials: the connection is closed."""
        self._closed = True
        self._watch_no_more()

    def _watch_no_more(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def _known_by(self, certificate: bytes | None) -> Identity:
        if certificate is None:
            return UNKNOWN
        pem = ssl.DER_cert_to_PEM_cert(certificate).encode()
        found = self._checks.authentication.known(None, lambda: {"x509_pem_cert": (pem,)})
        assert found is not None, "a certificate is known at once"
        return found

    async def _step(self, data: bytes) -> bytes:
        try:
            if self._chosen == sasl.PLAIN:
                return await self._plain(data)
            if self._chosen == sasl.OAUTHBEARER:
                return await self._token(data)
            return self._next_of_scram(data)
        except (MalformedCredentialsError, MalformedExchangeError) as error:
            self._note("malformed", str(error))
            raise SaslAuthenticationFailedError(f"Authentication failed: {error}") from None

    async def _plain(self, data: bytes) -> bytes:
        user, password = sasl.read_plain(data)
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        authorization = f"Basic {encoded}"
        try:
            identity = await self._identity(authorization)
        except SaslAuthenticationFailedError:
            raise SaslAuthenticationFailedError(_WRONG_PASSWORD) from None
        self._accept(identity, authorization)
        return b""

    async def _token(self, data: bytes) -> bytes:
        if self._token_refused:
            raise SaslAuthenticationFailedError(self._token_refused)
        authorization = f"Bearer {sasl.read_token(data)}"
        try:
            identity = await self._identity(authorization)
        except SaslAuthenticationFailedError as error:
            # The client answers this, and gets the error then (RFC 7628).
            self._token_refused = error.message
            return sasl.TOKEN_REFUSED
        self._accept(identity, authorization)
        return b""

    async def _identity(self, authorization: str) -> Identity:
        authentication = self._checks.authentication
        return authentication.known(authorization) or await authentication.check(authorization, self._host)

    def _next_of_scram(self, data: bytes) -> bytes:
        mechanism = sasl.SCRAM[self._chosen]
        if self._scram is None:
            nonce = secrets.token_urlsafe(_NONCE_BYTES)
            self._scram = Scram(mechanism, self._checks.passwords.credential, nonce, self._checks.decoy_key)
            return self._scram.first(data)
        scram = self._scram
        try:
            answer = scram.final(data)
        except WrongProofError:
            self._note("wrong password", f"no user {scram.user!r} with this password")
            raise SaslAuthenticationFailedError(_WRONG_PROOF.format(self._chosen)) from None
        assert scram.credential is not None, "a proof of no user is wrong"
        self._accept(Identity(f"{PRINCIPAL_TYPE}:{scram.user}", PASSWORD), None)
        self._kept = scram.user, mechanism, scram.credential
        self.users_changed()  # they may have changed since the exchange began
        return answer

    def _accept(self, identity: Identity, authorization: str | None) -> None:
        """Note who it is. Raises SaslAuthenticationFailedError for another one than before."""
        before = self.identity.principal
        if self._kept is not None or self._watch is not None:  # it was authenticated by SASL already
            if identity.principal != before:
                raise SaslAuthenticationFailedError(
                    f"Cannot change principals during re-authentication from {before} to {identity.principal}"
                )
            self._watch_no_more()
        self.identity, self.state, self._kept = identity, State.DONE, None
        if self._closed:  # the connection was lost while the credentials were checked
            return
        self._watch = asyncio.get_running_loop().create_task(
            self._watched(identity, authorization), name="kafka-credentials"
        )

    async def _watched(self, identity: Identity, authorization: str | None) -> None:
        """Wait until the credentials expire or are not accepted any more, and say so."""
        try:
            async with self._checks.authentication.stream_of(authorization, identity, self._host):
                await asyncio.get_running_loop().create_future()
        except SaslAuthenticationFailedError as error:
            self._revoked(error.message)

    def _note(self, reason: str, text: str) -> None:
        kind = TOKEN if self._chosen == sasl.OAUTHBEARER else PASSWORD
        self._checks.authentication.note(kind, reason, text, self._host)
