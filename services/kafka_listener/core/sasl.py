"""The states of a connection's authentication, and the messages of its mechanisms (KL-20 to KL-25).

    NONE ── SaslHandshake ──▶ BEGUN ── SaslAuthenticate … ──▶ DONE ── SaslHandshake ──▶ BEGUN (again, KL-23)

Nothing here checks a password or a token: the host does, with what the messages say.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from kip932.scram import Mechanism

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
#: The mechanisms with SCRAM, by their names in SASL.
SCRAM: Final = {each.text: each for each in Mechanism}
#: How long one message of an exchange may be, in bytes.
MESSAGE_MAX: Final = 16 * 1024
#: The answer to a token that is not accepted; the client answers it once more before it gets the error.
TOKEN_REFUSED: Final = b'{"status":"invalid_token"}'
#: A client's answer to that.
TOKEN_REFUSED_SEEN: Final = b"\x01"


class State(Enum):
    """How far a connection's authentication is."""

    NONE = auto()
    BEGUN = auto()
    DONE = auto()


class MalformedCredentialsError(ValueError):
    """A message is not one of its mechanism; the text says why and shows no secret."""


class Password(NamedTuple):
    """What a client says with PLAIN."""

    user: str
    password: str


def mechanisms(*, secrets: bool, tokens: bool) -> tuple[str, ...]:
    """Return the mechanisms that a connection may choose from. `secrets`: whether passwords and tokens may be sent as
    they are: with TLS, or on this machine (KL-21); `tokens`: whether the node accepts any."""
    return (
        *([PLAIN] if secrets else []),
        *SCRAM,
        *([OAUTHBEARER] if secrets and tokens else []),
    )


def read_plain(data: bytes) -> Password:
    """Read the one message of PLAIN: the user to act as, the user and its password, with zero bytes between. Raises
    MalformedCredentialsError."""
    parts = _text(data).split("\0")
    if len(parts) != 3:
        raise MalformedCredentialsError(f"the message of PLAIN has {len(parts)} parts; expected 3")
    acts_as, user, password = parts
    if not user or not password:
        raise MalformedCredentialsError("the message of PLAIN has no name or no password")
    if ":" in user:
        raise MalformedCredentialsError("the name has a colon, which no user's name has")
    if acts_as not in {"", user}:
        raise MalformedCredentialsError("the client wants to act as another user, which is not supported")
    return Password(user, password)


def read_token(data: bytes) -> str:
    """Read the first message of OAUTHBEARER (RFC 7628), and return its token. Raises MalformedCredentialsError."""
    header, separator, rest = _text(data).partition("\x01")
    if not separator or not header.startswith(("n,", "y,")) or not header.endswith(","):
        raise MalformedCredentialsError("the message of OAUTHBEARER has no supported header")
    for pair in rest.split("\x01"):
        name, _, value = pair.partition("=")
        scheme, _, token = value.partition(" ")
        if name == "auth" and scheme.lower() == "bearer" and token.strip():
            return token.strip()
    raise MalformedCredentialsError("the message of OAUTHBEARER has no bearer token")


def _text(data: bytes) -> str:
    if len(data) > MESSAGE_MAX:
        raise MalformedCredentialsError(f"the message has {len(data)} bytes; at most {MESSAGE_MAX} are allowed")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedCredentialsError("the message is not text in UTF-8") from None
