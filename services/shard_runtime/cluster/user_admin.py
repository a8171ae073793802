"""DescribeUserScramCredentials, AlterUserScramCredentials: users' passwords in the metadata log (CM-189).

All alterations of a user are stored or none; those of one request become one version of the metadata. Salts, hashes and
keys stand in no response, error or log line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from kip932.acls import CLUSTER_NAME, ResourceType
from kip932.api.v1.alter_user_scram_credentials_pb2 import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kip932.api.v1.describe_user_scram_credentials_pb2 import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import (
    DuplicateResourceError,
    InvalidRequestError,
    KafkaError,
    RequestTimedOutError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from kip932.printable import printable
from kip932.scram import (
    REQUEST_USERS_MAX,
    USER_MAX,
    Mechanism,
    ScramCredential,
    credential,
    mechanism_text,
    refused_terms,
    refused_user,
)
from shard_runtime.cluster.metadata import Change, MetadataImage, ScramCredentialRemoved, ScramCredentialSet
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.record_log.protocol import LogError
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns
from shard_runtime.rpc.change_log import log_changes
from shard_runtime.rpc.status import invalid_argument

#: The most passwords of a cluster: every node has all of them in memory, and a snapshot in one entry.
CLUSTER_PASSWORDS_MAX: Final = 10_000
#: How many users are checked or listed before other tasks get a turn.
USERS_SLICE: Final = 500

_Alteration = ScramCredentialSet | ScramCredentialRemoved
_Deletion = AlterUserScramCredentialsRequest.Deletion
_Upsertion = AlterUserScramCredentialsRequest.Upsertion
_MECHANISMS: Final = " or ".join(f"{each.value} {each.text}" for each in Mechanism)


class UserAdmin:
    """Serves the two RPCs."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata

    async def describe_user_scram_credentials(
        self, request: DescribeUserScramCredentialsRequest, context: CallContext
    ) -> DescribeUserScramCredentialsResponse:
        """Return users with the mechanisms and iterations of their passwords."""
        _bounded(len(request.users), "users")
        if error := context.refusal(ResourceType.CLUSTER, CLUSTER_NAME):
            return DescribeUserScramCredentialsResponse(
                error_code=ErrorCode.ValueType(error.code), error_message=error.message
            )
        kept = self._metadata.image.credentials
        by_user: dict[str, list[ScramCredential]] = {}
        for each in kept.values():
            by_user.setdefault(each.user, []).append(each)
        named = Counter(user.name for user in request.users) or dict.fromkeys(sorted(by_user), 1)
        response, turns = DescribeUserScramCredentialsResponse(), Turns(USERS_SLICE)
        for name, times in named.items():
            await turns.step()
            result = response.results.add(user=name)
            found = by_user.get(name, [])
            if times > 1:
                refused: KafkaError = DuplicateResourceError(f"the request names the user {_shown(name)} twice")
            elif not found:
                refused = _unknown(name)
            else:
                for each in sorted(found, key=lambda one: one.mechanism):
                    result.credential_infos.add(mechanism=each.mechanism, iterations=each.iterations)
                continue
            result.error_code, result.error_message = ErrorCode.ValueType(refused.code), refused.message
        return response

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, context: CallContext
    ) -> AlterUserScramCredentialsResponse:
        """Set and remove users' passwords."""
        _bounded(len(request.deletions) + len(request.upsertions), "alterations")
        if refusal := context.refusal(ResourceType.CLUSTER, CLUSTER_NAME):
            names = [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
            return _altered(dict.fromkeys(names, refusal))
        checked = await _checked(request)
        outcomes: dict[str, KafkaError | None] = {}
        changes: list[_Alteration] = []

        def decide(image: MetadataImage) -> Sequence[Change]:
            nonlocal outcomes
            outcomes, changes[:] = _decided(image, checked)
            return changes

        try:
            await self._metadata.change(decide)
        except LogError as error:
            lost = RequestTimedOutError(f"not confirmed by the store, it may still take effect: {error}")
            known = outcomes or {name: one if isinstance(one, KafkaError) else None for name, one in checked.items()}
            return _altered({name: outcome or lost for name, outcome in known.items()})
        log_changes("users_altered", context, [_text(change) for change in changes])
        return _altered(outcomes)


async def _checked(request: AlterUserScramCredentialsRequest) -> dict[str, list[_Alteration] | KafkaError]:
    """Return the alterations of each user, or why they cannot be made, as far as the request alone shows it."""
    found: dict[str, list[_Alteration] | KafkaError] = {}
    seen: set[tuple[str, int]] = set()
    turns = Turns(USERS_SLICE)
    wanted: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    for each in wanted:
        await turns.step()
        so_far = found.setdefault(each.name, [])
        if isinstance(so_far, KafkaError):
            continue
        alteration = _alteration(each)
        if (each.name, each.mechanism) in seen:
            alteration = DuplicateResourceError(
                f"the request alters the {mechanism_text(each.mechanism)} password of {_shown(each.name)} twice"
            )
        seen.add((each.name, each.mechanism))
        if isinstance(alteration, KafkaError):
            found[each.name] = alteration
        else:
            so_far.append(alteration)
    return found


def _alteration(wanted: _Deletion | _Upsertion) -> _Alteration | KafkaError:
    if wanted.mechanism not in set(Mechanism):
        found = f"mechanism {wanted.mechanism} is not known" if wanted.mechanism else "the mechanism is not set"
        return UnsupportedSaslMechanismError(f"{found}; expected {_MECHANISMS}")
    if not isinstance(wanted, _Upsertion):
        return ScramCredentialRemoved(wanted.name, wanted.mechanism)
    mechanism = Mechanism(wanted.mechanism)
    refused = refused_user(wanted.name) or refused_terms(
        mechanism, wanted.iterations, wanted.salt, wanted.salted_password
    )
    if refused:
        return UnacceptableCredentialError(refused)
    return ScramCredentialSet(
        credential(wanted.name, mechanism, wanted.iterations, wanted.salt, wanted.salted_password)
    )


def _decided(
    image: MetadataImage, checked: Mapping[str, list[_Alteration] | KafkaError]
) -> tuple[dict[str, KafkaError | None], list[_Alteration]]:
    """Return the outcome of each user, and the changes of all whose outcome is no error."""
    outcomes: dict[str, KafkaError | None] = {}
    changes: list[_Alteration] = []
    kept = image.credentials
    count = len(kept)
    for name, wanted in checked.items():
        if isinstance(wanted, KafkaError):
            outcomes[name] = wanted
            continue
        missing = [each for each in wanted if isinstance(each, ScramCredentialRemoved) and each.key not in kept]
        grown = sum(-1 if isinstance(each, ScramCredentialRemoved) else each.key not in kept for each in wanted)
        if missing:
            outcomes[name] = _unknown(name, missing[0].mechanism)
        elif grown > 0 and count + grown > CLUSTER_PASSWORDS_MAX:
            outcomes[name] = InvalidRequestError(
                f"a cluster has at most {CLUSTER_PASSWORDS_MAX} passwords of users, and this would be one more; remove "
                "users first"
            )
        else:
            outcomes[name], count = None, count + grown
            # What a repeated request sets is there already: it makes no change, and no line in the log.
            changes += [
                each
                for each in wanted
                if isinstance(each, ScramCredentialRemoved) or kept.get(each.key) != each.credential
            ]
    return outcomes, changes


def _unknown(name: str, mechanism: int | None = None) -> ResourceNotFoundError:
    what = "" if mechanism is None else f" with a {mechanism_text(mechanism)} password"
    return ResourceNotFoundError(f"there is no user {_shown(name)}{what}. All users: sharegroups users list")


def _shown(name: str) -> str:
    """Return a name that any caller may have chosen, for an error."""
    return repr(printable(name if len(name) <= USER_MAX else f"{name[:USER_MAX]}…"))


def _text(change: _Alteration) -> str:
    """Return a change for the log."""
    if isinstance(change, ScramCredentialRemoved):
        return f"removed {mechanism_text(change.mechanism)} password of {change.user}"
    kept = change.credential
    return f"set {mechanism_text(kept.mechanism)} password of {kept.user}, {kept.iterations} iterations"


def _altered(outcomes: Mapping[str, KafkaError | None]) -> AlterUserScramCredentialsResponse:
    response = AlterUserScramCredentialsResponse()
    for name, error in outcomes.items():
        response.results.add(
            user=name, error_code=error.code if error else 0, error_message=error.message if error else None
        )
    return response


def _bounded(count: int, what: str) -> None:
    if count > REQUEST_USERS_MAX:
        raise invalid_argument(f"{count} {what}; at most {REQUEST_USERS_MAX} in one request")
