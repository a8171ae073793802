"""Users' passwords in SCRAM form (RFC 5802, RFC 7677): what is stored, and how a password is checked (CM-189). Pure.

Only a salted hash of a hash of a password is stored. It does not reveal the password and cannot be used in its place,
but anyone who has it can guess passwords offline, so no log line, error or response contains it.
"""

from __future__ import annotations

import hashlib
import hmac
import stringprep
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from unicodedata import ucd_3_2_0

from kip932.acls import ANONYMOUS, NAME_MAX, PRINCIPAL_TYPE, WILDCARD

#: As in Kafka. The default is also the maximum: it sets the cost of each guess for an attacker who has obtained the
#: stored hashes, and a caller pays it only once, since nodes remember accepted passwords.
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
ITERATIONS_DEFAULT: Final = ITERATIONS_MAX
#: How many bytes a salt may have, and how many the client draws.
SALT_MIN: Final = 8
SALT_MAX: Final = 64
SALT_BYTES: Final = 24
#: How many characters a password and a name may have. The name is a principal without `User:`.
PASSWORD_MAX: Final = 1_024
USER_MAX: Final = NAME_MAX - len(PRINCIPAL_TYPE) - 1
#: How many alterations, or names of users, one request may have (CM-62).
REQUEST_USERS_MAX: Final = 1_000

_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class Mechanism(IntEnum):
    """A SCRAM mechanism, with Kafka's number."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        """Its name in SASL, such as SCRAM-SHA-256."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of its hash in hashlib."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()

    @property
    def size(self) -> int:
        """How many bytes its hash has."""
        return hashlib.new(self.hash_name).digest_size


class RefusedPasswordError(ValueError):
    """The text cannot be a password; the message says why and does not show it."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a node stores for one user's password and one mechanism. `mechanism`: its number, perhaps one of a later
    version."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


#: Users' passwords by name and mechanism.
Credentials = Mapping[tuple[str, int], ScramCredential]


def mechanism_text(number: int) -> str:
    """Return the name of a mechanism; for an unknown one, its number."""
    known = {each.value: each.text for each in Mechanism}
    return known.get(number, f"mechanism {number}")


def prepared(password: str) -> str:
    """Return a password as SASLprep (RFC 4013) normalises it.

    Raises RefusedPasswordError for what that prohibits, for an empty password, and for one that is too long.
    """
    if len(password) > PASSWORD_MAX:
        raise RefusedPasswordError(f"the password has {len(password)} characters; at most {PASSWORD_MAX} are allowed")
    found = _saslprep(password)
    if found is None:
        raise RefusedPasswordError(
            "the password has a character that passwords may not have (RFC 4013): a control character, one that is "
            "newer than Unicode 3.2, such as most emoji, or writing from right to left mixed with other writing"
        )
    if not found:
        raise RefusedPasswordError("the password is empty; expected at least one visible character")
    return found


def _saslprep(text: str) -> str | None:
    """Return a text as SASLprep normalises a stored one; None if that prohibits it."""
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    found = ucd_3_2_0.normalize("NFKC", mapped)
    if any(stringprep.in_table_a1(each) or any(table(each) for table in _PROHIBITED) for each in found):
        return None
    if any(map(stringprep.in_table_d1, found)):  # from right to left: all of it, and at both ends
        ends = stringprep.in_table_d1(found[0]) and stringprep.in_table_d1(found[-1])
        if not ends or any(map(stringprep.in_table_d2, found)):
            return None
    return found


def salted_password(mechanism: Mechanism, prepared_password: str, salt: bytes, iterations: int) -> bytes:
    """Return Hi(password, salt, iterations) of RFC 5802. It takes about ten milliseconds, without holding Python's
    interpreter lock."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, prepared_password.encode(), salt, iterations)


def credential(user: str, mechanism: Mechanism, iterations: int, salt: bytes, salted: bytes) -> ScramCredential:
    """Return what is stored for a salted password."""
    stored_key = hashlib.new(mechanism.hash_name, _hmac(mechanism, salted, b"Client Key")).digest()
    return ScramCredential(user, mechanism, iterations, salt, stored_key, _hmac(mechanism, salted, b"Server Key"))


def matches(kept: ScramCredential, salted: bytes) -> bool:
    """Return whether this is the salted password from which a credential was made, in constant time. Raises ValueError
    for a mechanism that is not known."""
    mechanism = Mechanism(kept.mechanism)
    made = credential(kept.user, mechanism, kept.iterations, kept.salt, salted)
    return hmac.compare_digest(made.stored_key, kept.stored_key)


def refused_user(name: str) -> str:
    """Return the reason why a user cannot have this name, as a sentence; "" if it can."""
    if not name:
        return "the user's name is empty; expected a name such as alice"
    if len(name) > USER_MAX:
        return f"the user's name has {len(name)} characters; at most {USER_MAX} are allowed"
    if f"{PRINCIPAL_TYPE}:{name}" == ANONYMOUS or name == WILDCARD:
        return f"no user can be named {name!r}: access control entries use {PRINCIPAL_TYPE}:{name} for other callers"
    if ":" in name:
        meant = name.removeprefix(f"{PRINCIPAL_TYPE}:")
        hint = f"; write {meant}" if meant and ":" not in meant and meant != name else ""
        return f"the user's name {name!r} has a colon, after which the password begins when a client calls{hint}"
    if name != name.strip() or _saslprep(name) != name:
        return (
            f"the user's name {name!r} has spaces at an end, or characters that are not shown or have another, normal "
            "form (RFC 4013), so that two names could look alike"
        )
    return ""


def refused_iterations(iterations: int) -> str:
    """Return the reason why a password cannot be stored with this number of iterations, as a sentence; "" if it can."""
    if ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        return ""
    return f"the number of iterations is {iterations}; expected {ITERATIONS_MIN} to {ITERATIONS_MAX}"


def refused_terms(mechanism: Mechanism, iterations: int, salt: bytes, salted: bytes) -> str:
    """Return the reason why a password cannot be stored in this form, as a sentence; "" if it can."""
    if refused := refused_iterations(iterations):
        return refused
    if not SALT_MIN <= len(salt) <= SALT_MAX:
        return f"the salt has {len(salt)} bytes; expected {SALT_MIN} to {SALT_MAX} random ones"
    if len(salted) != mechanism.size:
        return f"the salted password has {len(salted)} bytes; with {mechanism.text} it has {mechanism.size}"
    return ""


def _hmac(mechanism: Mechanism, key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, mechanism.hash_name)
