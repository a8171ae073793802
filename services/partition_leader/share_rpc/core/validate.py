"""Validates requests as plain values (PL-321, PL-322, PL-401, PL-422, PL-423): each check raises or returns None.

It never reads sessions or share-partitions: it runs before either is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kip932.errors import InvalidRequestError
from kip932.failures import REASON_BYTES_MAX
from kip932.ids import (
    ACK_GAP,
    ACK_REJECT,
    ACK_RELEASE,
    ACK_RENEW,
    ACK_TYPE_MAX,
    ACQUIRE_BATCH_OPTIMIZED,
    ACQUIRE_RECORD_LIMIT,
    GROUP_ID_MAX,
    POLICY_DELAY,
)
from partition_leader.fetch.core.fetch_policy import FetchLimits
from partition_leader.share_partition.core.events import AckBatch

MEMBER_ID_LENGTH_MAX: Final = 36
#: The acknowledge types that may take a delivery back (PL-941).
_TAKES_BACK: Final = frozenset({ACK_RELEASE, ACK_RENEW})
_ACK_RANGES_HINT: Final = "acknowledge the ranges of acquired_records as they came"


def check_identity(group_id: str, member_id: str) -> None:
    """Check the group and member id of a request (PL-423, PL-501, CM-62). Raises InvalidRequestError."""
    if not group_id:
        raise InvalidRequestError("group_id is empty; expected the id of a share group")
    if len(group_id) > GROUP_ID_MAX:
        raise InvalidRequestError(f"group_id has {len(group_id)} characters; at most {GROUP_ID_MAX} are allowed")
    if not member_id:
        raise InvalidRequestError(f"member_id is empty in a request of group {group_id!r}; expected the member's id")
    if len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise InvalidRequestError(
            f"member_id of {len(member_id)} characters in a request of group {group_id!r}; expected at most "
            f"{MEMBER_ID_LENGTH_MAX}, such as a UUID's text"
        )


def check_limits(limits: FetchLimits, share_acquire_mode: int, is_renew_ack: bool) -> None:
    """Check the fields of a ShareFetch that do not depend on a session (PL-237, PL-322, PL-423).

    Raises InvalidRequestError; the session's epoch then does not advance.
    """
    if min(limits) < 0:
        negative = [f"{name} = {value}" for name, value in limits._asdict().items() if value < 0]
        raise InvalidRequestError(f"negative {', '.join(negative)}; expected 0 or more")
    if share_acquire_mode not in (ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT):
        raise InvalidRequestError(
            f"share_acquire_mode {share_acquire_mode} is unknown; expected 0 (batch optimized) or 1 (record limit)"
        )
    if is_renew_ack and any(limits):
        given = [f"{name} = {value}" for name, value in limits._asdict().items() if value]
        raise InvalidRequestError(f"is_renew_ack with {', '.join(given)}; a renewal fetches nothing: expected 0")


def check_acknowledgements(batches: Sequence[AckBatch], is_renew_ack: bool, delay_max_ms: int = POLICY_DELAY) -> None:
    """Check the acknowledgements of one partition, in request order (PL-321, PL-401, PL-930, PL-941,
    PL-942).

    Raises InvalidRequestError, which becomes that partition's error; the request's other partitions continue.
    """
    previous = -1
    for first, last, types, delays, undelivered, reason in batches:
        if first < 0 or first > last:
            raise InvalidRequestError(f"acknowledged offsets {first}-{last} are not a range; {_ACK_RANGES_HINT}")
        if first <= previous:
            raise InvalidRequestError(
                f"acknowledged offsets {first}-{last} come after {previous}; expected ascending ranges without overlap"
            )
        _check_types(first, last, types, is_renew_ack)
        if delays:
            _check_delays(first, last, types, delays, delay_max_ms)
        if undelivered:
            _check_undelivered(first, last, types, undelivered)
        if reason:
            _check_reason(first, last, types, reason)
        previous = last


def _check_types(first: int, last: int, types: Sequence[int], is_renew_ack: bool) -> None:
    name = f"offsets {first}-{last}"
    if not types:
        raise InvalidRequestError(f"no acknowledge type for {name}; expected one for all or one for each offset")
    if len(types) > 1 and len(types) != last - first + 1:
        raise InvalidRequestError(
            f"{len(types)} acknowledge types for {name}; expected one for all or {last - first + 1}"
        )
    lowest, highest = min(types), max(types)
    if lowest < ACK_GAP or highest > ACK_TYPE_MAX:
        unknown = lowest if lowest < ACK_GAP else highest
        raise InvalidRequestError(f"acknowledge type {unknown} for {name} is unknown; expected 0 to {ACK_TYPE_MAX}")
    if not is_renew_ack and ACK_RENEW in types:
        raise InvalidRequestError(f"acknowledge type {ACK_RENEW} (renew) for {name} needs is_renew_ack = true")


def _check_delays(first: int, last: int, types: Sequence[int], delays: Sequence[int], delay_max_ms: int) -> None:
    name, size = f"offsets {first}-{last}", last - first + 1
    if len(delays) not in (1, size):
        raise InvalidRequestError(f"{len(delays)} release delays for {name}; expected none, one for all or {size}")
    lowest, highest = min(delays), max(delays)
    if lowest < POLICY_DELAY:
        raise InvalidRequestError(
            f"release delay {lowest} ms for {name}; expected 0 or more, or -1 for the group's back-off"
        )
    if highest > delay_max_ms:
        raise InvalidRequestError(
            f"release delay {highest} ms for {name} is above {delay_max_ms} ms, which "
            "sharegroups.retry.delay.max.ms of the group allows; release it with less, or raise that config"
        )
    if set(types) != {ACK_RELEASE} and highest > POLICY_DELAY:
        _check_only_releases(first, last, types, delays)


def _check_only_releases(first: int, last: int, types: Sequence[int], delays: Sequence[int]) -> None:
    for at in range(last - first + 1):
        kind, delay = types[at if len(types) > 1 else 0], delays[at if len(delays) > 1 else 0]
        if kind != ACK_RELEASE and delay != POLICY_DELAY:
            raise InvalidRequestError(
                f"release delay {delay} ms for offset {first + at}, whose acknowledge type is {kind}; only type "
                f"{ACK_RELEASE} (release) has a delay: expected -1"
            )


def _check_undelivered(first: int, last: int, types: Sequence[int], undelivered: Sequence[bool]) -> None:
    size = last - first + 1
    if len(undelivered) not in (1, size):
        raise InvalidRequestError(
            f"{len(undelivered)} values of undelivered for offsets {first}-{last}; expected none, one for all or {size}"
        )
    if not any(undelivered) or _TAKES_BACK.issuperset(types):
        return
    for at in range(size):
        kind = types[at if len(types) > 1 else 0]
        if undelivered[at if len(undelivered) > 1 else 0] and kind not in _TAKES_BACK:
            raise InvalidRequestError(
                f"undelivered for offset {first + at}, whose acknowledge type is {kind}; only types {ACK_RELEASE} "
                f"(release) and {ACK_RENEW} (renew) take a delivery back: expected false"
            )


def _check_reason(first: int, last: int, types: Sequence[int], reason: str) -> None:
    size = len(reason.encode())
    if size > REASON_BYTES_MAX:
        raise InvalidRequestError(
            f"the reason for offsets {first}-{last} has {size} bytes; at most {REASON_BYTES_MAX} are allowed: cut it"
        )
    if ACK_RELEASE not in types and ACK_REJECT not in types:
        raise InvalidRequestError(
            f"a reason for offsets {first}-{last}, of acknowledge type {types[0]}; only types {ACK_RELEASE} (release) "
            f"and {ACK_REJECT} (reject) have one: leave it out"
        )
