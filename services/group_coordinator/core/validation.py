"""Checks of a heartbeat that need no group: GC-12, GC-14…GC-18 and the bounds of GC-23a, in Kafka's order.

The edge calls them, because Kafka refuses such a request before it checks which node is the coordinator. `heartbeat`
makes the checks that need the group (GC-19…GC-23).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from group_coordinator.core.commands import Heartbeat
from kip932.errors import InvalidRequestError
from kip932.ids import EPOCH_JOIN, EPOCH_LEAVE, GROUP_ID_MAX

MEMBER_ID_MAX: Final = 36
TOPIC_NAMES_MAX: Final = 1_000
TOPIC_NAME_MAX: Final = 249


def check_member_id(member_id: str) -> None:
    """Check the member id (GC-12). The edge calls this before it authorises topics (GC-13). Raises
    InvalidRequestError."""
    if not 1 <= len(member_id) <= MEMBER_ID_MAX:
        raise InvalidRequestError("Invalid member id in the request.")


def check_heartbeat(command: Heartbeat) -> None:
    """Check GC-14…GC-18 and GC-23a. The edge calls this after it authorised topics. Raises InvalidRequestError."""
    if not command.member_id.strip():
        raise InvalidRequestError("MemberId can't be empty.")
    if not command.group_id.strip():
        raise InvalidRequestError("GroupId can't be empty.")
    if command.rack_id is not None and not command.rack_id.strip():
        raise InvalidRequestError("RackId can't be empty.")
    if command.member_epoch == EPOCH_JOIN and not command.subscribed:
        raise InvalidRequestError("SubscribedTopicNames must be set in first request.")
    if command.member_epoch < EPOCH_LEAVE:
        raise InvalidRequestError("MemberEpoch is invalid.")
    _check_bounds(command)


def _check_bounds(command: Heartbeat) -> None:
    if len(command.group_id) > GROUP_ID_MAX:
        raise InvalidRequestError(
            f"GroupId has {len(command.group_id)} characters; at most {GROUP_ID_MAX} are allowed."
        )
    if command.rack_id is not None and len(command.rack_id) > GROUP_ID_MAX:
        raise InvalidRequestError(f"RackId has {len(command.rack_id)} characters; at most {GROUP_ID_MAX} are allowed.")
    check_names(command.subscribed or ())


def check_names(names: Sequence[str]) -> None:
    """Check how many topics are named, and their names' lengths (GC-23a). The edge calls this before it authorises them
    individually. Raises InvalidRequestError."""
    if len(names) > TOPIC_NAMES_MAX:
        raise InvalidRequestError(
            f"SubscribedTopicNames has {len(names)} names; at most {TOPIC_NAMES_MAX} are allowed."
        )
    if max(map(len, names), default=0) > TOPIC_NAME_MAX:
        raise InvalidRequestError(f"SubscribedTopicNames holds a name of more than {TOPIC_NAME_MAX} characters.")
