"""Bearer tokens: what a file of tokens and a set of keys contain, and whether a JWT is acceptable (CM-186).

Pure: contents and times are passed in. PyJWT checks the signatures.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.api_jws import PyJWS

from kip932.acls import PRINCIPAL_TYPE
from kip932.printable import printable

#: How many bytes the contents of a key set or a file of tokens may have.
CONTENTS_MAX: Final = 1 << 20
#: How many keys a set, and how many lines a file of tokens may have.
KEYS_MAX: Final = 100
TOKENS_MAX: Final = 10_000
#: How many characters the name of a caller may have, as Kafka's names.
CALLER_MAX: Final = 249
#: An end that is further away counts as this one, in ms: about the year 5138.
_END_MAX_MS: Final = 100_000_000_000_000
_RSA_BITS_MIN: Final = 2_048
_SHOWN_MAX: Final = 60
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_EC: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
#: Never `none`, and no algorithm with a shared secret: a public key must not be usable as one.
ALGORITHMS: Final = frozenset({*_RSA, *_EC.values(), "EdDSA"})
_JWS: Final = PyJWS(algorithms=sorted(ALGORITHMS))
_HASH: Final = "sha256:"
_HASHED: Final = re.compile(r"sha256:([0-9a-fA-F]{64})")
#: What a bearer token may consist of (RFC 6750).
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_LINE: Final = re.compile(rf"{PRINCIPAL_TYPE}:(\S+)\s+(\S+)")


class ContentsError(Exception):
    """A key set or a file of tokens that cannot be used; the message says what was found and expected."""


class RefusedTokenError(Exception):
    """A token that is not accepted. `reason`: one of a few fixed texts, for metrics and limits of log lines. The
    message says which check failed, without a secret."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnknownKeyError(RefusedTokenError):
    """A token with a key id that the key set does not have: newer keys may have it."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the algorithms whose signatures it may check."""

    public: Any
    algorithms: frozenset[str]


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of a JWKS: by key id, and those without one. `remarks`: why others are left out."""

    by_id: Mapping[str, Key]
    unnamed: tuple[Key, ...] = ()
    remarks: tuple[str, ...] = ()

    def fitting(self, algorithm: str) -> list[Key]:
        """Return the keys that can check signatures of an algorithm."""
        return [key for key in (*self.by_id.values(), *self.unnamed) if algorithm in key.algorithms]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a JWT must say. `audiences` and `issuer`: not compared when empty. `skew_s`: how far clocks may differ."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    name_claim: str = "sub"
    skew_s: int = 30


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a token names, and the last moment at which it is accepted, in ms; None without an end."""

    name: str
    ends_ms: int | None


def parse_keys(contents: bytes) -> KeySet:
    """Return the usable keys of a JWKS (RFC 7517). Keys of other kinds or for other uses are left out, with a remark.
    Raises ContentsError when there is none."""
    try:
        found = json.loads(contents)
    except (ValueError, RecursionError):
        raise ContentsError("it is not JSON; expected a JWKS, an object with a list of keys") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise ContentsError('it is JSON without a list "keys"; expected a JWKS')
    if len(listed) > KEYS_MAX:
        raise ContentsError(f"it has {len(listed)} keys; at most {KEYS_MAX}")
    by_id: dict[str, Key] = {}
    unnamed: list[Key] = []
    remarks: list[str] = []
    for place, entry in enumerate(listed, 1):
        try:
            key = _key(_checked(entry))
        except ContentsError as error:
            remarks.append(f"key {place} is left out: {error}")
            continue
        key_id = entry.get("kid")
        if isinstance(key_id, str) and key_id in by_id:
            raise ContentsError(f"two keys have the id {_shown(key_id)}")
        if isinstance(key_id, str):
            by_id[key_id] = key
        else:
            unnamed.append(key)
    if not by_id and not unnamed:
        raise ContentsError(f"it has no key that can check tokens ({'; '.join(remarks) or 'it is empty'})")
    return KeySet(by_id, tuple(unnamed), tuple(remarks))


def _checked(entry: Any) -> dict[str, Any]:
    """Return `entry`, one key of a key set, if its fields can be compared. Raises ContentsError."""
    if not isinstance(entry, dict):
        raise ContentsError("it is not an object")
    if odd := [name for name in ("kty", "crv", "use") if not isinstance(entry.get(name), str | None)]:
        raise ContentsError(f"its {odd[0]} is not a string")
    return entry


def _key(entry: dict[str, Any]) -> Key:
    kind, curve, named = entry.get("kty"), entry.get("crv"), entry.get("alg")
    if kind == "RSA":
        algorithms = _RSA
    elif kind == "EC" and curve in _EC:
        algorithms = frozenset({_EC[curve]})
    elif kind == "OKP" and curve in {"Ed25519", "Ed448"}:
        algorithms = frozenset({"EdDSA"})
    else:
        raise ContentsError("it is neither RSA, nor EC on P-256, P-384 or P-521, nor Ed25519 or Ed448")
    if entry.get("use") not in {None, "sig"}:
        raise ContentsError("it is not for signatures (use)")
    operations = entry.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        raise ContentsError("it is not for checking signatures (key_ops)")
    if named is not None:
        algorithms &= {named} if isinstance(named, str) else set()
    if not algorithms:
        raise ContentsError(f"its algorithm (alg) is not one of {', '.join(sorted(ALGORITHMS))}, or not of its kind")
    try:
        public = jwt.PyJWK(entry, algorithm=min(algorithms)).key
    except Exception as error:  # PyJWT and what it calls raise many kinds of errors for values that make no key
        raise ContentsError(f"its values do not form a key ({type(error).__name__})") from None
    if hasattr(public, "public_key"):
        public = public.public_key()  # a private one was left in the set: it checks signatures like its public half
    if isinstance(public, RSAPublicKey) and public.key_size < _RSA_BITS_MIN:
        raise ContentsError(f"an RSA key of {public.key_size} bits; at least {_RSA_BITS_MIN}")
    return Key(public, frozenset(algorithms))


def check_token(token: str, keys: KeySet, policy: Policy, now_s: float) -> Caller:
    """Return whom a JWT names. Raises RefusedTokenError."""
    if _TOKEN.fullmatch(token) is None or token.count(".") != 2:
        raise RefusedTokenError("malformed", "the token is not a JWT that this node can read")
    header = _header(token)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise RefusedTokenError(
            "algorithm",
            f"the token's algorithm {_shown(algorithm)} is not allowed; expected {', '.join(sorted(ALGORITHMS))}",
        )
    key = _key_for(header, algorithm, keys)
    try:
        payload = _JWS.decode(token, key=key.public, algorithms=[algorithm])
        claims = json.loads(payload)
    except (jwt.InvalidSignatureError, jwt.InvalidKeyError, TypeError):
        raise RefusedTokenError("signature", "the token's signature is not that of the key that it names") from None
    except Exception:  # a token is anybody's bytes, and PyJWT raises more than it documents
        raise RefusedTokenError("malformed", "the token is not a JWT that this node can read") from None
    if not isinstance(claims, dict):
        raise RefusedTokenError("malformed", "the token's claims are no JSON object")
    return _caller(claims, policy, now_s)


def _header(token: str) -> dict[str, Any]:
    try:
        header = _JWS.get_unverified_header(token)
    except Exception:  # as in check_token
        raise RefusedTokenError("malformed", "the token is not a JWT that this node can read") from None
    return dict(header)


def _key_for(header: Mapping[str, Any], algorithm: str, keys: KeySet) -> Key:
    key_id = header.get("kid")
    if key_id is None:
        fitting = keys.fitting(algorithm)
        if len(fitting) != 1:
            found = f"{len(fitting)} keys of this node fit its algorithm {algorithm}"
            raise UnknownKeyError("unknown key", f"the token names no key (kid), and {found}; expected a kid")
        return fitting[0]
    key = keys.by_id.get(key_id) if isinstance(key_id, str) else None
    if key is None:
        raise UnknownKeyError("unknown key", f"the token's key id (kid) {_shown(key_id)} is not in this node's key set")
    if algorithm not in key.algorithms:
        raise RefusedTokenError(
            "algorithm",
            f"the token's algorithm {algorithm} is not that of the key {_shown(key_id)}, "
            f"which has {', '.join(sorted(key.algorithms))}",
        )
    return key


def _caller(claims: Mapping[str, Any], policy: Policy, now_s: float) -> Caller:
    ends_s = _time(claims, "exp")
    if ends_s is None:
        raise RefusedTokenError("no end", "the token has no end (exp); tokens that last forever are not accepted")
    if now_s >= ends_s + policy.skew_s:
        raise RefusedTokenError("expired", f"the token expired at {time_text(ends_s)}")
    begins_s = _time(claims, "nbf")
    if begins_s is not None and now_s < begins_s - policy.skew_s:
        raise RefusedTokenError(
            "not yet valid",
            f"the token is valid only from {time_text(begins_s)}, but here it is {time_text(now_s)}; check the clocks",
        )
    if policy.issuer and claims.get("iss") != policy.issuer:
        raise RefusedTokenError(
            "issuer", f"the token's issuer (iss) is {_shown(claims.get('iss'))}, not the expected one"
        )
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if policy.audiences and not any(each in policy.audiences for each in named if isinstance(each, str)):
        raise RefusedTokenError("audience", f"the token's audience (aud) is {_shown(audience)}, not this cluster")
    name = claims.get(policy.name_claim)
    if not isinstance(name, str) or not 0 < len(name) <= CALLER_MAX:
        raise RefusedTokenError(
            "no name", f"the token's claim {policy.name_claim} is not a text of 1 to {CALLER_MAX} characters"
        )
    return Caller(name, min(int((ends_s + policy.skew_s) * 1000), _END_MAX_MS))


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise RefusedTokenError("malformed", f"the token's {name} is not a number of seconds")
    return float(max(min(value, _END_MAX_MS // 1000), 0))


def time_text(seconds: float) -> str:
    """Return a time as people write it; seconds since 1970, from 0 on."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def token_hash(token: str) -> bytes:
    """Return the SHA-256 of a token, by which a file may name it."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def parse_static_tokens(contents: bytes, mode: int) -> dict[bytes, str]:
    """Return the callers' names by the hashes of their tokens. `mode`: the file's permissions. Raises ContentsError,
    which shows no token."""
    try:
        lines = contents.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ContentsError("it is not text in UTF-8") from None
    if mode & 0o022:
        raise ContentsError(f"others may change it (mode {mode & 0o777:04o}); expected 0600 or 0640")
    names: dict[bytes, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None or len(found[1]) > CALLER_MAX:
            raise ContentsError(
                f"line {number} is not {PRINCIPAL_TYPE}:NAME, a space, and a token or {_HASH} and its SHA-256"
            )
        digest = _digest(found[2], number, mode)
        if names.setdefault(digest, found[1]) != found[1]:
            raise ContentsError(f"line {number} has the token of another user")
        if len(names) > TOKENS_MAX:
            raise ContentsError(f"it has more than {TOKENS_MAX} tokens")
    return names


def _digest(token: str, number: int, mode: int) -> bytes:
    hashed = _HASHED.fullmatch(token)
    if hashed is not None:
        return bytes.fromhex(hashed[1])
    if token.startswith(_HASH) or _TOKEN.fullmatch(token) is None:
        raise ContentsError(
            f"line {number} has no token of letters, digits and ._~+/-=, and no {_HASH} with 64 hexadecimal digits"
        )
    if mode & 0o007:
        raise ContentsError(
            f"line {number} has a plain token, and others may read the file (mode {mode & 0o777:04o}); expected 0600 "
            f"or 0640, or {_HASH} with the token's SHA-256"
        )
    return token_hash(token)


def _shown(value: object) -> str:
    """Return a value of a token for a message: short, and safe for a terminal."""
    text = printable(value if isinstance(value, str) else json.dumps(value, default=str))
    return repr(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…")
