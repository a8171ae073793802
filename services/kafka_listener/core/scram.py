"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Kafka's clients speak it (KL-24).

A user that does not exist gets a salt, too, and fails at its proof: the exchange does not show who exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kip932.scram import ITERATIONS_DEFAULT, SALT_BYTES, USER_MAX, Mechanism, ScramCredential

#: How long a client's nonce may be, in characters.
NONCE_MAX: Final = 256
_ATTRIBUTE: Final = re.compile(r"([a-zA-Z])=([^,]*)")
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
#: The escapes of a comma and an equals sign in a name.
_ESCAPED: Final = re.compile(r"=(2C|3D)?")
_GS2: Final = ("n,", "y,")


class MalformedExchangeError(ValueError):
    """A message of the exchange is not one that the mechanism allows; the text says why and shows no secret."""


class WrongProofError(ValueError):
    """There is no such user, or it has another password."""


@dataclass(frozen=True, slots=True)
class First:
    """A client's first message. `bare`: without its header for channels; `header`: that one."""

    header: str
    bare: str
    user: str
    nonce: str


def read_first(data: bytes) -> First:
    """Read a client's first message. Raises MalformedExchangeError."""
    text = _text(data)
    if not text.startswith(_GS2):
        raise MalformedExchangeError("the client wants channel binding, which is not supported")
    authzid, comma, bare = text[2:].partition(",")
    if not comma:
        raise MalformedExchangeError("the first message has no header")
    found = _attributes(bare)
    if "m" in found:
        raise MalformedExchangeError("the client wants an extension that is not supported")
    if list(found)[:2] != ["n", "r"]:
        raise MalformedExchangeError("the first message does not begin with a name and a nonce")
    if any(part.startswith("tokenauth=") for part in bare.split(",")):
        raise MalformedExchangeError("delegation tokens are not supported")
    user, nonce = _unescaped(found["n"]), found["r"]
    if not 0 < len(user) <= USER_MAX:
        raise MalformedExchangeError(f"the name has {len(user)} characters; expected 1 to {USER_MAX}")
    if not len(nonce) <= NONCE_MAX or _NONCE.fullmatch(nonce) is None:
        raise MalformedExchangeError("the nonce is empty, too long or has other characters than printable ones")
    if authzid and (not authzid.startswith("a=") or _unescaped(authzid[2:]) != user):
        raise MalformedExchangeError("the client wants to act as another user, which is not supported")
    return First(text[: len(text) - len(bare)], bare, user, nonce)


class Scram:
    """One exchange. `credential_of` returns what is kept of a user's password; `nonce`: random characters, not used
    before; `decoy_key`: the node's secret, from which salts of users are made that do not exist.

    Call `first`, then `final`, once each.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        credential_of: Callable[[str, Mechanism], ScramCredential | None],
        nonce: str,
        decoy_key: bytes,
    ) -> None:
        self.mechanism = mechanism
        self.user = ""
        #: What was kept of the user when the exchange began; None for a user that does not exist.
        self.credential: ScramCredential | None = None
        self._credential_of = credential_of
        self._nonce = nonce
        self._decoy_key = decoy_key
        self._first: First | None = None
        self._server_first = ""

    def first(self, data: bytes) -> bytes:
        """Return the answer to the client's first message. Raises MalformedExchangeError."""
        first = read_first(data)
        self._first, self.user = first, first.user
        self.credential = self._credential_of(first.user, self.mechanism)
        if self.credential is None:
            salt = self._hmac(self._decoy_key, first.user.encode())[:SALT_BYTES]
            iterations = ITERATIONS_DEFAULT
        else:
            salt, iterations = self.credential.salt, self.credential.iterations
        encoded = base64.b64encode(salt).decode()
        self._server_first = f"r={first.nonce}{self._nonce},s={encoded},i={iterations}"
        return self._server_first.encode()

    def final(self, data: bytes) -> bytes:
        """Return the answer to the client's proof. Raises WrongProofError, MalformedExchangeError."""
        first = self._first
        assert first is not None, "call `first` before"
        text = _text(data)
        without_proof, comma, proof_text = text.rpartition(",p=")
        found = _attributes(without_proof)
        if not comma or list(found)[:2] != ["c", "r"]:
            raise MalformedExchangeError("the last message has no channel, nonce and proof")
        if _decoded(found["c"]) != first.header.encode() or found["r"] != first.nonce + self._nonce:
            raise MalformedExchangeError("the last message is not of this exchange")
        proof = _decoded(proof_text)
        kept = self.credential
        stored = self._hmac(self._decoy_key, b"stored") if kept is None else kept.stored_key
        if len(proof) != self.mechanism.size:
            raise MalformedExchangeError(f"the proof has {len(proof)} bytes; expected {self.mechanism.size}")
        message = f"{first.bare},{self._server_first},{without_proof}".encode()
        signature = self._hmac(stored, message)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self.mechanism.hash_name, client_key).digest(), stored)
        if kept is None or not is_right:
            raise WrongProofError
        return b"v=" + base64.b64encode(self._hmac(kept.server_key, message))

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.mechanism.hash_name)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedExchangeError("a message of the exchange is not text in UTF-8") from None


def _attributes(text: str) -> dict[str, str]:
    """Return the attributes with one letter, in their order. Others, which are extensions, are passed over. Raises
    MalformedExchangeError for one that comes twice."""
    found: dict[str, str] = {}
    for part in text.split(","):
        pair = _ATTRIBUTE.fullmatch(part)
        if pair is None:
            continue
        if pair[1] in found:
            raise MalformedExchangeError(f"a message of the exchange has the attribute {pair[1]} twice")
        found[pair[1]] = pair[2]
    return found


def _unescaped(name: str) -> str:
    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            raise MalformedExchangeError("the name has an equals sign that is not =2C or =3D")
        return "," if found[1] == "2C" else "="

    return _ESCAPED.sub(one, name)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedExchangeError("a message of the exchange is not in base64") from None
