"""Quotas of clients (CM-191): whom a quota limits, what it limits, and which one applies to a caller. Pure; the
services and the command line share it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from kip932.nearest_name import did_you_mean

#: Bytes of record batches produced each second, at one node.
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
#: Bytes of record batches fetched each second, at one node.
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
#: Partitions created and deleted, and groups changed, each second, at one node.
MUTATION_RATE: Final = "controller_mutation_rate"

#: The quotas, and what each one counts per second.
QUOTA_KEYS: Final[Mapping[str, str]] = {
    PRODUCER_BYTE_RATE: "bytes",
    CONSUMER_BYTE_RATE: "bytes",
    MUTATION_RATE: "mutations",
}
#: The largest value: above it, not every whole number is a float.
QUOTA_MAX: Final = float(2**53)
#: The smallest value: about one mutation a day. A smaller one is a mistake in the unit.
QUOTA_MIN: Final = 1e-5
#: The maximum length of a user's name and of a client id, in characters.
ENTITY_NAME_MAX: Final = 255
#: The most entities that one request may change.
REQUEST_QUOTAS_MAX: Final = 1_000

#: Kafka's names for the parts of an entity.
USER: Final = "user"
CLIENT_ID: Final = "client-id"
#: The name of a default in a `QuotaEntity`.
DEFAULT: Final = ""
_NOT_HERE: Final = {
    "request_percentage": "the calls of one user are bounded in number and memory instead",
    "connection_creation_rate": "connections are not limited by address",
}
_PRINCIPAL: Final = "User:"


class QuotaEntity(NamedTuple):
    """Whom a quota limits: a user, a client id, or one client id of one user. "" means the default, for those that
    have no quota of their own; None leaves the part out. A user is named as in its principal, without `User:`."""

    user: str | None = None
    client_id: str | None = None

    @property
    def parts(self) -> list[tuple[str, str | None]]:
        """The parts as Kafka's requests have them: type and name, None for a default."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id))
        return [(kind, name or None) for kind, name in named if name is not None]

    @property
    def text(self) -> str:
        """The entity for a person, as Kafka's tool prints it: `user-principal 'alice', the default client-id`."""
        nouns = {USER: "user-principal", CLIENT_ID: "client-id"}
        return ", ".join(
            f"the default {nouns[kind]}" if name is None else f"{nouns[kind]} {name!r}" for kind, name in self.parts
        )


#: The quotas of a cluster: by entity, the values by key.
QuotasOf = Mapping[QuotaEntity, Mapping[str, float]]


class AppliedQuota(NamedTuple):
    """A quota that applies to a caller: `rate` a second for all callers that `shared_by` names, together. `set_on`:
    the entity that it was set on."""

    key: str
    rate: float
    shared_by: QuotaEntity
    set_on: QuotaEntity


def applied(quotas: QuotasOf, key: str, user: str, client_id: str) -> AppliedQuota | None:
    """Return the quota of this key for a caller, or None: the first that is set, in Kafka's order of precedence. A
    default gives each user, or each client id, a quota of its own (CM-191)."""
    for by_user, by_client in ((user, client_id), (user, None), (DEFAULT, client_id), (DEFAULT, None)):
        if by_client is None:
            places = [QuotaEntity(by_user)]
        else:
            places = [QuotaEntity(by_user, client_id), QuotaEntity(by_user, DEFAULT)]
        for place in places:
            if (rate := quotas.get(place, _NO_VALUES).get(key)) is not None:
                return AppliedQuota(key, rate, QuotaEntity(user, None if by_client is None else client_id), place)
    for place in (QuotaEntity(None, client_id), QuotaEntity(None, DEFAULT)):
        if (rate := quotas.get(place, _NO_VALUES).get(key)) is not None:
            return AppliedQuota(key, rate, QuotaEntity(None, client_id), place)
    return None


_NO_VALUES: Final[Mapping[str, float]] = MappingProxyType({})


def user_of(principal: str) -> str:
    """Return the name of a principal's user: `alice` of `User:alice`."""
    return principal.removeprefix(_PRINCIPAL)


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity | str:
    """Return the entity that a request names by types and names (None: the default), or the reason why there is no such
    entity, as a sentence."""
    found: dict[str, str] = {}
    for kind, name in parts:
        if refused := _refused_part(kind, name, found):
            return refused
        found[kind] = name or DEFAULT
    if not found:
        return f"the entity has no parts; expected a {USER}, a {CLIENT_ID}, or both"
    return QuotaEntity(found.get(USER), found.get(CLIENT_ID))


def _refused_part(kind: str, name: str | None, others: Mapping[str, str]) -> str:
    if kind == "ip":
        return "quotas of an ip are not served: they limit new connections; expected a user, a client-id, or both"
    if kind not in {USER, CLIENT_ID}:
        return f"unknown entity type {kind[:ENTITY_NAME_MAX]!r}; expected {USER} or {CLIENT_ID}"
    if kind in others:
        return f"the entity has two parts of the type {kind}; expected one"
    return "" if name is None else _refused_name(kind, name)


def _refused_name(kind: str, name: str) -> str:
    if name == "":
        return f"the name of the {kind} is empty; leave the name out for the default"
    if len(name) > ENTITY_NAME_MAX:
        return f"the name of the {kind} has {len(name)} characters; at most {ENTITY_NAME_MAX} are allowed"
    if kind == USER and name.startswith(_PRINCIPAL):
        return f"the user {name!r} begins with {_PRINCIPAL!r}; expected the name alone: {user_of(name)!r}"
    return ""


def refused_key(key: str) -> str:
    """Return the reason why there is no quota of this name, as a sentence; "" if there is one."""
    if key in QUOTA_KEYS:
        return ""
    if key in _NOT_HERE:
        return f"the quota {key} is not served here: {_NOT_HERE[key]}; there are {', '.join(QUOTA_KEYS)}"
    return f"unknown quota {key[:ENTITY_NAME_MAX]!r}; there are {', '.join(QUOTA_KEYS)}.{did_you_mean(key, QUOTA_KEYS)}"


def refused_value(key: str, value: float) -> str:
    """Return the reason why a quota cannot have this value, as a sentence; "" if it can."""
    what = QUOTA_KEYS[key]
    if not (math.isfinite(value) and QUOTA_MIN <= value <= QUOTA_MAX):
        return f"{key}={value:g} is not possible; expected more than 0 {what} a second, and at most {QUOTA_MAX:.0f}"
    if what == "bytes" and not value.is_integer():
        return f"{key}={value} is not a whole number; expected bytes a second"
    return ""


def quota_text(value: float) -> str:
    """Return a value as text: whole numbers without a fraction."""
    return str(int(value)) if value.is_integer() else str(value)
